"""What clients together, and one address alone, may take of the broker: connections and request memory.

Kafka's keys: `max.connections`, `max.connections.per.ip`, `socket.request.max.bytes`, `queued.max.request.bytes`,
`connections.max.idle.ms`. The constants below have no key in Kafka.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

FRAME_PROGRESS_SECONDS: Final = 30.0
"""A frame that has begun must be whole within this time, or the connection is closed (slow-loris)."""
RESPONSE_STALL_SECONDS: Final = 60.0
"""A client that reads none of its responses for this long is cut off."""
WRITE_HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
"""Unsent response bytes per connection above which we stop reading its requests."""
MAX_REQUEST_ELEMENTS: Final = 50_000
"""Array elements in one request, each of which costs a microsecond or more; several for each of the 10,000 partitions
that a broker is planned for."""


@dataclass(slots=True)
class Limits:
    """The limits of one broker and what is in use of them."""

    max_connections: int
    max_connections_per_ip: int
    request_max_bytes: int
    queued_max_request_bytes: int
    idle_seconds: float
    first_descriptor_not_for_connections: int = sys.maxsize
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    connections: int = 0
    per_ip: Counter[str] = field(default_factory=Counter)
    request_bytes: int = 0
    is_short: bool = False
    """Somebody had to wait for memory, and half of it has not been free since: nobody keeps any without need."""
    _over_limit: object = None

    def admit(self, ip: str, descriptor: int = -1) -> str | None:
        """Count a new connection in, whose socket has that number; or say why not."""
        if descriptor >= self.first_descriptor_not_for_connections:
            return f"{descriptor} open files, and the rest is for logs: raise the limit (ulimit -n)"
        if self.connections >= self.max_connections:
            return f"max.connections={self.max_connections} reached"
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

    def reserve(self, size: int, holder: object) -> bool:
        """Set aside memory for bytes of a large frame that have come, and as many again; False while others hold too
        much.

        What a client only claims that it will send takes nothing from others. So frames that are all begun may fill
        the memory before one is whole; that one may be, a single `holder` at a time may go over the limit.
        """
        within = self.queued_max_request_bytes < 0 or self.request_bytes + size <= self.queued_max_request_bytes
        if not within:
            if self._over_limit not in (None, holder):
                self.is_short = True
                return False
            self._over_limit = holder
        self.request_bytes += size
        return True

    def give_back(self, size: int, holder: object) -> None:
        """All that `holder` had reserved."""
        self.request_bytes -= size
        if self._over_limit is holder:
            self._over_limit = None
        if 2 * self.request_bytes <= self.queued_max_request_bytes:
            self.is_short = False
