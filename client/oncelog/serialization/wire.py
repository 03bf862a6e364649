"""The Confluent wire format: the bytes that Confluent's serializers write before a payload. Pure.

00 NN NN NN NN payload the id of the schema, big-endian
00  NN NN NN NN  indexes  payload                 Protobuf: the indexes of the message in its file

The indexes are the positions of a message among its siblings, for each level from the outermost message on. The number
of indexes comes first, followed by each index, all as zigzag varints. The first message of a file, [0], is a single
zero byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from oncelog.serialization.errors import SerializationError

MAGIC: Final = 0
HEADER: Final = Struct(">bI")
MAX_INDEXES: Final = 100
"""Maximum nesting depth of a message in its file, which is also the limit of Protobuf's own compiler."""
MAX_VARINT_BYTES: Final = 5


def framed(schema_id: int, payload: bytes) -> bytes:
    """Return the payload, preceded by its schema id."""
    return HEADER.pack(MAGIC, schema_id) + payload


def unframed(data: bytes) -> tuple[int, bytes]:
    """Return the schema id and the payload. Raises SerializationError."""
    if len(data) < HEADER.size:
        raise SerializationError(f"{len(data)} bytes cannot begin with the id of a schema, which takes {HEADER.size}")
    magic, schema_id = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise SerializationError(f"the first byte is {data[0]}, where 0 stands before the id of a schema")
    return schema_id, data[HEADER.size :]


def with_indexes(indexes: Sequence[int], payload: bytes) -> bytes:
    """Return the payload of a Protobuf message, preceded by its indexes."""
    if list(indexes) == [0]:
        return b"\0" + payload
    return b"".join(map(_varint, (len(indexes), *indexes))) + payload


def without_indexes(data: bytes) -> tuple[list[int], bytes]:
    """Return the indexes and the payload of a Protobuf message. Raises SerializationError."""
    count, position = _read_varint(data, 0)
    if count == 0:
        return [0], data[position:]
    if not 0 < count <= MAX_INDEXES:
        raise SerializationError(f"the message is said to be nested {count} deep")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        indexes.append(index)
    return indexes, data[position:]


def _varint(number: int) -> bytes:
    number = number << 1  # the zigzag encoding of n is 2n, because n is not negative
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after the varint."""
    number = shift = 0
    for byte in data[position : position + MAX_VARINT_BYTES]:
        number |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise SerializationError("the indexes of a Protobuf message are cut off or too large")
