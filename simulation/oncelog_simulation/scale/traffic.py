"""Counts the traffic of a cluster: requests to the metadata store with their bytes in ZooKeeper's protocol, and
requests between brokers.

Bytes of the store are those that a real ensemble would exchange with the brokers, without TCP and TLS: headers, paths,
data and stats. What the servers of an ensemble exchange with each other is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.protocol.serialization import Exists, GetChildren, GetData

from oncelog.connection.transport import BrokerConnection
from oncelog_broker.metadata.stores.store import Create, Set
from oncelog_broker.metadata.stores.tree import Changes
from oncelog_broker.metadata.stores.zookeeper.requests import Multi, MultiRead
from oncelog_simulation.ensemble import Answer, Changed, ChangedTogether, Request
from oncelog_simulation.loop import SimulatedLoop

FRAME_BYTES: Final = 12
"""Bytes of a request's frame: its length, number and type."""
ANSWER_BYTES: Final = 20
"""Bytes of a response's frame: its length, number, zxid and error."""
OPERATION_BYTES: Final = 9
"""Bytes of the header of each operation of a multi."""
STRING_BYTES: Final = 4
"""Bytes of the length of a string or of data."""
STAT_BYTES: Final = 68
EVENT_BYTES: Final = 28
"""Bytes of a watch notification without its path."""
ACL_BYTES: Final = 31
"""Bytes of the ACL that lets everybody do everything, and of the flags of a created node."""
VERSION_BYTES: Final = 4


@dataclass
class Traffic:
    """What was counted since `reset`."""

    reads: int = 0
    """Requests that read nodes."""
    nodes_read: int = 0
    read_bytes: int = 0
    """Bytes of reads: requests and responses."""
    writes: int = 0
    """Requests that write."""
    operations: int = 0
    """Operations of these requests: nodes created, set, deleted or checked."""
    write_bytes: int = 0
    """Bytes of writes: requests and responses."""
    notifications: int = 0
    """Watch notifications that the store has sent."""
    notified_bytes: int = 0
    largest_write: int = 0
    """Bytes of the largest write."""
    largest_answer: int = 0
    """Bytes of the largest response."""
    between_brokers: Counter[str] = field(default_factory=Counter)
    """Number of requests that brokers have sent to brokers, by API."""

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def note_packet(self, packet: Any) -> None:
        """Count a packet between a client and a server of the store."""
        if type(packet) is Changed:
            self.notifications += 1
            self.notified_bytes += EVENT_BYTES + len(packet.path)
        elif type(packet) is ChangedTogether:
            self.notifications += len(packet.paths)
            self.notified_bytes += sum(EVENT_BYTES + len(path) for path in packet.paths)
        elif type(packet) is Request:
            self._note_request(packet.body)
        elif type(packet) is Answer:
            self._note_answer(packet.result)

    def _note_request(self, body: Any) -> None:
        size = FRAME_BYTES
        if isinstance(body, Multi):
            for operation in body.operations:
                size += OPERATION_BYTES + STRING_BYTES + len(operation.path) + VERSION_BYTES
                if isinstance(operation, Create | Set):
                    size += STRING_BYTES + len(operation.data)
                if isinstance(operation, Create):
                    size += ACL_BYTES
            self.writes += 1
            self.operations += len(body.operations)
            self.write_bytes += size
            self.largest_write = max(self.largest_write, size)
        elif isinstance(body, MultiRead):
            size += sum(OPERATION_BYTES + STRING_BYTES + len(path) + 1 for path in body.paths)
            self.reads += 1
            self.nodes_read += len(body.paths)
            self.read_bytes += size
        elif isinstance(body, GetData | GetChildren | Exists):
            self.reads += 1
            self.nodes_read += 1
            self.read_bytes += size + STRING_BYTES + len(body.path) + 1

    def _note_answer(self, result: Any) -> None:
        size = ANSWER_BYTES
        if isinstance(result, list) and result and isinstance(result[0], str):
            size += sum(STRING_BYTES + len(name) for name in result)
            self.read_bytes += size
        elif isinstance(result, list) and any(isinstance(each, tuple) and len(each) == 2 for each in result):
            for each in result:
                is_found = isinstance(each, tuple)
                size += OPERATION_BYTES + (STRING_BYTES + len(each[0]) + STAT_BYTES if is_found else STRING_BYTES)
            self.read_bytes += size
        elif isinstance(result, list):
            size += sum(OPERATION_BYTES + (0 if each is None else STAT_BYTES) for each in result)
            self.write_bytes += size
        elif isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], bytes):
            size += STRING_BYTES + len(result[0]) + STAT_BYTES
            self.read_bytes += size
        self.largest_answer = max(self.largest_answer, size)


class LargestNodes:
    """The bytes of the largest node of the store, and its path."""

    def __init__(self) -> None:
        self.path = ""
        self.bytes = 0

    def note(self, changes: Changes) -> None:
        for path, node in changes.items():
            if node is not None and len(node.data) > self.bytes:
                self.path, self.bytes = path, len(node.data)


@contextmanager
def requests_counted(loop: SimulatedLoop, traffic: Traffic) -> Iterator[None]:
    """Count the requests that brokers send to each other, until the end of the `with` statement."""
    real: Callable[..., Any] = BrokerConnection.start

    def start(connection: BrokerConnection, request: Any, *arguments: Any, **named: Any) -> Any:
        if loop.current.host.startswith("broker-"):
            traffic.between_brokers[type(request).__name__.removesuffix("Request")] += 1
        return real(connection, request, *arguments, **named)

    BrokerConnection.start = start  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        BrokerConnection.start = real  # type: ignore[method-assign]
