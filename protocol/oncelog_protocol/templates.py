"""Byte templates of messages that are encoded often and differ only in their records or in fixed-size fields.

No message format is hard-coded: a field is located by encoding the declared message (`codec`) with two different
values. If the declaration of a message changes, its templates change too, or NoTemplate is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import calcsize
from typing import Any, Final, NamedTuple

from oncelog_protocol.codec import MessageCodec, wire_type
from oncelog_protocol.schema import FieldSchema, Records, fields_of, schema_of
from oncelog_protocol.wire import Sized
from oncelog_protocol.wire_writers import Buffer

ReadRecords = Callable[[memoryview, int, int], tuple[memoryview | None, int]]
"""Type of a function that reads a records field: it takes a buffer, a position and the end, and returns the records as
a slice of the buffer, and the next position (see `wire_readers`).
"""
WriteRecords = Callable[[list[Buffer], Records], None]
"""Type of a function that writes a records field: it takes the parts of a message and the records, and appends the
length of the records and the records to the parts (see `wire_writers`).
"""

_FIXED: Final = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}
"""Maps the name of a fixed-size type to its code in the formats of the module `struct`."""
_PROBES: Final = (0x55, 0x2A)
"""Two byte values. A number whose bytes all have the first value differs in every byte from a number whose bytes all
have the second value.
"""


class NoTemplate(ValueError):
    """Raised if no template is possible, because the message does not have the fields in this version."""


class Around(NamedTuple):
    """The constant bytes of a message before and after its records."""

    head: bytes
    tail: bytes


class Pattern(NamedTuple):
    """The bytes of a message with some changing fields: constant bytes and changing fields alternate, beginning and
    ending with constant bytes, which may be empty.
    """

    format: str
    """Format of the pattern for `struct.Struct`, without the leading character for the byte order."""
    kept: tuple[bytes, ...]

    def behind(self, head: bytes) -> Pattern:
        """Return the pattern of the same bytes with the constant bytes `head` before them."""
        first, *others = self.kept
        _, fields = self.format.split("s", 1)
        return Pattern(f"{len(head) + len(first)}s{fields}", (head + first, *others))


def around_records(codec: MessageCodec[Any], message: Any, records: Records) -> Around:
    """Return the constant bytes before and after `records`, which must be the value of a field of `message`. The bytes
    before end in front of the length of the records. Raises NoTemplate.
    """
    parts = codec.encode_parts(message)
    place = next((number for number, part in enumerate(parts) if part is records), None)
    if place is None:
        raise NoTemplate(f"{codec.cls.__name__} v{codec.version}: these records are not in the message")
    return Around(b"".join(parts[: place - 1]), b"".join(parts[place + 1 :]))


def records_reader(cls: type, version: int) -> ReadRecords:
    """Return the reader of the only records field that a message has in this version. Raises NoTemplate."""
    reader: ReadRecords = _records_type(cls, version).reader
    return reader


def records_writer(cls: type, version: int) -> WriteRecords:
    """Return the writer of the only records field that a message has in this version. Raises NoTemplate."""
    writer: WriteRecords = _records_type(cls, version).writer
    return writer


def _records_type(cls: type, version: int) -> Sized:
    found = list(_record_fields(cls, version))
    if len(found) != 1:
        raise NoTemplate(f"{cls.__name__} v{version} has {len(found)} fields of records")
    kind = wire_type(found[0], version, schema_of(cls).flexible)
    assert isinstance(kind, Sized)
    return kind


def _record_fields(cls: type, version: int) -> list[FieldSchema]:
    found: list[FieldSchema] = []
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        if field.type_name == "records":
            found.append(field)
        elif field.struct is not None:
            found += _record_fields(field.struct, version)
    return found


def changing(encode: Callable[[], bytes], *places: tuple[Any, str]) -> Pattern:
    """Return the pattern of the bytes that `encode` returns. `places` are the changing fields, as pairs of an owner (a
    part of the message) and a field name, in the order of the bytes. Raises NoTemplate if a field is not of fixed size,
    does not exist in this version, or does not follow the preceding field.
    """
    whole, kept, formats, end = encode(), list[bytes](), list[str](), 0
    for owner, name in places:
        code = _FIXED.get(_type_of(owner, name))
        if code is None:
            raise NoTemplate(f"{type(owner).__name__}.{name} is not of fixed size")
        begin = _place_of(encode, owner, name, code, len(whole))
        if begin < end:
            raise NoTemplate(f"{type(owner).__name__}.{name} is not behind the field before it")
        kept.append(whole[end:begin])
        formats.append(f"{begin - end}s{code}")
        end = begin + calcsize(code)
    kept.append(whole[end:])
    return Pattern("".join([*formats, f"{len(whole) - end}s"]), tuple(kept))


def _type_of(owner: Any, name: str) -> str:
    return next((field.type_name for field in fields_of(type(owner)) if field.name == name), "none")


def _place_of(encode: Callable[[], bytes], owner: Any, name: str, code: str, whole_bytes: int) -> int:
    """Return the position of the field in a message of `whole_bytes`: the position of the bytes that differ when the
    message is encoded with two different values of the field.
    """
    kept, probes, size = getattr(owner, name), list[bytes](), calcsize(code)
    try:
        for probe in _PROBES:
            setattr(owner, name, int.from_bytes(bytes([probe]) * size, "big"))
            probes.append(encode())
    finally:
        setattr(owner, name, kept)
    first, second = probes
    if len(first) == len(second) == whole_bytes:
        differing = [place for place, (one, other) in enumerate(zip(first, second, strict=True)) if one != other]
        if len(differing) == size and differing[-1] - differing[0] == size - 1:
            return differing[0]
    raise NoTemplate(f"{type(owner).__name__}.{name} is not there in this version, or not of {size} bytes")
