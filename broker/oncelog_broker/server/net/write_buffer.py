"""Passes responses to the transport in portions, so that each iteration of the loop is short.

A response from the log may be 50 MB of slices of mapped files. If such a response were written in one call, the kernel
would copy megabytes for each connection, until the socket's buffer is full, in one iteration of the loop; and each
copied page would count as memory of this process. Therefore a large response is written in portions: first while the
loop budget (time for further work in an iteration of the loop) lasts and the client reads, then in later iterations, in
round-robin order with other connections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from oncelog_broker.runtime.round_robin import RoundRobin
from oncelog_protocol.wire_writers import Buffer

PORTION_BYTES: Final = 1088 * 1024
"""The maximum number of bytes of one write. Copying this many bytes takes half a millisecond, or two milliseconds if
pages must be mapped. A consumer's default of 1 MB per partition, with its framing, fits into one write.
"""

ENCRYPTED_PORTION_BYTES: Final = 256 * 1024
"""The maximum number of bytes of one write for a transport that encrypts the bytes into its own memory."""


class WriteBuffer:
    """The unsent responses of one connection. Invariant: while this buffer has waiting bytes, no bytes bypass it."""

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
        """Callback that is called when no response waits any more. None while closed, because the callback refers to
        the connection, and a cycle of references would keep an ended connection in memory.
        """
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Buffer] = deque()
        self.waiting_bytes = 0
        """The number of bytes that were not yet passed to the transport."""
        self._is_stalled = False
        self.portion_bytes = PORTION_BYTES
        self.is_scheduled = False

    def open(
        self, transport: asyncio.Transport, on_clear: Callable[[], None], portion_bytes: int = PORTION_BYTES
    ) -> None:
        """`on_clear` is called when no response waits any more."""
        self._transport = transport
        self._on_clear = on_clear
        self.portion_bytes = portion_bytes

    def close(self) -> None:
        """Drop all waiting responses."""
        self._transport = self._on_clear = None
        self._waiting.clear()
        self.waiting_bytes = 0

    def write(self, pieces: list[Buffer], size: int) -> None:
        """Write `pieces` (`size` bytes in total) in order, as soon as the transport and the loop budget allow."""
        if size <= self.portion_bytes and not self._waiting and self._transport is not None:
            # Write a response of at most one portion even if the loop budget is spent, because few requests of one
            # iteration of the loop have such large responses.
            self._transport.writelines(pieces)
            return
        self._waiting += pieces
        self.waiting_bytes += size
        while not self._scheduler and self._can_give and self._scheduler.budget.claim():
            self._give_portion()
        self._join()

    def stall(self) -> None:
        """Stop writing until `flow` is called: the transport's buffer is full."""
        self._is_stalled = True

    def flow(self) -> None:
        self._is_stalled = False
        self._join()

    def take_slice(self) -> bool:
        """Write one portion. Returns whether more bytes wait that the transport accepts."""
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
