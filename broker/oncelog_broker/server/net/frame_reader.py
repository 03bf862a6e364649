"""The receive side of a connection: one buffer for received bytes, from which frames are cut.

The size of the buffer depends on the bytes received, not on the frame size that a client claims; the buffer is freed
while the connection is idle. For a large frame, the buffer reserves address space of the entire frame, so that the
frame is never copied; the system allocates memory only as bytes arrive. A frame is a slice of the buffer, not a copy.
Its bytes stay unchanged until the next frame is requested. If a request needs its frame for longer (`lend`), bytes that
arrive meanwhile go into another buffer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import Final
from weakref import finalize

from oncelog_broker.server.net.limits import Limits
from oncelog_broker.server.net.memory_budget import Holding

SIZE: Final = Struct(">i")
MIN_FRAME_BYTES: Final = 8
"""The size in bytes of API key, version and correlation id; a shorter frame is not a request."""
INITIAL_BUFFER_BYTES: Final = 16 * 1024
READ_AHEAD_BYTES: Final = 128 * 1024
"""The number of bytes that are reserved behind a large frame, so that one read may also receive the next frames."""

READ_BYTES: Final = 128 * 1024
"""The minimum number of free bytes in the buffer for one read. In one iteration the event loop reads up to 32 times
from one socket while bytes are available.
"""
LARGE_FRAME_BYTES: Final = 1024 * 1024
"""A frame above this size in bytes gets its own buffer, whose memory is allocated in pieces of this size."""
KEPT_BUFFER_BYTES: Final = 2 * 1024 * 1024
"""A buffer above this size in bytes is freed as soon as it is empty, because few requests are so large."""


class FrameRefused(Exception):
    """Raised for a frame whose size is invalid or above the limit, or for which the system has no memory."""


class _Bytes(bytearray):
    """A byte array that reports whether slices of it are still in use."""

    __slots__ = ("__weakref__",)


class ReceiveBuffer:
    """The bytes that one connection has received and not yet handled. Invariant: 0 <= begin <= end <= size of the
    buffer."""

    __slots__ = (
        "_granted",
        "_is_lent",
        "_limits",
        "_max_frame_bytes",
        "_min_frame_bytes",
        "_view",
        "_wanted",
        "begin",
        "end",
        "memory",
        "received",
    )

    def __init__(self, limits: Limits, address: str) -> None:
        self._limits = limits
        self._max_frame_bytes, self._min_frame_bytes = limits.request_max_bytes, MIN_FRAME_BYTES
        self.memory = Holding(limits.requests, address)
        """The buffer's share of the memory budget: the buffer's size in bytes if it exceeds the initial size, otherwise
        0.
        """
        self.received = 0
        """Bytes received since the connection began."""
        self._view = memoryview(b"")
        self._granted = 0
        """How many bytes at the front of the buffer may be written. In a buffer for a large frame, only this part has
        memory yet; in other buffers, this is the size of the buffer.
        """
        self.begin = 0
        """The position where the next frame begins."""
        self.end = 0
        """The end of the received bytes; equal to `begin` if no bytes are left."""
        self._wanted = 0
        """Size in bytes of the incomplete frame, including its size field; 0 if no frame has begun."""
        self._is_lent = False

    def accept_logins(self, max_frame_bytes: int) -> None:
        """Set a limit in bytes on the size of a frame; the limit applies until the client has authenticated. There is
        no minimum size, because a raw SASL token may even be empty.
        """
        self._max_frame_bytes, self._min_frame_bytes = max_frame_bytes, 0
        self.memory = self.memory.moved_to(self._limits.logins)

    def accept_requests(self) -> None:
        """Lift the frame limit, because the client has authenticated."""
        self._max_frame_bytes, self._min_frame_bytes = self._limits.request_max_bytes, MIN_FRAME_BYTES
        self.memory = self.memory.moved_to(self._limits.requests)

    # --- methods for receiving bytes

    def room(self) -> memoryview:
        """Return the buffer's free part, into which the next bytes are written."""
        if not self._granted:
            self._replace(_Bytes(INITIAL_BUFFER_BYTES))
        return self._view[self.end : min(self._granted, self.end + READ_BYTES)]

    @property
    def room_bytes(self) -> int:
        """Size of the free part in bytes; 0 if the buffer is freed."""
        return min(self._granted - self.end, READ_BYTES)

    def add(self, size: int) -> None:
        """Record that `size` bytes were written into the free part."""
        self.end += size
        self.received += size

    @property
    def is_full(self) -> bool:
        """Whether the buffer has no free part left."""
        return self.end == self._granted > 0

    @property
    def is_amid_frame(self) -> bool:
        """Whether the next frame has begun and is incomplete; updated by `next_frame`."""
        return self._wanted > 0

    @property
    def frame_received(self) -> int:
        """Received bytes of the incomplete frame."""
        return self.end - self.begin

    # --- methods for returning frames

    @property
    def has_whole_frame(self) -> bool:
        """Whether the next frame is complete; False if the frame's size is invalid."""
        available = self.end - self.begin - SIZE.size
        if available < self._min_frame_bytes:
            return False
        (size,) = SIZE.unpack_from(self._view, self.begin)
        return bool(self._min_frame_bytes <= size <= available)

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its size field; None if no frame is complete. Raises FrameRefused."""
        begin = self.begin
        available = self.end - begin
        self._wanted = 0
        if available < 4:
            return None
        (size,) = SIZE.unpack_from(self._view, begin)
        if size < self._min_frame_bytes or size > self._max_frame_bytes:
            raise FrameRefused(
                f"frame of {size} bytes: from {self._min_frame_bytes} to {self._max_frame_bytes} are accepted"
            )
        if available - 4 < size:
            self._wanted = size + 4
            return None
        self.begin = begin + 4 + size
        return self._view[begin + 4 : self.begin]

    def put_back(self, frame: memoryview) -> None:
        """Return the last frame to the buffer: `next_frame` returns it again."""
        self.begin -= SIZE.size + len(frame)

    def lend(self) -> None:
        """Keep the last frame's bytes unchanged until the request has dropped the frame."""
        self._is_lent = True

    def rewind(self) -> bool:
        """Let the next bytes be written to the front of the buffer. Returns False, and changes nothing, if received
        bytes remain, the last frame is lent, or the buffer has grown.
        """
        if self.begin != self.end or self._is_lent or self.memory.held:
            return False
        self.begin = self.end = 0
        return True

    def make_room(self) -> bool:
        """Make room for more bytes; the caller ensures that no frame of the buffer is in use, except a frame that was
        lent to a request. Returns False if no memory is available; the caller then calls again later.
        """
        if self._is_lent:
            self._is_lent = False
            if self.memory.held:
                _give_back_with(self._view.obj, self.memory.handed_over())
            size = max(INITIAL_BUFFER_BYTES, self.end - self.begin)
            self._replace(_Bytes(size))
            if size > INITIAL_BUFFER_BYTES:
                self.memory.owe(size)
        elif self.begin == self.end:
            self.begin = self.end = 0
            if len(self._view) > KEPT_BUFFER_BYTES or (self.memory.held and self.memory.is_short):
                self.give_up()
            return True
        if self._wanted or self.is_full:
            return self._make_room(self._wanted)
        return True

    def _make_room(self, frame_size: int) -> bool:
        """Move the remaining bytes to the front, and grow the buffer if that leaves no room.

        The buffer at most doubles each time, so that its size depends on the bytes received, and not on the frame size
        that a client claims.
        """
        pending = self.end - self.begin
        capacity = self._granted
        if pending == capacity and frame_size > LARGE_FRAME_BYTES:
            return self._grant_more(pending, frame_size)
        if pending == capacity:
            wanted = min(2 * capacity, max(frame_size, capacity) + READ_AHEAD_BYTES)
            if not self.memory.hold(wanted, frame_size):
                if not capacity < frame_size < wanted or not self.memory.hold(frame_size):
                    return False
                wanted = frame_size
            self._replace(_Bytes(wanted))
        elif self.begin and self.begin + max(frame_size, pending + 1) > capacity:
            self._view[:pending] = self._view[self.begin : self.end]
            self.begin, self.end = 0, pending
        return True

    def _grant_more(self, pending: int, frame_size: int) -> bool:
        """Make room for the next piece of a large frame, of which `pending` bytes have arrived."""
        wanted = min(frame_size, pending + LARGE_FRAME_BYTES)
        if not self.memory.hold(wanted, frame_size):
            return False
        if len(self._view) < frame_size:
            try:
                self._replace(mmap(-1, frame_size, flags=MAP_PRIVATE | MAP_ANONYMOUS))
            except OSError as error:
                raise FrameRefused(f"no address space for a frame of {frame_size} bytes: {error}") from error
        self._granted = wanted
        return True

    # --- methods that allocate and free the buffer --------------------------------------------------------------------

    def _replace(self, buffer: _Bytes | mmap) -> None:
        pending = self.end - self.begin
        view = memoryview(buffer)
        view[:pending] = self._view[self.begin : self.end]
        self._view, self._granted, self.begin, self.end = view, len(view), 0, pending

    def give_up(self) -> None:
        """Drop the buffer, and return its share of the memory budget; slices that are still in use keep the buffer's
        memory alive.
        """
        self._view, self._granted = memoryview(b""), 0
        self.begin = self.end = 0
        self.memory.owe(0)


def _give_back_with(buffer: object, memory: Holding) -> None:
    """Keep `memory` counted in the memory budget until no slice of `buffer` is in use. A request that is being handled
    keeps using its frame (a slice) after the connection has dropped the buffer.
    """
    loop = asyncio.get_running_loop()

    def gone() -> None:
        with suppress(RuntimeError):  # skip, because the loop has ended, and nobody uses the budget any more
            loop.call_soon_threadsafe(memory.owe, 0)  # this may run in the worker thread that released the last slice

    finalize(buffer, gone).atexit = False
