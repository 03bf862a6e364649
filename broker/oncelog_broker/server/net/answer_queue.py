"""The send side of a connection: sends responses in the order of the requests, however long each request takes.

A response that is not ready has a slot in the queue. Ready responses to later requests also wait in slots of the queue.
While the queue has no slot, a response is written immediately, together with the responses to other requests that are
handled in the same pass.

Back-pressure: while too many responses, or too many bytes of responses, are unsent, `Hold.ANSWERS_FULL` is set, and no
further request of the connection is handled.
"""

from __future__ import annotations

import asyncio
import mmap
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from oncelog_broker.runtime.round_robin import RoundRobin
from oncelog_broker.server.net.connection_state import Hold, Lifecycle
from oncelog_broker.server.net.limits import MAX_UNSENT_BYTES, WRITE_HIGH_WATER_BYTES, Limits
from oncelog_broker.server.net.memory_budget import Holding
from oncelog_broker.server.net.write_buffer import ENCRYPTED_PORTION_BYTES, PORTION_BYTES, WriteBuffer
from oncelog_protocol.wire_writers import Buffer

MAX_OUTSTANDING_ANSWERS: Final = 64
"""The maximum number of responses of one connection that wait for their result, or for earlier responses. At this limit
no further request is handled.
"""
ANSWERS_FULL: Final = int(Hold.ANSWERS_FULL)
SCATTER_BYTES: Final = 16 * 1024
"""A part of a response with at least this many bytes is written without copying; smaller parts are joined first."""


class Slot:
    """The position of one response in the queue. The slot `is_ready` when its `parts` (the bytes of the response) are
    complete; `parts` may be empty (acks=0).

    `is_unread` is True while the request is being decoded; it has had no effect yet.
    """

    __slots__ = ("is_long_poll", "is_ready", "is_unread", "parts", "waits_for")

    def __init__(
        self,
        waits_for: asyncio.Future[Any] | None,
        parts: list[Buffer],
        *,
        is_long_poll: bool = False,
        is_unread: bool = False,
    ) -> None:
        self.waits_for = waits_for
        self.is_long_poll = is_long_poll
        self.is_unread = is_unread
        self.parts = parts
        self.is_ready = waits_for is None


