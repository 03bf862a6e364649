"""One of the two brokers in a scenario: it gets requests, and its responses are stored as a transcript."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from tests.integration.clients.raw_client import SIZE, RawClient, frame
from tests.interop.differential.messages import Plain, message
from tests.interop.differential.plain import Plainer

from oncelog_protocol.api import ApiKey, request_type
from oncelog_protocol.errors import ErrorCode, MalformedMessage

RELEASE: Final = "4.3.1"
"""The release of Apache Kafka with which the oncelog broker is compared."""
NODE_ID: Final = 7
"""The node id of both brokers."""

PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors that a broker returns for a moment after a topic, a group or a transaction was created or ended. The timing of
these errors depends on the broker's speed, so the requests are repeated.
"""
PASSING_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 20.0

HEADER: Final = Struct(">hhih")
CORRELATION_ID: Final = 5

NO_ANSWER: Final = "no answer"
CLOSED: Final = "connection closed"
UNREADABLE: Final = "an answer that cannot be decoded"


class ScenarioBroken(Exception):
    """A broker did not reach the state that the scenario prepares, so there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Step:
    """The response of one broker to one request, or an observation that a scenario has recorded. `api` is empty for raw
    bytes.
    """

    api: str
    version: int
    label: str
    answer: Any

    @property
    def question(self) -> str:
        return f"{self.api} v{self.version} {self.label}".strip() if self.api else self.label


class Side:
    """One of the two compared brokers during one scenario. All names that the scenario uses are created by `own`.

    Invariant: a scenario makes the same calls on both sides as long as the responses agree.
    """

    def __init__(self, name: str, port: int, prefix: str) -> None:
        """`prefix` is the same on both sides, and belongs to no other scenario."""
        self.name = name
        self.port = port
        self.prefix = prefix
        self.plain = Plainer(port, prefix)
        self.transcript: list[Step] = []
        self.asked: set[tuple[ApiKey, int]] = set()
        self.topic_ids: dict[str, bytes] = {}
        self._connections: dict[str, RawClient] = {}

    def own(self, name: str) -> str:
        """Return a name of this scenario, which transcripts show as `~name`; names of internal topics are returned
        unchanged.
        """
        return name if name.startswith("__") else f"{self.prefix}{name}"

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()

    def disconnect(self, connection: str) -> None:
        """Close one connection, which the scenario does not use again."""
        self._connections.pop(connection).socket.close()

    # --- requests

    def ask(
        self,
        api: ApiKey,
        version: int,
        values: Plain | None = None,
        label: str = "",
        *,
        connection: str = "main",
        client_id: str = "differential",
        retried: Collection[int] = PASSING,
        until: Callable[[Any], bool] | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> Any:
        """Send a request and record the response for the comparison; return the response, or None if there was none.

        Requests with errors in `retried`, or for whose response `until` is false, are repeated for a while.
        """
        response, problem = self._settled_answer(
            api, version, values or {}, connection, client_id, retried, until, patience
        )
        self.record(api, version, label, response, problem)
        return response

    def record(self, api: ApiKey, version: int, label: str, response: Any, problem: str = "") -> None:
        """Record a response for the comparison; `problem` says why there is none."""
        answer = problem if response is None else self.plain.answer(response, version)
        self.transcript.append(Step(api.message_name, version, label, answer))

    def get(self, api: ApiKey, version: int, values: Plain | None = None, **options: Any) -> Any:
        """Send a request and return its response. The response is only for the scenario and is not compared. Raises
        ScenarioBroken.
        """
        options = {"connection": "main", "client_id": "differential", "retried": PASSING, "until": None} | options
        response, problem = self._settled_answer(api, version, values or {}, patience=PATIENCE_SECONDS, **options)
        if response is None:
            raise ScenarioBroken(f"{self.name}: {api.message_name} v{version}: {problem}")
        return response

    def _settled_answer(
        self,
        api: ApiKey,
        version: int,
        values: Plain,
        connection: str,
        client_id: str,
        retried: Collection[int],
        until: Callable[[Any], bool] | None,
        patience: float,
    ) -> tuple[Any, str]:
        request = message(request_type(api), values)
        deadline = time.monotonic() + PASSING_SECONDS
        while True:
            response, problem = self._answer(api, version, request, connection, client_id, patience)
            if response is None or time.monotonic() > deadline:
                return response, problem
            if not (error_codes(response) & set(retried)) and (until is None or until(response)):
                return response, ""
            time.sleep(PAUSE_SECONDS)

    def _answer(
        self, api: ApiKey, version: int, request: Any, connection: str, client_id: str, patience: float
    ) -> tuple[Any, str]:
        self.send(api, version, request, connection, client_id)
        return self._received(connection, patience)

    # --- requests without waiting, and raw bytes

    def send(
        self, api: ApiKey, version: int, request: Any, connection: str = "main", client_id: str = "differential"
    ) -> None:
        """Send a request without waiting for its response; `request` is a message or its plain data."""
        self.asked.add((api, version))
        built = message(request_type(api), request) if isinstance(request, dict) else request
        self._connection(connection).send(built, api, version, client_id=client_id)

    def tell(self, api: ApiKey, version: int, values: Plain) -> None:
        """Send a request that has no response."""
        self._connection("main").socket.sendall(frame(message(request_type(api), values), api, version))

    def receive(self, api: ApiKey, version: int, label: str, connection: str = "main") -> Any:
        """Receive the response to the oldest request that was sent, and record it."""
        response, problem = self._received(connection, PATIENCE_SECONDS)
        self.record(api, version, label, response, problem)
        return response

    def raw_answer(self, api: int, version: int, body: bytes, label: str, *, shown: int | None = None) -> None:
        """Send a header of version 1 without a client id, followed by any bytes; record `shown` bytes of the
        response.
        """
        self.raw(HEADER.pack(api, version, CORRELATION_ID, -1) + body, label, shown=shown)

    def raw(self, data: bytes, label: str, *, framed: bool = True, shown: int | None = None) -> None:
        """Send bytes on a new connection, and record the bytes of the response as hexadecimal digits."""
        with RawClient(self.port) as client:
            try:
                answer = client.exchange(SIZE.pack(len(data)) + data if framed else data)[:shown].hex()
            except TimeoutError:
                answer = NO_ANSWER
            except OSError:
                answer = CLOSED
        self.note(label, answer)

    def token(self, data: bytes, label: str, connection: str) -> None:
        """Send a frame that is not a request, such as a token after SaslHandshake v0, and record the bytes of the
        response.
        """
        client = self._connection(connection)
        try:
            answer = client.exchange(SIZE.pack(len(data)) + data).hex()
        except TimeoutError:
            answer = NO_ANSWER
        except OSError:
            answer = CLOSED
        if answer in (NO_ANSWER, CLOSED):
            self._connections.pop(connection).socket.close()
        self.note(label, answer)

    def note(self, label: str, value: Any) -> None:
        """Record a value that the scenario has observed, to be compared like a response."""
        self.transcript.append(Step("", 0, label, value))

    def _received(self, connection: str, patience: float) -> tuple[Any, str]:
        client = self._connection(connection)
        client.socket.settimeout(patience)
        try:
            return client.receive(), ""
        except TimeoutError:
            problem = NO_ANSWER
        except OSError:
            problem = CLOSED
        except MalformedMessage:
            problem = UNREADABLE
        self._connections.pop(connection).socket.close()
        return None, problem

    def _connection(self, name: str) -> RawClient:
        if name not in self._connections:
            self._connections[name] = RawClient(self.port)
        return self._connections[name]


def error_codes(message: Any) -> set[int]:
    """Return all error codes that occur anywhere in a response."""
    found = set()
    for name in type(message).__dataclass_fields__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, list):
            for one in value:
                if hasattr(type(one), "__dataclass_fields__"):
                    found |= error_codes(one)
    return found
