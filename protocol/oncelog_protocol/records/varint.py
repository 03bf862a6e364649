"""Zig-zag variable-length integers, as used in records: 1 to 5 bytes for an int32, 1 to 10 bytes for an int64.

Zig-zag maps 0, -1, 1, -2, ... to 0, 1, 2, 3, ..., so that small negative numbers, such as -1 for null, stay short. Each
byte holds seven bits, the lowest bits first; the top bit says that another byte follows. The source is Kafka's
ByteUtils; see also T13.
"""

from __future__ import annotations

from typing import Final

from oncelog_protocol.records.batch import Buffer, CorruptBatch

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10
ONE_BYTE: Final = 1 << 6
TWO_BYTES: Final = 1 << 13
"""The smallest non-negative numbers whose varints have two and three bytes."""


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the int32 at `position` and the position after it. Raises CorruptBatch if the varint is cut off, too long
    or out of range.
    """
    return _read(buffer, position, MAX_VARINT_BYTES, 32)


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the int64 at `position` and the position after it. Raises CorruptBatch if the varint is cut off, too long
    or out of range.
    """
    return _read(buffer, position, MAX_VARLONG_BYTES, 64)


def _read(buffer: Buffer, position: int, max_bytes: int, bits: int) -> tuple[int, int]:
    zigzag = shift = 0
    end = min(len(buffer), position + max_bytes)
    for index in range(position, end):
        byte = buffer[index]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag >> bits:
                raise CorruptBatch(f"variable-length integer at byte {position} does not fit {bits} bits")
            return (zigzag >> 1) ^ -(zigzag & 1), index + 1
        shift += 7
    if end - position < max_bytes:
        raise CorruptBatch(f"variable-length integer at byte {position} is cut by the end of the data")
    raise CorruptBatch(f"variable-length integer at byte {position} is longer than {max_bytes} bytes")


def encode_varint(value: int) -> bytes:
    """Return `value` in 1 to 5 bytes. Raises ValueError for a value outside int32."""
    if ONE_BYTE <= value < TWO_BYTES:  # two-byte case: lengths and offsets in large batches
        return bytes(((value << 1) & 0x7F | 0x80, value >> 6))
    return _encode(value, 32)


def encode_varlong(value: int) -> bytes:
    """Return `value` in 1 to 10 bytes. Raises ValueError for a value outside int64."""
    return _encode(value, 64)


def _encode(value: int, bits: int) -> bytes:
    zigzag = (value << 1) ^ (value >> (bits - 1))
    if zigzag < 0 or zigzag >> bits:
        raise ValueError(f"{value} does not fit an int{bits}")
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)
