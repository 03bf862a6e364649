"""The four codecs of Kafka's batches, with a limit on the memory that decompression may use.

This module avoids three traps; a test covers each of them. Java's reader refuses LZ4 frames with linked blocks, which
most libraries write by default. Java writes Snappy in xerial's framing and other clients write raw Snappy, so both must
be read (T19). The size after decompression is known only by decompressing, so the output buffer grows up to the
caller's limit.

The library cramjam implements all four codecs. It is imported at first use, so that a broker whose clients do all
compression and decompression saves the time of the import.
"""

from __future__ import annotations

import io
import mmap
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from oncelog_protocol.records.batch import Buffer, CorruptBatch

Decompressor = Callable[[Buffer, bytearray | mmap.mmap], int]
"""Type of a function that decompresses its first argument into its second argument, and returns the number of
decompressed bytes.
"""


class RecordsTooLarge(CorruptBatch):
    """Raised if the records exceed the reader's own limit of decompressed bytes; the records may still be valid."""


class Compression(IntEnum):
    """The codec of a batch: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LZ4_FAST_LEVEL: Final = 0
"""Level of the fast LZ4 compressor, which is Java's default too; levels from 3 on are LZ4-HC, which is several times
slower.
"""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01"
"""Header of xerial's framing: magic number, version 1, and 1 as the lowest version that a reader needs. The blocks
follow, each as an int32 length and raw Snappy data. """
XERIAL_BLOCK_SIZE: Final = 32 * 1024
"""Uncompressed bytes in each block that oncelog writes; snappy-java's default."""

SNAPPY_MAX_RATIO: Final = 22
"""Largest expansion of Snappy: its densest element copies 64 bytes with 3, so a block that claims more than 22 times
its size is invalid.
"""

