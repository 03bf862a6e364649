"""The prefix that Confluent's serializers write before a value: a zero byte, and the schema id. Pure.

00  NN NN NN NN  payload          (the id is big-endian)
"""

from __future__ import annotations

from struct import Struct
from typing import Final

MAGIC: Final = 0
HEADER: Final = Struct(">bI")


class InvalidValue(ValueError):
    """Bytes that are not of the format that they should have."""


def unframed(value: bytes) -> tuple[int, bytes]:
    """The schema's number and the payload. Raises InvalidValue."""
    if len(value) < HEADER.size:
        raise InvalidValue(f"{len(value)} bytes have no number of a schema before them")
    magic, number = HEADER.unpack_from(value)
    if magic != MAGIC:
        raise InvalidValue(f"begins with {value[0]}, where Confluent's serializers write 0 and a schema's number")
    return number, value[HEADER.size :]


def framed(number: int, payload: bytes) -> bytes:
    """The other way round."""
    return HEADER.pack(MAGIC, number) + payload
