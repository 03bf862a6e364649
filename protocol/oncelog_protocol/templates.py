"""Byte templates of messages that are encoded often and differ only in their records or in some int64 fields.

No message is hard-coded: a field is located by encoding the declared message (`codec`) with two different values. If a
declaration changes, its templates change, too, or no longer exist.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from oncelog_protocol.codec import MessageCodec, wire_type
from oncelog_protocol.errors import UnencodableMessage
from oncelog_protocol.schema import FieldSchema, Records, fields_of, schema_of
from oncelog_protocol.wire import Sized

ReadRecords = Callable[[memoryview, int, int], tuple[memoryview | None, int]]
"""(buffer, position, end) -> (records as a slice of the buffer, next position); see `wire_readers`."""

_INT64: Final = Struct(">q")
_PROBES: Final = (0x5555_5555_5555_5555, 0x2AAA_AAAA_AAAA_AAAA)
"""Two int64 that differ in each of their bytes."""


class NoTemplate(ValueError):
    """The message, in this version, has no such places."""


class Around(NamedTuple):
    """The bytes before and after the variable part."""

    head: bytes
    tail: bytes


def around_records(codec: MessageCodec[Any], message: Any, records: Records) -> Around:
    """The bytes around `records`, the value of a field of `message`: the head ends before its length. NoTemplate."""
    parts = codec.encode_parts(message)
    place = next((number for number, part in enumerate(parts) if part is records), None)
    if place is None:
        raise NoTemplate(f"{codec.cls.__name__} v{codec.version}: these records are not in the message")
    return Around(b"".join(parts[: place - 1]), b"".join(parts[place + 1 :]))


def records_reader(cls: type, version: int) -> ReadRecords:
    """The reader of the only field of records that a message has in this version. NoTemplate."""
    found = list(_record_fields(cls, version))
    if len(found) != 1:
        raise NoTemplate(f"{cls.__name__} v{version} has {len(found)} fields of records")
    kind = wire_type(found[0], version, schema_of(cls).flexible)
    assert isinstance(kind, Sized)
    reader: ReadRecords = kind.reader
    return reader


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


def around_int64s(codec: MessageCodec[Any], message: Any, owner: Any, names: tuple[str, ...]) -> Around:
    """The bytes around the int64 fields `names` of `owner`, a part of `message`, which are adjacent. NoTemplate: this
    version does not have them all, or has something in between."""
    whole = codec.encode(message)
    begin = end = -1
    for name in names:
        place = _place_of_int64(codec, message, owner, name)
        if end not in (-1, place):
            raise NoTemplate(f"{codec.cls.__name__} v{codec.version}: {name} is not right behind the field before it")
        begin = place if begin < 0 else begin
        end = place + _INT64.size
    return Around(whole[:begin], whole[end:])


def _place_of_int64(codec: MessageCodec[Any], message: Any, owner: Any, name: str) -> int:
    """Where the field lies: where two encodings differ that have other values in it."""
    kept, probes = getattr(owner, name), list[bytes]()
    try:
        for probe in _PROBES:
            setattr(owner, name, probe)
            probes.append(codec.encode(message))
    except UnencodableMessage as error:
        raise NoTemplate(f"{name} is no int64: {error}") from error
    finally:
        setattr(owner, name, kept)
    first, second = probes
    if len(first) != len(second):
        raise NoTemplate(f"{codec.cls.__name__} v{codec.version}: {name} is not of fixed size")
    differing = [place for place, (one, other) in enumerate(zip(first, second, strict=True)) if one != other]
    if len(differing) != _INT64.size or differing[-1] - differing[0] != _INT64.size - 1:
        raise NoTemplate(f"{codec.cls.__name__} v{codec.version}: {name} is no int64 in this version")
    return differing[0]