MAX_EXPANSION: Final = (1, 1032, SNAPPY_MAX_RATIO, 255, 32 * 1024)
"""The maximum number of decompressed bytes for one compressed byte, by codec number. Deflate can decompress two bits to
258 bytes, LZ4 one length byte to 255 bytes, and zstd four bytes to a block of 128 KB.
"""

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_MAX_HEADER: Final = 18
ZSTD_SINGLE_SEGMENT: Final = 0x20
ZSTD_WINDOW: Final = 8 * 1024 * 1024
"""Bytes of the window that every decoder must support (RFC 8878, 3.1.1.1.2)."""
ZSTD_MAX_FRAMES: Final = 64
"""Maximum number of frames whose windows are read; for data with more frames, a large window is assumed. Kafka's
clients write one frame.
"""
FIRST_CAPACITY: Final = 16 * 1024
CAPACITY_FACTOR: Final = 4
"""The first output buffer has four times the size of the input; each further buffer is four times larger, so all
unsuccessful attempts together cost at most a third of the last attempt.
"""
SCRATCH_FROM: Final = 8 * 1024 * 1024
"""If an output buffer would have more bytes than this, it gets the maximum size that the caller allows instead. Such a
buffer reserves address space, and uses memory only for the pages that are written.
"""
PIECE: Final = 1024 * 1024
"""Number of bytes that are copied out of a large output buffer in one step; the memory of the copied bytes is then
released.
"""
OUTPUT_FULL: Final = "failed to write whole buffer"
"""The message with which cramjam (Rust's standard library) reports that the output buffer is too small, while the input
may be valid.
"""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` as one compressed block that Java, librdkafka and every other client can read.

    `level` is in the codec's own scale, None means the codec's default; Snappy has no levels and ignores `level`.
    """
    if codec is Compression.NONE:
        return bytes(data)
    import cramjam

    if codec is Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    if codec is Compression.SNAPPY:
        return _compress_xerial(data)
    if codec is Compression.LZ4:
        # Java reads only independent blocks. A content checksum is not needed, because the batch has a CRC.
        compressor = cramjam.lz4.Compressor(
            level=LZ4_FAST_LEVEL if level is None else level, content_checksum=False, block_linked=False
        )
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    return bytes(cramjam.zstd.compress(data, level))


def decompress(codec: int, data: Buffer, *, max_bytes: int) -> bytes:
    """Return the decompressed data, if it is at most `max_bytes` long.

    Raises CorruptBatch for an unknown codec and for data of another codec, and RecordsTooLarge for more than
    `max_bytes`. `max_bytes` limits the memory, whatever the data claim; a window of at most ZSTD_WINDOW is added.
    """
    if codec == Compression.NONE:
        if len(data) > max_bytes:
            raise RecordsTooLarge(f"{len(data)} bytes of records, the limit is {max_bytes}")
        return bytes(data)
    import cramjam

    if codec == Compression.GZIP:
        return _decompress_growing(cramjam.gzip.decompress_into, data, max_bytes)
    if codec == Compression.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec == Compression.LZ4:
        return _decompress_growing(cramjam.lz4.decompress_into, data, max_bytes)
    if codec == Compression.ZSTD:
        return _decompress_growing(cramjam.zstd.decompress_into, data, _zstd_output(data, max_bytes))
    raise CorruptBatch(f"compression codec {codec} is not known")


def _zstd_output(data: Buffer, max_bytes: int) -> int:
    """Return the number of bytes to which the data may decompress, so that the output and the decoder's window together
    use at most `max_bytes`.

    The decoder's window is a copy of the last output and has the size that the frame declares. If that size is above
    ZSTD_WINDOW, half of `max_bytes` is reserved for the window. The data may have several frames, so a further frame is
    assumed wherever the magic number of a frame occurs.
    """
    packed = bytes(data)
    position, frames = 0, 0
    while position >= 0 and frames < ZSTD_MAX_FRAMES and _zstd_window(packed, position) <= ZSTD_WINDOW:
        position = packed.find(ZSTD_MAGIC, position + len(ZSTD_MAGIC))
        frames += 1
    return max_bytes if position < 0 else max(max_bytes // 2, min(max_bytes, ZSTD_WINDOW))


def _zstd_window(packed: bytes, position: int) -> int:
    """Return the number of output bytes that the decoder of this frame must keep (RFC 8878, 3.1.1.1)."""
    header = packed[position : position + ZSTD_MAX_HEADER].ljust(ZSTD_MAX_HEADER, b"\x00")
    descriptor = header[4]
    if not descriptor & ZSTD_SINGLE_SEGMENT:
        exponent, eighths = divmod(header[5], 8)
        return (1024 << exponent) * (8 + eighths) // 8
    size_bytes, dictionary_bytes = 1 << (descriptor >> 6), (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(header[5 + dictionary_bytes :][:size_bytes], "little")


def _decompress_growing(decompress_into: Decompressor, data: Buffer, max_bytes: int) -> bytes:
    """Decompress into increasingly large buffers, up to `max_bytes`."""
    capacity = min(max_bytes, max(len(data) * CAPACITY_FACTOR, FIRST_CAPACITY))
    while capacity <= SCRATCH_FROM:
        output = bytearray(capacity)
        size = _decompressed(decompress_into, data, output)
        if size is not None:
            return bytes(memoryview(output)[:size])
        if capacity == max_bytes:
            raise RecordsTooLarge(f"more than {max_bytes} bytes after decompression")
        capacity = min(max_bytes, capacity * CAPACITY_FACTOR)
        del output
    with _scratch(max_bytes) as scratch:
        size = _decompressed(decompress_into, data, scratch)
        if size is None:
            raise RecordsTooLarge(f"more than {max_bytes} bytes after decompression")
        return _taken_out(scratch, size)


def _decompressed(decompress_into: Decompressor, data: Buffer, output: bytearray | mmap.mmap) -> int | None:
    """Return the number of decompressed bytes in `output`; None if they do not fit. Raises CorruptBatch."""
    import cramjam

    try:
        return decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if OUTPUT_FULL not in str(error):
            raise CorruptBatch(f"cannot be decompressed: {error}") from None
        return None


def _scratch(size: int) -> mmap.mmap:
    """Return an output buffer that reserves address space and uses memory only for the pages that are written. Raises
    RecordsTooLarge.
    """
    try:
        if sys.platform == "win32":
            return mmap.mmap(-1, size)
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise RecordsTooLarge(f"no address space for the {size} bytes that are allowed: {error}") from None


def _taken_out(scratch: mmap.mmap, size: int) -> bytes:
    """Copy the first `size` bytes piece by piece, so that two full copies never exist."""
    result = io.BytesIO()
    with memoryview(scratch) as view:
        for start in range(0, size, PIECE):
            with view[start : min(start + PIECE, size)] as piece:
                result.write(piece)
            if sys.platform == "linux":
                scratch.madvise(mmap.MADV_DONTNEED, start, min(PIECE, len(scratch) - start))
    return result.getvalue()


def _compress_xerial(data: Buffer) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_SIZE):
        block = bytes(snappy.compress_raw(view[start : start + XERIAL_BLOCK_SIZE]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return bytes(_decompress_snappy_block(view, max_bytes))
    if len(view) < len(XERIAL_HEADER):
        raise CorruptBatch("xerial Snappy header is cut")
    output = io.BytesIO()
    position, end = len(XERIAL_HEADER), len(view)
    while position < end:
        block_start = position + 4
        block_end = block_start + int.from_bytes(view[position:block_start], "big")
        if block_end > end:
            raise CorruptBatch(f"xerial Snappy block at byte {position} ends {block_end - end} bytes after the data")
        output.write(_decompress_snappy_block(view[block_start:block_end], max_bytes - output.tell()))
        position = block_end
    return output.getvalue()


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytearray:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * SNAPPY_MAX_RATIO:
            raise CorruptBatch(f"Snappy block of {len(block)} bytes claims {size} bytes")
        if size > max_bytes:
            raise RecordsTooLarge(f"Snappy block claims {size} bytes, {max_bytes} are allowed")
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"not Snappy data: {error}") from None
    if written != size:
        raise CorruptBatch(f"Snappy block claims {size} bytes and holds {written}")
    return output
