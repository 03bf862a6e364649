"""Writers of one wire value: they append its bytes to a list of parts. Record data become a separate part and are not
copied.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from oncelog_protocol.errors import UnencodableMessage

Buffer = bytes | bytearray | memoryview

MAX_STRING_BYTES: Final = 0x7FFF

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")

_ONE_BYTE: Final = tuple(bytes((i,)) for i in range(256))
"""One-byte varints of the numbers below 0x80; nearly all numbers are that small, so callers use this table before they
call `uvarint`.
"""


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _not_nullable(what: str) -> UnencodableMessage:
    return UnencodableMessage(f"None for a {what} that is not nullable in this version")


def put_nullable_string(out: list[Buffer], value: str | None) -> None:
    if value is None:
        out.append(b"\xff\xff")
    else:
        data = value.encode()
        out.append(INT16.pack(len(data)) + data)


def put_string(out: list[Buffer], value: str) -> None:
    if value is None:
        raise _not_nullable("string")
    data = value.encode()
    out.append(INT16.pack(len(data)) + data)


def put_compact_nullable_string(out: list[Buffer], value: str | None) -> None:
    if value is None:
        out.append(b"\0")
    else:
        put_compact_string(out, value)


def put_compact_string(out: list[Buffer], value: str) -> None:
    if value is None:
        raise _not_nullable("string")
    data = value.encode()
    size = len(data) + 1
    if size > MAX_STRING_BYTES + 1:
        raise UnencodableMessage(f"string of {len(data)} bytes: at most {MAX_STRING_BYTES}")
    out.append((_ONE_BYTE[size] if size < 0x80 else uvarint(size)) + data)


def put_nullable_records(out: list[Buffer], value: Buffer | None) -> None:
    if value is None:
        out.append(b"\xff\xff\xff\xff")
    else:
        out.append(INT32.pack(len(value)))
        out.append(value)


def put_records(out: list[Buffer], value: Buffer) -> None:
    if value is None:
        raise _not_nullable("bytes field")
    out.append(INT32.pack(len(value)))
    out.append(value)


def put_compact_nullable_records(out: list[Buffer], value: Buffer | None) -> None:
    if value is None:
        out.append(b"\0")
    else:
        size = len(value) + 1
        out.append(_ONE_BYTE[size] if size < 0x80 else uvarint(size))
        out.append(value)


def put_compact_records(out: list[Buffer], value: Buffer) -> None:
    if value is None:
        raise _not_nullable("bytes field")
    out.append(uvarint(len(value) + 1))
    out.append(value)


def put_array_length(out: list[Buffer], items: Any, nullable: bool) -> None:
    if items is None:
        if not nullable:
            raise _not_nullable("array")
        out.append(b"\xff\xff\xff\xff")
    else:
        out.append(INT32.pack(len(items)))


def put_compact_array_length(out: list[Buffer], items: Any, nullable: bool) -> None:
    if items is None:
        if not nullable:
            raise _not_nullable("array")
        out.append(b"\0")
    else:
        count = len(items) + 1
        out.append(_ONE_BYTE[count] if count < 0x80 else uvarint(count))


def put_tagged(out: list[Buffer], fields: list[tuple[int, bytes]]) -> None:
    """Append the tagged fields of a flexible struct: their count, then tag, size and bytes of each, in the order of the
    tags.
    """
    count = len(fields)
    out.append(_ONE_BYTE[count] if count < 0x80 else uvarint(count))
    for tag, data in fields:
        size = len(data)
        head = _ONE_BYTE[tag] if tag < 0x80 else uvarint(tag)
        out.append(head + (_ONE_BYTE[size] if size < 0x80 else uvarint(size)) + data)
