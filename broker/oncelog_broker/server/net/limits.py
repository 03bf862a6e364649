"""The limits on connections and memory for all clients together and for one address (`memory_budget`).

Kafka's settings: `max.connections`, `max.connections.per.ip`, `socket.request.max.bytes`, `queued.max.request.bytes`,
`connections.max.idle.ms`. A setting that Kafka does not have: `queued.max.response.bytes`. The limits below are
constants, because they cannot be configured.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import field
from typing import Final

from oncelog_broker.server.net.memory_budget import Holding, MemoryBudget
from oncelog_protocol.light_classes import dataclass

FRAME_SECONDS: Final = 30.0
"""A frame must be complete this number of seconds after it has begun; otherwise the connection is closed (protection
against slow-loris attacks).
"""
MIN_FRAME_RATE: Final = 256 * 1024
"""A frame gets one second in addition to FRAME_SECONDS for each such number of its bytes that have arrived, because a
large frame may arrive over a slow network.
"""
RESPONSE_STALL_SECONDS: Final = 60.0
"""Seconds after which a client that reads none of its responses is disconnected."""
WRITE_HIGH_WATER_BYTES: Final = 64 * 1024
"""If a connection has more unsent response bytes on the heap than this, the memory budget counts these bytes, and no
further request of the connection is handled.
"""
MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""If a client does not read, and its connection has more unsent response bytes than this, including slices of mapped
files, no further request of the connection is handled. This limit is higher, because unsent slices of mapped files use
little memory.
"""
COPIED_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""Limit on the bytes of records that one response may copy to the heap; other records are sent from the mapped
files."""
ANSWER_ESTIMATE_BYTES: Final = 64 * 1024
"""The assumed size of a response before it is built: a request waits until its connection may use this many more bytes.
"""
MAX_REQUEST_ELEMENTS: Final = 50_000
"""Limit on the array elements in one request, because each element costs a microsecond or more. The limit allows
several elements for each partition: a broker is designed for 10,000 partitions.
"""
BYTES_BESIDE_METADATA: Final = 4 << 20
"""Limit in bytes on a request without records, in addition to group.metadata.max.bytes. The fields of such a request
are copied in one call, 0.6 ms for each MB. Records are not copied, so only requests with records may reach
socket.request.max.bytes.
"""
LOGIN_BYTES: Final = 16 * 1024 * 1024
"""The maximum number of request bytes of all connections together that have not logged in yet. Before a login, only
tokens that do not fit into the connection's first buffer count toward this limit.
"""
LARGE_REQUEST_BYTES: Final = 4 * 1024
"""A request with more bytes than this may cost some milliseconds. Requests above this size are scheduled one after the
other: one iteration of the event loop may begin the small requests of all connections, but not the large requests of
all connections.
"""
ELEMENTS_AT_ONCE: Final = 4_000
"""A request with more array elements than this is decoded in slices; decoding this many elements takes two to four
milliseconds.
"""


@dataclass(slots=True)
class Limits:
    """The limits of one broker, and their current usage."""

    max_connections: int
    max_connections_per_ip: int
    request_max_bytes: int
    queued_max_request_bytes: int
    queued_max_response_bytes: int
    idle_seconds: float
    connection_descriptors: int = sys.maxsize
    """The number of file descriptors that connections may use, out of all descriptors of this process."""
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    connections: int = 0
    per_ip: Counter[str] = field(default_factory=Counter)
    requests: MemoryBudget = field(init=False)
    """The memory budget for received request bytes, beyond the first buffer of each connection."""
    logins: MemoryBudget = field(init=False)
    """The memory budget for received request bytes of connections that must authenticate first."""
    answers: MemoryBudget = field(init=False)
    """The memory budget for response bytes on the heap that wait until clients read them or until earlier responses are
    sent.
    """

    copied_answer_bytes: int = field(init=False)
    """Limit on the bytes of records that a response may copy to the heap if no bytes of other responses wait for their
    clients.
    """

    def __post_init__(self) -> None:
        self.requests = MemoryBudget(self.queued_max_request_bytes)
        self.logins = MemoryBudget(LOGIN_BYTES)
        self.answers = MemoryBudget(self.queued_max_response_bytes)
        self.copied_answer_bytes = min(COPIED_ANSWER_BYTES, Holding(self.answers, "").room // 4)

    def admit(self, ip: str) -> str | None:
        """Count a new connection; returns None, or a description of the limit that forbids the connection."""
        if self.connections >= self.max_connections:
            return f"max.connections={self.max_connections} reached"
        if self.connections >= self.connection_descriptors:
            return (
                f"{self.connections} connections, and the rest is for logs: raise the limit of open files (ulimit -n)"
            )
        if self.per_ip[ip] >= self.max_connections_per_ip:
            return f"max.connections.per.ip={self.max_connections_per_ip} reached for {ip}"
        self.connections += 1
        self.per_ip[ip] += 1
        return None

    def release(self, ip: str) -> None:
        """Subtract a connection that `admit` has counted."""
        self.connections -= 1
        self.per_ip[ip] -= 1
        if not self.per_ip[ip]:
            del self.per_ip[ip]
