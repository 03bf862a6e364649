"""`codec(ProduceRequest, 9)` encodes and decodes one version of one message.

For each version, the declaration of a message is converted to a tree of `wire` constructs. The tree is compiled to one
straight-line Python function for encoding and one for decoding: consecutive fixed-size fields become one unpack, arrays
become inline loops, and record data stay a slice.
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, TypeVar

from oncelog_protocol.errors import MalformedMessage, UnencodableMessage
from oncelog_protocol.schema import FieldSchema, fields_of, schema_of
from oncelog_protocol.versions import VersionRange
from oncelog_protocol.wire import PRIMITIVES, SIZED, Array, Emitter, Fixed, WireReader, WireType, WireWriter
from oncelog_protocol.wire_readers import (
    MAX_ELEMENTS,
    MAX_TAGS,
    check_tag_end,
    read_presence,
    read_tag,
    read_uvarint,
    too_many_tags,
)
from oncelog_protocol.wire_writers import Buffer, put_tagged

M = TypeVar("M")

_new: Final = object.__new__
DECODING_ERRORS: Final = (MalformedMessage, struct_module.error, IndexError, UnicodeDecodeError)
ENCODING_ERRORS: Final = (UnencodableMessage, struct_module.error, AttributeError, TypeError, UnicodeEncodeError)


class Entity(WireType):
    """A message or struct at one version: its fields in order, followed by its tagged fields if the version is
    flexible.
    """

    def __init__(self, cls: type, version: int, flexible: VersionRange) -> None:
        super().__init__()
        self.cls = cls
        self.is_flexible = version in flexible
        self.plain: list[tuple[FieldSchema, WireType]] = []
        self.tagged: list[tuple[FieldSchema, WireType]] = []
        self.absent: list[FieldSchema] = []
        for field in fields_of(cls):
            if version not in field.versions:
                self.absent.append(field)
            elif version in field.tagged:
                self.tagged.append((field, wire_type(field, version, flexible)))
            else:
                self.plain.append((field, wire_type(field, version, flexible)))
        for field in [*self.absent, *(tagged for tagged, _ in self.tagged)]:
            if not field.has_default:
                raise TypeError(f"{cls.__qualname__}.{field.name} needs a default: version {version} may not carry it")
        self.tagged.sort(key=lambda pair: pair[0].tag or 0)
        self.min_size = sum(kind.min_size for _, kind in self.plain) + self.is_flexible

    # interpreted

    def _parse(self, stream: WireReader, context: Any, path: Any) -> Any:
        result: Any = _new(self.cls)
        for field in self.absent:
            setattr(result, field.name, default_value(field))
        for field, kind in self.plain:
            setattr(result, field.name, kind._parse(stream, context, path))
        for field, _ in self.tagged:
            setattr(result, field.name, default_value(field))
        if self.is_flexible:
            self._parse_tags(result, stream, context, path)
        return result

    def _parse_tags(self, result: Any, stream: WireReader, context: Any, path: Any) -> None:
        count, stream.position = read_uvarint(stream.buffer, stream.position)
        if count > stream.budget or count > MAX_TAGS:
            raise too_many_tags(count)
        stream.budget -= count
        known = {field.tag: (field, kind) for field, kind in self.tagged}
        tag = -1
        for _ in range(count):
            tag, stream.position, stop = read_tag(stream.buffer, stream.position, stream.end, tag)
            if tag in known:
                field, kind = known[tag]
                setattr(result, field.name, kind._parse(stream, context, path))
                check_tag_end(tag, stream.position, stop)
            else:
                stream.position = stop

    def _build(self, obj: Any, stream: WireWriter, context: Any, path: Any) -> Any:
        for field, kind in self.plain:
            kind._build(getattr(obj, field.name), stream, context, path)
        if self.is_flexible:
            tags = []
            for field, kind in self.tagged:
                value = getattr(obj, field.name)
                if value != field.default:
                    part = WireWriter()
                    kind._build(value, part, context, path)
                    tags.append((field.tag or 0, b"".join(part.parts)))
            put_tagged(stream.parts, tags)
        return obj

    # generated

    def emit_parse(self, emit: Emitter, target: str) -> None:
        result = emit.name("struct")
        emit.line(f"{result} = {emit.constant('new', _new)}({emit.constant('cls', self.cls)})")
        emit.line(f"{target} = {result}")
        for field in [*self.absent, *(tagged for tagged, _ in self.tagged)]:
            emit.line(f"{result}.{field.name} = {_default_expression(emit, field)}")
        for run in _runs(self.plain):
            if isinstance(run, list):
                packer = struct_module.Struct(">" + "".join(str(kind.format) for _, kind in run))
                targets = ", ".join(f"{result}.{field.name}" for field, _ in run)
                emit.line(f"{targets}, = {emit.constant('unpack', packer.unpack_from)}(buf, pos); pos += {packer.size}")
            else:
                run[1].emit_parse(emit, f"{result}.{run[0].name}")
        if self.is_flexible:
            self._emit_parse_tags(emit, result)

    def _emit_parse_tags(self, emit: Emitter, result: str) -> None:
        count, tag, stop = emit.name("tags"), emit.name("tag"), emit.name("stop")
        with emit.block("if buf[pos] == 0:"):  # the usual case, a struct without tagged fields, needs no call
            emit.line("pos += 1")
        with emit.block("else:"):
            emit.line(f"{count}, pos = {emit.function(read_uvarint)}(buf, pos)")
            with emit.block(f"if {count} > budget or {count} > {MAX_TAGS}:"):
                emit.line(f"raise {emit.function(too_many_tags)}({count})")
            emit.line(f"budget -= {count}")
            emit.line(f"{tag} = -1")
            with emit.block(f"for _ in range({count}):"):
                emit.line(f"{tag}, pos, {stop} = {emit.function(read_tag)}(buf, pos, end, {tag})")
                for field, kind in self.tagged:
                    with emit.block(f"if {tag} == {field.tag}:"):
                        kind.emit_parse(emit, f"{result}.{field.name}")
                        emit.line(f"{emit.function(check_tag_end)}({tag}, pos, {stop})")
                emit.line(f"pos = {stop}")

    def emit_build(self, emit: Emitter, value: str) -> None:
        for run in _runs(self.plain):
            if isinstance(run, list):
                packer = struct_module.Struct(">" + "".join(str(kind.format) for _, kind in run))
                values = ", ".join(
                    kind.emit_value(emit, f"{value}.{field.name}") for field, kind in run if isinstance(kind, Fixed)
                )
                emit.line(f"{emit.out}.append({emit.constant('pack', packer.pack)}({values}))")
            else:
                run[1].emit_build(emit, f"{value}.{run[0].name}")
        if not self.is_flexible:
            return
        if not self.tagged:
            emit.line(f"{emit.out}.append(b'\\0')")
            return
        tags, part, outer = emit.name("tags"), emit.name("part"), emit.out
        emit.line(f"{tags} = []")
        for field, kind in self.tagged:
            with emit.block(f"if {value}.{field.name} != {_default_expression(emit, field)}:"):
                emit.line(f"{part} = []")
                emit.out = part
                kind.emit_build(emit, f"{value}.{field.name}")
                emit.out = outer
                emit.line(f"{tags}.append(({field.tag}, b''.join({part})))")
        emit.line(f"{emit.function(put_tagged)}({outer}, {tags})")


class NullableStruct(WireType):
    """A struct after a marker byte: 1 means present, -1 means null."""

    min_size = 1

    def __init__(self, entity: Entity) -> None:
        super().__init__()
        self.entity = entity

    def _parse(self, stream: WireReader, context: Any, path: Any) -> Any:
        present, stream.position = read_presence(stream.buffer, stream.position)
        return self.entity._parse(stream, context, path) if present else None

    def _build(self, obj: Any, stream: WireWriter, context: Any, path: Any) -> Any:
        stream.parts.append(b"\xff" if obj is None else b"\x01")
        if obj is not None:
            self.entity._build(obj, stream, context, path)
        return obj

    def emit_parse(self, emit: Emitter, target: str) -> None:
        present = emit.name("present")
        emit.line(f"{present}, pos = {emit.function(read_presence)}(buf, pos)")
        with emit.block(f"if {present}:"):
            self.entity.emit_parse(emit, target)
        with emit.block("else:"):
            emit.line(f"{target} = None")

    def emit_build(self, emit: Emitter, value: str) -> None:
        item = emit.name("item")
        emit.line(f"{item} = {value}")
        with emit.block(f"if {item} is None:"):
            emit.line(f"{emit.out}.append(b'\\xff')")
        with emit.block("else:"):
            emit.line(f"{emit.out}.append(b'\\x01')")
            self.entity.emit_build(emit, item)


def wire_type(field: FieldSchema, version: int, flexible: VersionRange) -> WireType:
    """Return the construct that encodes and decodes one field at one version."""
    compact = version in (flexible if field.flexible is None else field.flexible)
    nullable = version in field.nullable
    if field.type_name in PRIMITIVES:
        return PRIMITIVES[field.type_name]
    if field.type_name == "array":
        assert field.element is not None
        return Array(wire_type(field.element, version, flexible), compact=compact, nullable=nullable)
    if field.type_name == "struct":
        assert field.struct is not None
        entity = Entity(field.struct, version, flexible)
        return NullableStruct(entity) if nullable else entity
    return SIZED[field.type_name, compact, nullable]


def default_value(field: FieldSchema) -> Any:
    """Return the default of a field; lists are copied, so that two messages never share a list."""
    return list(field.default) if isinstance(field.default, list) else field.default


def _default_expression(emit: Emitter, field: FieldSchema) -> str:
    if field.default is None or isinstance(field.default, bool | int | float | str | bytes | list):
        return repr(field.default)
    return emit.constant("default", field.default)


def _runs(
    fields: list[tuple[FieldSchema, WireType]],
) -> list[list[tuple[FieldSchema, WireType]] | tuple[FieldSchema, WireType]]:
    """Return the fields in order; neighbouring fixed-size fields are grouped into one list."""
    runs: list[list[tuple[FieldSchema, WireType]] | tuple[FieldSchema, WireType]] = []
    for pair in fields:
        if pair[1].format is None:
            runs.append(pair)
        elif runs and isinstance(runs[-1], list):
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


class MessageCodec(Generic[M]):
    """Encodes and decodes one version of one message. Create it with `codec`."""

    __slots__ = ("_build", "_build_steps", "_entity", "_parse", "_parse_steps", "cls", "construct", "version")

    def __init__(self, cls: type[M], version: int, *, compiled: bool) -> None:
        schema = schema_of(cls)
        if version not in schema.versions:
            raise ValueError(f"{schema.name} has versions {schema.versions}, not {version}")
        self.cls = cls
        self.version = version
        entity = Entity(cls, version, schema.flexible)
        self._entity = entity
        self._parse_steps: Callable[[WireReader], Generator[None, None, M]] | None = None
        self._build_steps: Callable[[M, WireWriter], Generator[None, None, Any]] | None = None
        self.construct = entity.compile() if compiled else entity
        self._parse = self.construct._parse
        self._build = self.construct._build

    def decode(self, data: Buffer, position: int = 0, *, max_elements: int = MAX_ELEMENTS) -> M:
        """Return the message that starts at `position`; bytes after the message are ignored, as in Kafka.

        Raises no other error than MalformedMessage, whatever the bytes are.
        """
        return self.decode_from(data, position, max_elements=max_elements)[0]

    def decode_from(self, data: Buffer, position: int = 0, *, max_elements: int = MAX_ELEMENTS) -> tuple[M, int]:
        """Return the message and the end position."""
        reader = WireReader(memoryview(data), position, max_elements)
        try:
            return self._parse(reader, None, None), reader.position
        except DECODING_ERRORS as error:
            raise self._malformed(error) from None

    def decode_steps(
        self, data: Buffer, position: int = 0, *, max_elements: int = MAX_ELEMENTS
    ) -> Generator[None, None, M]:
        """Decode a message with many elements in steps: the generator yields before each array element, so that the
        caller can pause.
        """
        if self._parse_steps is None:
            self._parse_steps = self._entity.steps(parses=True)
        try:
            message: M = yield from self._parse_steps(WireReader(memoryview(data), position, max_elements))
        except DECODING_ERRORS as error:
            raise self._malformed(error) from None
        return message

    def _malformed(self, error: Exception) -> MalformedMessage:
        name = f"{self.cls.__name__} v{self.version}"
        if isinstance(error, MalformedMessage):
            return type(error)(f"{name}: {error}")
        if isinstance(error, UnicodeDecodeError):
            return MalformedMessage(f"{name}: a string is not UTF-8: {error}")
        return MalformedMessage(f"{name}: the bytes end too early")

    def encode_parts(self, message: M, parts: list[Buffer] | None = None) -> list[Buffer]:
        """Return the bytes in order, as parts; record data are separate parts and not copied.

        Raises UnencodableMessage for values that do not match the declaration.
        """
        writer = WireWriter()
        if parts is not None:
            writer.parts = parts
        try:
            self._build(message, writer, None, None)
        except ENCODING_ERRORS as error:
            raise UnencodableMessage(f"{self.cls.__name__} v{self.version}: {error}") from error
        return writer.parts

    def encode_steps(self, message: M, parts: list[Buffer]) -> Generator[None, None, None]:
        """Encode a message with many elements in steps: the generator yields before each array element, so that the
        caller can pause.

        While the generator is paused, the caller may replace the existing elements of `parts` by one joined element.
        """
        if self._build_steps is None:
            self._build_steps = self._entity.steps(parses=False)
        writer = WireWriter()
        writer.parts = parts
        try:
            yield from self._build_steps(message, writer)
        except ENCODING_ERRORS as error:
            raise UnencodableMessage(f"{self.cls.__name__} v{self.version}: {error}") from error

    def encode(self, message: M) -> bytes:
        """Return the bytes in one piece."""
        return b"".join(self.encode_parts(message))


_codecs: Final[dict[tuple[type, int], MessageCodec[Any]]] = {}


def codec(cls: type[M], version: int) -> MessageCodec[M]:
    """Return the compiled codec, created at its first use. Raises ValueError for a version that the message does not
    have.
    """
    found = _codecs.get((cls, version))
    if found is None:
        found = _codecs[cls, version] = MessageCodec(cls, version, compiled=True)
    return found


def interpreted_codec(cls: type[M], version: int) -> MessageCodec[M]:
    """Return an interpreted codec for one version of a message; tests compare the compiled codec with the interpreted
    codec.
    """
    return MessageCodec(cls, version, compiled=False)