class AnswerQueue:
    """The queue of one connection's responses. Invariant: the first slot, if any, is not ready."""

    __slots__ = (
        "_copies_all",
        "_heap_bytes",
        "_is_closed",
        "_lifecycle",
        "_outgoing",
        "_ready_bytes",
        "_slots",
        "_stalled_since",
        "_transport",
        "_unsent",
        "_write_buffer",
        "_written",
        "memory",
    )

    def __init__(self, limits: Limits, address: str, scheduler: RoundRobin, lifecycle: Lifecycle) -> None:
        """All connections share one `scheduler`. `lifecycle` belongs to this connection; `Hold.ANSWERS_FULL` is set
        there while so many responses are outstanding that no further request may be handled.
        """
        self.memory = Holding(limits.answers, address)
        """This queue's share of the memory budget: the number of unsent bytes on the heap if this number exceeds
        WRITE_HIGH_WATER_BYTES, otherwise 0.
        """
        self._copies_all = False
        """Whether the transport copies all bytes to the heap because it encrypts them."""
        self._heap_bytes = 0
        """The number of bytes on the heap that were written since the transport was last empty; slices of mapped files
        do not count.
        """
        self._written = 0
        self._transport: asyncio.Transport | None = None
        self._write_buffer = WriteBuffer(scheduler)
        self._outgoing: list[Buffer] | None = None
        self._slots: deque[Slot] = deque()
        self._ready_bytes = 0
        """The number of bytes on the heap of ready responses that wait for earlier responses."""
        self._stalled_since = 0.0
        self._unsent = 0
        self._is_closed = False
        self._lifecycle = lifecycle

    def open(self, transport: asyncio.Transport, on_room: Callable[[], None], *, copies_all: bool = False) -> None:
        """Begin to send responses to `transport`. `on_room` is called when the transport has taken the last byte of a
        large response."""
        self._transport = transport
        self._copies_all = copies_all
        portion_bytes = ENCRYPTED_PORTION_BYTES if copies_all else PORTION_BYTES
        self._write_buffer.open(transport, partial(self._on_clear, on_room), portion_bytes)
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)

    def lose_client(self) -> None:
        """Drop the responses: the client has disconnected."""
        self._transport = None
        self._write_buffer.close()
        self.flow()

    def stop_long_polls(self) -> None:
        """Cancel the responses that wait for actions of other clients, such as new records. If a request is still being
        decoded, its response is cancelled later, when the request starts to wait for other clients.
        """
        for slot in list(self._slots):
            if slot.is_long_poll and not slot.is_unread and slot.waits_for is not None:
                slot.waits_for.cancel()

    def close(self) -> None:
        """Cancel all responses: the connection has ended."""
        self._transport = None
        self._write_buffer.close()
        self._is_closed = True
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.waits_for is not None:
                slot.waits_for.cancel()
                slot.waits_for = None  # drop the future, because its error may refer to the slot: a reference cycle
        self.memory.owe(0)

    @property
    def is_waiting(self) -> bool:
        """Whether a response is not ready yet."""
        return bool(self._slots)

    @property
    def is_leaving(self) -> bool:
        """Whether bytes wait in this queue for room in the transport."""
        return self._write_buffer.waiting_bytes > 0

    @property
    def sent(self) -> int:
        """Number of bytes that were passed to the client's socket since the connection began; bytes in this broker's
        buffers do not count.
        """
        return self._written - self._unsent_bytes()

    @property
    def unsent_heap_bytes(self) -> int:
        """Number of bytes on the heap that are unsent because the client does not read; 0 while the client reads."""
        if not (self._stalled_since or self.is_leaving):
            return 0
        held = self._heap_bytes
        if self._copies_all and self._transport is not None:
            held += self._transport.get_write_buffer_size()
        return min(held, self._unsent_bytes())

    def _weigh(self) -> None:
        if not (self._ready_bytes or self._stalled_since or self._write_buffer.waiting_bytes or self.memory.held):
            if len(self._slots) < MAX_OUTSTANDING_ANSWERS:  # the usual case: no bytes wait for the client
                self._lifecycle.holds &= ~ANSWERS_FULL
            else:
                self._lifecycle.holds |= ANSWERS_FULL
            return
        held = self.unsent_heap_bytes + self._ready_bytes
        if held > WRITE_HIGH_WATER_BYTES or self.memory.held:
            self.memory.owe(held if held > WRITE_HIGH_WATER_BYTES else 0)
        if (
            held < WRITE_HIGH_WATER_BYTES
            and len(self._slots) < MAX_OUTSTANDING_ANSWERS
            and not ((self._stalled_since or self.is_leaving) and self._unsent_bytes() >= MAX_UNSENT_BYTES)
        ):
            self._lifecycle.holds &= ~ANSWERS_FULL
        else:
            self._lifecycle.holds |= ANSWERS_FULL

    # --- methods that queue and send responses ------------------------------------------------------------------------

    def put(self, parts: list[Buffer], slot: Slot | None = None) -> None:
        """Send a response, whose first bytes are its size and header; without a `slot`, it is the response to the
        request being handled, otherwise to the request of the slot.
        """
        if slot is not None and not slot.is_ready:
            slot.parts += parts
        elif self._slots:
            self._slots.append(Slot(None, parts))
            self._ready_bytes += heap_size_of(parts)
            self._weigh()
        elif self._outgoing is not None:
            self._outgoing += parts
        else:
            self._write(parts)

    def reserve(self, waits_for: asyncio.Future[Any], *, is_long_poll: bool = False, is_unread: bool = False) -> Slot:
        """Reserve a slot for the response to the request being handled; later `put` the response there, and call
        `finish`.
        """
        slot = Slot(waits_for, [], is_long_poll=is_long_poll, is_unread=is_unread)
        self._slots.append(slot)
        self._weigh()
        return slot

    def finish(self, slot: Slot) -> None:
        """Note that the response of `slot` is complete, or that the request gets no response. After that, all ready
        responses at the front of the queue are sent.
        """
        if self._is_closed:
            return  # do not count these bytes: the connection has ended, so they would never be subtracted
        slot.is_ready, slot.waits_for = True, None
        slots = self._slots
        if len(slots) == 1 and slots[0] is slot:
            slots.clear()
            outgoing = slot.parts
        else:
            self._ready_bytes += heap_size_of(slot.parts)
            outgoing = list[Buffer]()
            while slots and slots[0].is_ready:
                parts = slots.popleft().parts
                self._ready_bytes -= heap_size_of(parts)
                outgoing += parts
        self._weigh()
        if self._outgoing is not None:
            self._outgoing += outgoing
        else:
            self._write(outgoing)

    def make_ready(self, slots: list[Slot]) -> None:
        """Note that the responses of `slots` are complete. The responses are sent by the next call of `finish`, which
        must follow.
        """
        if self._is_closed:
            return
        for slot in slots:
            slot.is_ready, slot.waits_for = True, None
            self._ready_bytes += heap_size_of(slot.parts)

    def hold(self) -> None:
        """Collect responses until `release`, in order to write them together."""
        self._outgoing = []

    def release(self) -> None:
        outgoing, self._outgoing = self._outgoing, None
        if outgoing:
            self._write(outgoing)

    def _write(self, parts: list[Buffer]) -> None:
        transport = self._transport
        if not parts or transport is None:
            return
        waiting_bytes = self._write_buffer.waiting_bytes
        if not waiting_bytes and not transport.get_write_buffer_size():
            self._heap_bytes = 0
        first = parts[0]
        if len(parts) == 1 and type(first) is bytes:
            pieces, size = parts, len(first)
            heap_bytes = size
        else:
            pieces, size, heap_bytes = gathered(parts)
            first = pieces[0]
        self._heap_bytes += heap_bytes
        self._written += size
        is_small = len(pieces) == 1 and type(first) is bytes and size <= self._write_buffer.portion_bytes
        if is_small and not waiting_bytes:  # the usual case: one small response
            transport.write(first)
        else:
            self._write_buffer.write(pieces, size)
        if self._stalled_since or self._write_buffer.waiting_bytes:
            self._weigh()

    def _on_clear(self, on_room: Callable[[], None]) -> None:
        self._weigh()
        on_room()

    # --- methods that detect clients that do not read their responses -------------------------------------------------

    def stall(self, now: float) -> None:
        """Record that the client has not read more than WRITE_HIGH_WATER_BYTES of its responses; `flow` records the end
        of this state. `now` is the loop's time.
        """
        self._stalled_since = now
        self._write_buffer.stall()
        self._unsent = self._unsent_bytes()
        self._weigh()

    def flow(self) -> None:
        self._stalled_since = 0.0
        self._write_buffer.flow()
        self._weigh()

    def stalled_seconds(self, now: float) -> float:
        """Return the seconds since the client last read any bytes. A client on a slow line that takes long to read a
        large response does not count as stalled. The caller must call this method periodically.
        """
        if not self._stalled_since:
            return 0.0
        self._weigh()
        unsent = self._unsent_bytes()
        if unsent < self._unsent:
            self._stalled_since = now
        self._unsent = unsent
        return now - self._stalled_since

    def _unsent_bytes(self) -> int:
        transport = self._transport
        return 0 if transport is None else transport.get_write_buffer_size() + self._write_buffer.waiting_bytes


