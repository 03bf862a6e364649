"""Splits a byte stream into frames; a frame is an int32 size, followed by that number of bytes.

The socket writes received bytes directly into the buffers of this module. Small frames pass through a scratch buffer
and are copied out of it. A large frame gets its
own buffer as soon as its size is known, and its remaining bytes are received without a copy. Later data therefore never
overwrite a frame, and the records of a response may be used as slices of its frame.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

SIZE: Final = Struct(">i")
SCRATCH_BYTES: Final = 64 * 1024


class FrameTooLarge(ValueError):
    """Raised if the size in front of a frame is negative or above the limit, because the peer then does not speak the
    Kafka protocol.
    """


class FrameReader:
    """Collects received bytes into frames. `get_buffer` returns the buffer to receive into; `received` takes the number
    of received bytes and returns completed frames.

    Invariant: either a large frame is being filled (`_frame`), or the scratch buffer starts with the `_held` bytes
    received of an incomplete frame.
    """

    __slots__ = ("_filled", "_frame", "_held", "_max_frame_bytes", "_scratch")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._held = 0
        self._frame: memoryview | None = None
        self._filled = 0

    def get_buffer(self) -> memoryview:
        """Return a buffer with room for at least one byte."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._scratch[self._held :]

    def received(self, size: int) -> list[memoryview]:
        """Process `size` bytes that were written to the buffer; return the completed frames. Raises FrameTooLarge,
        after which the stream is unusable.
        """
        frame = self._frame
        if frame is not None:
            self._filled += size
            if self._filled < len(frame):
                return []
            self._frame = None
            return [frame]
        return self._split(self._held + size)

    def _split(self, end: int) -> list[memoryview]:
        scratch, position = self._scratch, 0
        frames = []
        while end - position >= SIZE.size:
            (size,) = SIZE.unpack_from(scratch, position)
            if not 0 <= size <= self._max_frame_bytes:
                raise FrameTooLarge(f"a frame of {size} bytes: must be from 0 to {self._max_frame_bytes}")
            start = position + SIZE.size
            position = start + size
            if position <= end:
                frames.append(memoryview(bytes(scratch[start:position])))
                continue
            frame = memoryview(bytearray(size))
            self._filled = end - start
            frame[: self._filled] = scratch[start:end]
            self._frame = frame
            self._held = 0
            return frames
        self._held = end - position
        if position and self._held:
            scratch[: self._held] = bytes(scratch[position:end])
        return frames
