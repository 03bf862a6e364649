"""Gives the transport what leaves, no more than it can hand to the system at once in little time.

An answer from the log may be 50 MB of slices of mapped files. Written as a whole, the system copies as much of it as
the socket's buffers take, megabytes for each connection, all in one turn of the loop; and each page that it copies is
memory of this process. So a large answer leaves in portions: while the turn that all connections share lasts, while the
client reads, and then in the next turn; those of several connections one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from oncelog_broker.runtime.round_robin import RoundRobin
from oncelog_protocol.wire_writers import Buffer

PORTION_BYTES: Final = 1088 * 1024
"""Given to the transport at once: half a millisecond of copying, two where pages are to be mapped. What consumers ask
of a partition by default (1 MB), with what is around it, leaves by one write."""

ENCRYPTED_PORTION_BYTES: Final = 256 * 1024
"""The same where the transport encrypts what it is given, into memory of ours."""


class WriteBuffer:
    """What leaves by one connection. Invariant: while anything waits here, nothing is given past it."""

    __slots__ = (
        "_is_stalled",
        "_on_clear",
        "_scheduler",
        "_transport",
        "_waiting",
        "is_scheduled",
        "portion_bytes",
        "waiting_bytes",
    )

    def __init__(self, scheduler: RoundRobin) -> None:
        self._scheduler = scheduler
        self._on_clear: Callable[[], None] | None = None
        """None while it is closed, so that what has ended does not refer to itself."""
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Buffer] = deque()
        self.waiting_bytes = 0
        """Of what is not given to the transport."""
        self._is_stalled = False
        self.portion_bytes = PORTION_BYTES
        self.is_scheduled = False

    def open(
        self, transport: asyncio.Transport, on_clear: Callable[[], None], portion_bytes: int = PORTION_BYTES
    ) -> None:
        """`on_clear` is called when nothing waits any more."""
        self._transport = transport
        self._on_clear = on_clear
        self.portion_bytes = portion_bytes

    def close(self) -> None:
        """What waits goes nowhere any more."""
        self._transport = self._on_clear = None
        self._waiting.clear()
        self.waiting_bytes = 0

    def write(self, pieces: list[Buffer], size: int) -> None:
        """Give `pieces`, of so many bytes, to the transport, in order, as soon as it is their turn."""
        if size <= self.portion_bytes and not self._waiting and self._transport is not None:
            self._transport.writelines(pieces)  # one for each request: a turn has few of those that are so large
            return
        self._waiting += pieces
        self.waiting_bytes += size
        while not self._scheduler and self._can_give and self._scheduler.budget.claim():
            self._give_portion()
        self._join()

    def stall(self) -> None:
        """The transport has enough, until `flow`."""
        self._is_stalled = True

    def flow(self) -> None:
        self._is_stalled = False
        self._join()

    def take_slice(self) -> bool:
        """Give a portion. Whether there is more, and the transport takes it."""
        if self._can_give:
            self._give_portion()
            if not self._waiting and self._on_clear is not None:
                self._on_clear()
        self.is_scheduled = self._can_give
        return self.is_scheduled

    @property
    def _can_give(self) -> bool:
        return bool(self._waiting) and not self._is_stalled and self._transport is not None

    def _join(self) -> None:
        if self._can_give and not self.is_scheduled:
            self.is_scheduled = True
            self._scheduler.join(self)

    def _give_portion(self) -> None:
        transport, portion = self._transport, self._portion()
        assert transport is not None
        if len(portion) == 1:
            transport.write(portion[0])
        else:
            transport.writelines(portion)

    def _portion(self) -> list[Buffer]:
        waiting, portion, room = self._waiting, list[Buffer](), self.portion_bytes
        while waiting and room:
            piece = waiting[0]
            if len(piece) <= room:
                portion.append(waiting.popleft())
            else:
                rest = memoryview(piece)
                portion.append(rest[:room])
                waiting[0] = rest[room:]
            room -= len(portion[-1])
        self.waiting_bytes -= self.portion_bytes - room
        return portion
