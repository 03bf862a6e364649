"""Detects that librdkafka waits for ever for a lost coordinator ("clings" to it); the test looks at the requests of the
library, not at the duration of a call.

librdkafka 2.16 stores the handle of a broker that has left the metadata as coordinator of a group, although such a
handle never connects again. `send_offsets_to_transaction` waits for this old handle, even after the broker has returned
and got a new handle. The call checks the coordinator again only when a connection of another handle comes up or goes
down, which never happens in a healthy cluster. The library stores the timeout of the call, but never checks it
(`rd_kafka_coord_req_fsm` and `creq_ts_timeout` in rdkafka_coord.c, `rd_kafka_broker_decommission` in rdkafka_broker.c).
In this state the library sends no request, so no response of a broker can end the wait.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

LATE_SECONDS = 10.0
"""How many seconds after its own timeout a call may still return."""
QUIET_SECONDS = 10.0
"""Seconds for which a clinging client sends no request about coordinators; in this time it refreshes its metadata
twice.
"""
STATISTICS_MS = 1000
DOWN = ("INIT", "DOWN", "TRY_CONNECT")
"""States of a handle without a connection. A handle for which the library has no requests also remains in TRY_CONNECT.
"""
ABOUT_COORDINATORS = ("FindCoordinator", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


class Clings(Exception):
    """librdkafka hangs: a call does not return although the client waits for no response and sends only metadata
    requests.
    """


class Said(NamedTuple):
    """The statistics of a librdkafka client at one point in time."""

    sent: Counter[str]
    """Number of requests by kind, since the client started."""
    awaited: int
    """Number of requests that are queued, or have no response yet."""
    connected: int
    """Number of librdkafka's broker handles (one for each broker that the client knows) that have an open connection.
    """
    connecting: int
    """Number of broker handles that are connecting."""
    attempts: dict[str, int]
    """Handle -> connection attempts since the client started, for handles without a connection; unused handles make no
    attempts.
    """


def said(statistics: str) -> Said:
    told = json.loads(statistics)["brokers"]
    known = {name: broker for name, broker in told.items() if broker["source"] != "internal"}
    brokers = known.values()
    sent: Counter[str] = Counter()
    for broker in brokers:
        sent.update(broker["req"])
    awaited = sum(broker["waitresp_cnt"] + broker["outbuf_cnt"] for broker in brokers)
    connected = sum(broker["state"] == "UP" for broker in brokers)
    down = {name: broker for name, broker in known.items() if broker["state"] in DOWN}
    attempts = {name: broker["connects"] for name, broker in down.items()}
    return Said(sent, awaited, connected, len(brokers) - connected - len(down), attempts)


def clings(before: Said, after: Said) -> bool:
    """Return whether librdkafka hangs, judged by its statistics at two points of one call. The library hangs if between
    these points it could send requests, waited for no response, sent no request about coordinators, and did not try in
    vain to connect to a bootstrap broker.
    """
    is_alive = after.sent["Metadata"] > before.sent["Metadata"] and after.connected > 0
    asks = any(after.sent[kind] != before.sent[kind] for kind in ABOUT_COORDINATORS)
    waits = before.awaited or after.awaited or after.connecting
    tries = any(tried != before.attempts.get(name) for name, tried in after.attempts.items())
    return is_alive and not asks and not waits and not tries


class Calls:
    """Makes blocking calls of one librdkafka producer and watches its statistics, to find out whether a call that takes
    too long hangs.

    Configure the producer with `stats_cb=note`; a thread other than the caller's must poll it.
    """

    def __init__(self) -> None:
        self._said: Said | None = None
        self._is_told = threading.Condition()

    def note(self, statistics: str) -> None:
        with self._is_told:
            self._said = said(statistics)
            self._is_told.notify_all()

    def _at_rest(self) -> Said:
        """Wait for the next statistics of the client in which no request is in flight. Raises AssertionError if no such
        statistics arrive in
        time.
        """
        with self._is_told:
            self._said = None
            assert self._is_told.wait_for(lambda: self._said and not self._said.awaited, QUIET_SECONDS), (
                "a call does not return, and requests are under way"
            )
            assert self._said is not None
            return self._said

    def make(self, work: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """Call `work(*arguments, seconds)` in a thread. If the call is late, raises Clings if librdkafka hangs, and
        AssertionError otherwise; the call and its thread are then abandoned.
        """
        failures: list[BaseException] = []

        def call() -> None:
            try:
                work(*arguments, seconds)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(seconds + LATE_SECONDS)
        if thread.is_alive():
            before, since = self._at_rest(), time.monotonic()
            thread.join(QUIET_SECONDS)
            after = self._at_rest()
            if thread.is_alive():
                what = (
                    f"{work.__name__} does not return; before {before}, {time.monotonic() - since:.0f} s later {after}"
                )
                assert clings(before, after), what
                raise Clings(what)
        if failures:
            raise failures[0]
        return None