def size_of(parts: list[Buffer]) -> int:
    return sum(map(len, parts))


def heap_size_of(pieces: list[Buffer]) -> int:
    """Return how many bytes of `pieces` are on the heap, that is, are not slices of mapped files."""
    size = 0
    for piece in pieces:
        if type(piece) is not memoryview or type(piece.obj) is not mmap.mmap:
            size += len(piece)
    return size


def coalesce(parts: list[Buffer]) -> list[Buffer]:
    """Return the same bytes in fewer pieces: runs of small parts are joined, large parts (record data) stay as they
    are.
    """
    return gathered(parts)[0]


def gathered(parts: list[Buffer]) -> tuple[list[Buffer], int, int]:
    """Return the pieces of `coalesce`, their number of bytes, and how many of these bytes are on the heap."""
    if max(map(len, parts)) < SCATTER_BYTES:
        joined = b"".join(parts)
        return [joined], len(joined), len(joined)
    pieces: list[Buffer] = []
    small: list[Buffer] = []
    size = heap_bytes = 0
    for part in parts:
        part_bytes = len(part)
        size += part_bytes
        if part_bytes < SCATTER_BYTES:
            small.append(part)
            heap_bytes += part_bytes
            continue
        if small:
            pieces.append(b"".join(small))
            small = []
        pieces.append(part)
        if type(part) is not memoryview or type(part.obj) is not mmap.mmap:
            heap_bytes += part_bytes
    if small:
        pieces.append(b"".join(small))
    return pieces, size, heap_bytes
