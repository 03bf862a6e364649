"""Client of a broker's control server for tests: sets faults and counts how often they were applied."""

from __future__ import annotations

import http.client
import json
import time
from http import HTTPStatus
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

__tracebackhide__ = True  # hides this module in the traceback of a failed test

ANSWER_SECONDS: Final = 60.0
"""Timeout in seconds for a response of the control; a busy machine may take some seconds."""
WAIT_SECONDS: Final = 30.0
"""Seconds that a test waits by default until a fault is applied."""
CRASH_SECONDS: Final = 5.0
"""Seconds to wait for the end of a broker's process after the broker has killed itself (kill -9), or after its response
has broken off.
"""
LONGEST_QUESTION_SECONDS: Final = 20.0
"""Maximum seconds of one request that waits; a longer wait is split into several requests."""


class BrokerGone(Exception):
    """Raised if the broker does not run, because a fault has crashed it or because it was killed."""


class NotStruck(AssertionError):
    """Raised if the fault that a test has set was never applied, because such a test would prove nothing."""


def ask(url: str, method: str, path: str, body: Any = None, more_seconds: float = 0.0) -> Any:
    """Send a request to the control; returns its response. Raises ValueError for an invalid request, or OSError."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_SECONDS + more_seconds)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        raise ValueError(content["error"])
    return content


class ControlledBroker(Protocol):
    """The interface of the broker in which a fault is set (`broker.Broker`)."""

    name: str
    ended_by_test: set[int | None]

    @property
    def pid(self) -> int | None: ...

    def wait_ended(self, seconds: float) -> bool: ...

    def ask(self, method: str, path: str, body: Any = None, more_seconds: float = 0.0) -> Any: ...


class Fault:
    """A fault in a broker. As a context manager, a Fault is removed at the end of the block."""

    def __init__(self, broker: ControlledBroker, number: int, order: dict[str, Any]) -> None:
        self._broker = broker
        self._number = number
        self._order = order
        self._process = broker.pid

    @property
    def struck(self) -> int:
        """How often the fault has been applied so far. Raises BrokerGone if the broker has ended for another reason."""
        if self._has_crashed_it:
            return 1
        try:
            return int(self._ask("GET")["struck"])
        except BrokerGone:
            if not self._is_crashing_it:
                raise
            return 1

    def wait(self, seconds: float = WAIT_SECONDS, *, times: int = 1) -> None:
        """Wait until the fault has been applied `times` times. Raises NotStruck. Usage in a coroutine: `await
        asyncio.to_thread(fault.wait)`.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if "crash" in self._order:
                struck = int(self._has_crashed_it or self._broker.wait_ended(left))
            else:
                part = min(left, LONGEST_QUESTION_SECONDS)
                struck = self._ask("GET", f"?struck={times}&wait_ms={int(part * 1000)}", part)["struck"]
            if struck >= times:
                return
            if time.monotonic() >= deadline:
                raise NotStruck(f"{self} has struck {struck} times within {seconds:g} s, not {times}")

    def remove(self) -> None:
        """Remove the fault; does nothing if the broker has ended, because a fault ends with the broker's process."""
        try:
            self._ask("DELETE")
        except (BrokerGone, ValueError):
            pass

    def _ask(self, method: str, question: str = "", more_seconds: float = 0.0) -> Any:
        """Send a request about this fault. Raises BrokerGone if the broker was restarted, because in the new process
        the number of this fault may belong to another fault.
        """
        if self._broker.pid != self._process:
            raise BrokerGone(f"{self._broker.name} has ended since {self} was ordered")
        return self._broker.ask(method, f"/faults/{self._number}{question}", more_seconds=more_seconds)

    @property
    def _has_crashed_it(self) -> bool:
        """Return whether the process with the fault has ended because of the fault."""
        is_gone = self._broker.pid != self._process
        return "crash" in self._order and is_gone and self._process not in self._broker.ended_by_test

    @property
    def _is_crashing_it(self) -> bool:
        """Return whether a broker that does not respond is just being crashed by the fault; clients notice a crash
        earlier than this process, which is the broker's parent.
        """
        if "crash" in self._order and self._broker.pid == self._process:
            self._broker.wait_ended(CRASH_SECONDS)
        return self._has_crashed_it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        details = ", ".join(f"{name}={value!r}" for name, value in self._order.items() if name != "point")
        return f"fail({self._order['point']!r}, {details})"
