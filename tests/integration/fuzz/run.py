"""Sends the cases to a broker, and records violations of the protocol.

After each request an ApiVersions request is sent: its response, or the end of the connection, shows that the broker has
processed the request.
"""

from __future__ import annotations

import bisect
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Protocol

from raw_client import SIZE, frame

from fuzz.cases import Case
from fuzz.world import World
from oncelog_protocol.api import ApiKey, response_header_version, response_type
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.api_versions import ApiVersionsRequest

PATIENCE_SECONDS = 30.0
"""Limit in seconds for a response that the broker must send. The limit is long because the machine may be busy; a
request that really hangs waits for ever.
"""
CONNECTIONS = 4
LINGER_SECONDS = 0.005
SENTINEL_ID = 0x0DDBA11
SENTINEL = frame(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0, SENTINEL_ID)
CORRELATION = Struct(">i")
TRACEBACK = re.compile(r"^Traceback .*$", re.MULTILINE)
SHOWN_TRACEBACK = 2000
DECODED_BYTES = 1 << 20
"""A response larger than this number of bytes is read, but not decoded."""
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "2000",
    "log.segment.bytes": "1000000",
    "log.retention.bytes": "3000000",
    "log.retention.ms": "-1",
}


@dataclass
class Outcome:
    """The result of one run of the fuzzer. `sent` lists for each case its start time (as time.monotonic_ns), its size,
    and its
    description.
    """

    cases: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    sent: list[tuple[int, int, str]] = field(default_factory=list)

    def case_during(self, start_ns: int, end_ns: int) -> str:
        """Return the largest case that was in progress between these times."""
        began = [sent[0] for sent in self.sent]
        first, last = bisect.bisect_right(began, start_ns), bisect.bisect_right(began, end_ns)
        return max((sent[1:] for sent in self.sent[max(0, first - 1) : last]), default=(0, "no request"))[1]


class Fuzzed(Protocol):
    """The broker under test; `log` is the file to which it writes its log."""

    @property
    def port(self) -> int: ...

    @property
    def log(self) -> Path: ...

    @property
    def is_running(self) -> bool: ...


class Fuzzer:
    """Sends requests over several connections, one request at a time on each."""

    def __init__(self, broker: Fuzzed, world: World) -> None:
        self.broker = broker
        self.world = world
        self.outcome = Outcome()
        self._sockets: list[socket.socket | None] = [None] * CONNECTIONS
        self._log_size = os.path.getsize(broker.log)

    def run(self, cases: Iterator[Case], *, count: int | None, seconds: float) -> Outcome:
        """Send cases until `count` cases are sent, `seconds` have passed, or the broker has died."""
        deadline = time.monotonic() + seconds
        for case in cases:
            if not self.broker.is_running:
                self.outcome.defects.append("the broker died")
                break
            if time.monotonic() > deadline or self.outcome.cases == count:
                break
            words = str(case)
            self.outcome.cases += 1
            self.outcome.sent.append((time.monotonic_ns(), len(case.frame), words))
            self._send(case, case.number % CONNECTIONS)
            self.read_log(words)
        for connection in self._sockets:
            if connection is not None:
                connection.close()
        return self.outcome

    def _send(self, case: Case, at: int) -> None:
        connection = self._sockets[at] or self._connect()
        self._sockets[at] = None
        try:
            connection.sendall(case.frame + SENTINEL)
            if not case.is_awaited:
                # start several requests together, so that the broker is often still busy with one request when the next
                # request arrives
                time.sleep(LINGER_SECONDS)
                connection.close()
                return
            self._read_answers(connection, case)
            self._sockets[at] = connection
        except TimeoutError:
            self.outcome.defects.append(f"no answer in {PATIENCE_SECONDS:.0f} s: {case}")
            connection.close()
        except OSError:
            self.outcome.closed[case.key.name] += 1
            connection.close()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.broker.port), timeout=PATIENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _read_answers(self, connection: socket.socket, case: Case) -> None:
        """Read responses until the response to the sentinel request (ApiVersions) arrives; at most one other response
        may precede it.
        """
        for _ in range(2):
            (size,) = SIZE.unpack(_read(connection, 4))
            data = _read(connection, size)
            (correlation_id,) = CORRELATION.unpack_from(data)
            if correlation_id == SENTINEL_ID:
                return
            self.outcome.answered[case.key.name] += 1
            if correlation_id != case.number:
                self.outcome.defects.append(f"the answer to {correlation_id}: {case}")
            elif size <= DECODED_BYTES:
                self._check(data, case)
        self.outcome.defects.append(f"two answers: {case}")

    def _check(self, data: bytes, case: Case) -> None:
        """Check that the response can be decoded as one of this API and version."""
        position = 5 if response_header_version(case.key, case.version) else 4
        try:
            answer = codec(response_type(case.key), case.version).decode(data, position)
        except MalformedMessage as error:
            if case.key != ApiKey.API_VERSIONS:  # for an unsupported version, the response has version 0
                self.outcome.defects.append(f"an answer that is none ({error}): {case}")
            return
        self.world.learn(case.key, case.request, answer)

    def read_log(self, words: str) -> None:
        """Search the log for tracebacks after the case with these `words` or a later case; a traceback may appear late,
        because the broker logs in a separate thread.
        """
        size = os.path.getsize(self.broker.log)
        if size == self._log_size:
            return
        with self.broker.log.open(errors="replace") as log:
            log.seek(self._log_size)
            text = log.read()
        self._log_size = size
        for told in TRACEBACK.split(text)[1:]:
            self.outcome.defects.append(f"in the log, after {words}:\n{told[-SHOWN_TRACEBACK:]}")


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(1 << 20, size - len(data)))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)
