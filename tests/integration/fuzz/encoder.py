"""Encodes a request by walking its declaration; it is slower than the codec, and can encode invalid data.

The encoder shares only the declarations with the codec, so a comparison of the two checks both (a unit test compares
them). The encoder can write values that the codec refuses: a forbidden null, an array with one element sixty thousand
times, a wrong length, unknown tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oncelog_protocol.api import ApiKey, request_header_version, request_type
from oncelog_protocol.schema import FieldSchema, fields_of, schema_of

FORMATS = {
    "boolean": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}
UUID_SIZE = 16


@dataclass(frozen=True, slots=True)
class Raw:
    """Encoded bytes that the encoder writes in place of the value of a field."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Repeated:
    """An array that repeats one element; `said` is the element count that the encoder writes, by default the true
    count.
    """

    element: Any
    count: int
    said: int | None = None


def uvarint(value: int) -> bytes:
    """Encode a varint of up to 64 bits, more than the protocol allows."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Encoder:
    """Encodes requests of one API at one version. `tags` maps the id of a struct object to bytes that replace its
    tagged fields, including their count.
    """

    def __init__(self, key: ApiKey, version: int, tags: Mapping[int, bytes] | None = None) -> None:
        self.key = key
        self.version = version
        self.cls = request_type(key)
        self.flexible = schema_of(self.cls).flexible
        self.tags = tags or {}

    def frame(self, request: Any, correlation_id: int, client_id: str | None, header_tags: bytes = b"\x00") -> bytes:
        """Return the frame with its size. `header_tags` are written into the header if the header has tagged fields."""
        header = struct.pack(">hhi", self.key, self.version, correlation_id) + sized(client_id, ">h")
        if request_header_version(self.key, self.version) >= 2:
            header += header_tags
        body = header + self.struct(self.cls, request)
        return struct.pack(">i", len(body)) + body

    def struct(self, cls: type, value: Any) -> bytes:
        parts, tagged = [], []
        for field in fields_of(cls):
            if self.version not in field.versions:
                continue
            member = getattr(value, field.name)
            if self.version not in field.tagged:
                parts.append(self._value(field, member))
            elif member != field.default:
                tagged.append((field.tag or 0, self._value(field, member)))
        if self.version in self.flexible:
            parts.append(self.tags.get(id(value)) or tag_section(sorted(tagged)))
        return b"".join(parts)

    def _value(self, field: FieldSchema, value: Any) -> bytes:
        if isinstance(value, Raw):
            return value.data
        kind = field.type_name
        is_compact = self.version in (self.flexible if field.flexible is None else field.flexible)
        if kind in FORMATS:
            return struct.pack(FORMATS[kind], value)
        if kind == "uuid":
            return bytes(value)
        if kind == "struct":
            return self._nested(field, value)
        if kind == "array":
            return self._array(field, value, is_compact)
        return sized(value, None if is_compact else ">h" if kind == "string" else ">i")

    def element(self, field: FieldSchema, value: Any) -> bytes:
        """Encode one element of an array."""
        assert field.element is not None
        return self._value(field.element, value)

    def _nested(self, field: FieldSchema, value: Any) -> bytes:
        assert field.struct is not None
        if not is_nullable(field, self.version):
            return self.struct(field.struct, value)
        return b"\xff" if value is None else b"\x01" + self.struct(field.struct, value)

    def _array(self, field: FieldSchema, value: Any, is_compact: bool) -> bytes:
        assert field.element is not None
        if value is None:
            return b"\x00" if is_compact else b"\xff\xff\xff\xff"
        if isinstance(value, Repeated):
            count = value.count if value.said is None else value.said
            return length(count, is_compact) + self._value(field.element, value.element) * value.count
        return length(len(value), is_compact) + b"".join(self._value(field.element, element) for element in value)


def is_nullable(field: FieldSchema, version: int) -> bool:
    return version in field.nullable


def length(count: int, is_compact: bool) -> bytes:
    """Encode the length of an array, which may be wrong."""
    return uvarint((count + 1) % (1 << 32)) if is_compact else struct.pack(">i", count)


def sized(value: Any, size_format: str | None) -> bytes:
    """Encode a string or bytes after the length; `length_format` None means a compact length (a varint)."""
    if value is None:
        return b"\x00" if size_format is None else struct.pack(size_format, -1)
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
    return (uvarint(len(data) + 1) if size_format is None else struct.pack(size_format, len(data))) + data


def tag_section(tagged: list[tuple[int, bytes]]) -> bytes:
    """Encode the tagged fields in the given order, which may be wrong."""
    parts = [uvarint(len(tagged))]
    for tag, data in tagged:
        parts += (uvarint(tag), uvarint(len(data)), data)
    return b"".join(parts)
