"""What clients together, and one address alone, may take of the broker: connections, and memory (`memory_budget`).

Kafka's keys: `max.connections`, `max.connections.per.ip`, `socket.request.max.bytes`, `queued.max.request.bytes`,
`connections.max.idle.ms`. Our own: `queued.max.response.bytes`. The constants below have no key.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from oncelog_broker.server.net.memory_budget import Holding, MemoryBudget

FRAME_SECONDS: Final = 30.0
"""A frame that has begun must be whole within this time, or the connection is closed (slow-loris)..."""
MIN_FRAME_RATE: Final = 256 * 1024
"""... and a second more for so many bytes of it as have come: a slow line may carry a large frame."""
RESPONSE_STALL_SECONDS: Final = 60.0
"""A client that reads none of its responses for this long is cut off."""
WRITE_HIGH_WATER_BYTES: Final = 64 * 1024
"""Unsent response bytes per connection above which the budget counts those on the heap. With so many there we handle no
more of its requests."""
MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Unsent response bytes of all kinds above which we handle no more of its requests: slices of mapped files cost
little."""
COPIED_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""Of the records in one answer, so many may be copies on the heap; the others leave from the mapped files."""
ANSWER_ESTIMATE_BYTES: Final = 64 * 1024
"""What an answer is taken to need before it is made: a request whose connection may not hold so much must wait."""
MAX_REQUEST_ELEMENTS: Final = 50_000
"""Array elements in one request, each of which costs a microsecond or more; several for each of the 10,000 partitions
that a broker is planned for."""
BYTES_BESIDE_METADATA: Final = 4 << 20
"""In a request without records, beside what a group may keep for its members (group.metadata.max.bytes). Its fields are
copied in one step, 0.6 ms for each MB; socket.request.max.bytes is for records, which are not."""
LOGIN_BYTES: Final = 16 * 1024 * 1024
"""What all those who have not logged in may hold of requests together. A login needs none of it, but for tokens beyond
the first buffer of a connection."""
LARGE_REQUEST_BYTES: Final = 4 * 1024
"""What is larger may cost some milliseconds, so that those of many connections do not all begin in one turn of the
loop, as small ones do."""
ELEMENTS_AT_ONCE: Final = 4_000
"""A request with more is decoded in slices: so many cost two to four milliseconds."""


@dataclass(slots=True)
class Limits:
    """The limits of one broker and what is in use of them."""

    max_connections: int
    max_connections_per_ip: int
    request_max_bytes: int
    queued_max_request_bytes: int
    queued_max_response_bytes: int
    idle_seconds: float
    connection_descriptors: int = sys.maxsize
    """Of the descriptors of this process, so many are for connections."""
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    connections: int = 0
    per_ip: Counter[str] = field(default_factory=Counter)
    requests: MemoryBudget = field(init=False)
    """What has come of requests, beyond the first buffer of each connection."""
    logins: MemoryBudget = field(init=False)
    """The same from connections on which somebody has to log in first."""
    answers: MemoryBudget = field(init=False)
    """What of answers waits on the heap, for clients to read it or for answers before it."""

    copied_answer_bytes: int = field(init=False)
    """Of the records in an answer, how many may be copies as long as nobody holds answers."""

    def __post_init__(self) -> None:
        self.requests = MemoryBudget(self.queued_max_request_bytes)
        self.logins = MemoryBudget(LOGIN_BYTES)
        self.answers = MemoryBudget(self.queued_max_response_bytes)
        self.copied_answer_bytes = min(COPIED_ANSWER_BYTES, Holding(self.answers, "").room // 4)

    def admit(self, ip: str) -> str | None:
        """Count a new connection in, or say why not."""
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
        """Count a connection that was admitted out."""
        self.connections -= 1
        self.per_ip[ip] -= 1
        if not self.per_ip[ip]:
            del self.per_ip[ip]
