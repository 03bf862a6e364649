"""Kafka's wire types as `construct` constructs: how one value lies in bytes.

Each type is a `construct.Construct` twice over: interpreted (`_parse`, `_build`) and as a generator of straight-line
Python (`emit_parse`, `emit_build`), which `.compile()` turns into one function per message version. Both call the same
readers and writers below, so they cannot disagree about a length check.

Rules that hold for every reader: it is given `buffer`, a position and the end, checks a length against what remains
*before* it slices or allocates, and raises MalformedMessage (fixed-size reads raise struct.error and IndexError, which
`codec` turns into it). Compact lengths are n + 1 with 0 for null (KIP-482, T13).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct, pack, unpack_from
from typing import Any, Final

from construct import Construct
from construct.core import CodeGen

from oncelog_protocol.errors import MalformedMessage, UnencodableMessage

Buffer = bytes | bytearray | memoryview

MAX_ELEMENTS: Final = 4_000_000
"""Array elements that one message may hold: a frame of one-byte elements must not become gigabytes of objects."""
MAX_STRING_BYTES: Final = 0x7FFF

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")


class WireReader:
    """The stream that parsing reads: a buffer, where we are and where it ends, the array elements still granted."""

    __slots__ = ("budget", "buffer", "end", "position")

    def __init__(self, buffer: memoryview, position: int = 0, budget: int = MAX_ELEMENTS) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        self.budget = budget


class WireWriter:
    """The stream that building writes: parts in order, record data among them as it came (never copied)."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[Buffer] = []


# --- readers: (buffer, position, end) -> (value, next position) ------------------------------------------------------


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Unsigned varint of at most 5 bytes and 32 bits; raises IndexError at the end of the buffer."""
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedMessage("unsigned varint of more than 32 bits")


def _too_long(size: int, position: int, end: int) -> MalformedMessage:
    return MalformedMessage(f"length {size} at byte {position}, but only {end - position} bytes remain")


def _is_null(position: int) -> MalformedMessage:
    return MalformedMessage(f"null before byte {position}, where null is not allowed")


# The readers of compact values read a one-byte length in place, since nearly all lengths are: a call of read_uvarint
# each would cost a fifth of a small request's decoding.


def read_nullable_string(buffer: memoryview, position: int, end: int) -> tuple[str | None, int]:
    (size,) = INT16.unpack_from(buffer, position)
    position += 2
    if size < 0:
        if size != -1:
            raise MalformedMessage(f"negative string length {size}")
        return None, position
    stop = position + size
    if stop > end:
        raise _too_long(size, position, end)
    return str(buffer[position:stop], "utf-8"), stop


def read_string(buffer: memoryview, position: int, end: int) -> tuple[str, int]:
    value, position = read_nullable_string(buffer, position, end)
    if value is None:
        raise _is_null(position)
    return value, position


def read_compact_nullable_string(buffer: memoryview, position: int, end: int) -> tuple[str | None, int]:
    if buffer[position]:
        return read_compact_string(buffer, position, end)
    return None, position + 1


def read_compact_string(buffer: memoryview, position: int, end: int) -> tuple[str, int]:
    size = buffer[position]
    position += 1
    if size >= 0x80:
        size, position = read_uvarint(buffer, position - 1)
        if size > MAX_STRING_BYTES + 1:
            raise MalformedMessage(f"string of {size - 1} bytes: at most {MAX_STRING_BYTES}")
    stop = position + size - 1
    if stop > end:
        raise _too_long(size - 1, position, end)
    if size == 0:
        raise _is_null(position)
    return str(buffer[position:stop], "utf-8"), stop


def read_nullable_records(buffer: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    """Record data as a slice of the frame: it is valid only as long as the frame's buffer is not reused."""
    (size,) = INT32.unpack_from(buffer, position)
    position += 4
    if size < 0:
        if size != -1:
            raise MalformedMessage(f"negative length {size}")
        return None, position
    stop = position + size
    if stop > end:
        raise _too_long(size, position, end)
    return buffer[position:stop], stop


def read_records(buffer: memoryview, position: int, end: int) -> tuple[memoryview, int]:
    value, position = read_nullable_records(buffer, position, end)
    if value is None:
        raise _is_null(position)
    return value, position


def read_compact_nullable_records(buffer: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    size, position = read_uvarint(buffer, position)
    if size == 0:
        return None, position
    stop = position + size - 1
    if stop > end:
        raise _too_long(size - 1, position, end)
    return buffer[position:stop], stop


def read_compact_records(buffer: memoryview, position: int, end: int) -> tuple[memoryview, int]:
    value, position = read_compact_nullable_records(buffer, position, end)
    if value is None:
        raise _is_null(position)
    return value, position


def _copied(reader: Any) -> Any:
    """The same reader for `bytes` fields, whose values outlive the frame."""

    def read(buffer: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
        value, position = reader(buffer, position, end)
        return (None if value is None else bytes(value)), position

    read.__name__ = reader.__name__.replace("records", "bytes")
    return read


read_bytes = _copied(read_records)
read_nullable_bytes = _copied(read_nullable_records)
read_compact_bytes = _copied(read_compact_records)
read_compact_nullable_bytes = _copied(read_compact_nullable_records)


def read_array_length(buffer: memoryview, position: int) -> tuple[int, int]:
    """Number of elements, -1 for null."""
    (count,) = INT32.unpack_from(buffer, position)
    if count < -1:
        raise MalformedMessage(f"negative array length {count}")
    return count, position + 4


def read_compact_array_length(buffer: memoryview, position: int) -> tuple[int, int]:
    count, position = read_uvarint(buffer, position)
    return count - 1, position


def too_many_elements(count: int, remaining: int) -> MalformedMessage:
    """Why an array of `count` elements is refused before anything is allocated for it (CVE-2022-34917)."""
    return MalformedMessage(
        f"array of {count} elements, but {remaining} bytes remain, and a message has at most {MAX_ELEMENTS} elements"
    )


def null_array(position: int) -> MalformedMessage:
    return MalformedMessage(f"null array before byte {position}, where null is not allowed")


def read_tag(buffer: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """Tag, where its field starts, where it must stop."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if position + size > end:
        raise MalformedMessage(f"tagged field {tag} of {size} bytes, but only {end - position} bytes remain")
    return tag, position, position + size


def check_tag_end(tag: int, position: int, stop: int) -> None:
    if position != stop:
        raise MalformedMessage(f"tagged field {tag} ends at byte {position}, its size says {stop}")


def read_presence(buffer: memoryview, position: int) -> tuple[bool, int]:
    """The marker byte of a nullable struct: 1 present, -1 null."""
    marker = buffer[position]
    if marker not in (1, 0xFF):
        raise MalformedMessage(f"nullable struct marker {marker}: must be 1 or -1")
    return marker == 1, position + 1


# --- writers: append the bytes of a value to a list of parts ---------------------------------------------------------

_ONE_BYTE: Final = tuple(bytes((i,)) for i in range(256))


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
    if len(data) > MAX_STRING_BYTES:
        raise UnencodableMessage(f"string of {len(data)} bytes: at most {MAX_STRING_BYTES}")
    out.append(uvarint(len(data) + 1) + data)


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
        out.append(uvarint(len(value) + 1))
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
        out.append(uvarint(len(items) + 1))


def put_tagged(out: list[Buffer], fields: list[tuple[int, bytes]]) -> None:
    """The tag buffer of a flexible struct: count, then tag, size, bytes of each, in order of the tags."""
    out.append(uvarint(len(fields)))
    for tag, data in fields:
        out.append(uvarint(tag) + uvarint(len(data)) + data)


# --- the generator of straight-line code -----------------------------------------------------------------------------


class Emitter:
    """Python source of one parse or build function, as the wire types write it.

    Locals of a parse function: `buf`, `pos`, `end`, `budget`. Locals of a build function: `out`, a list of parts.
    `constants` are the objects that the source names (classes, struct packers, readers).
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.out = "out"
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A local name that is not used yet."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """The global name under which the source can refer to `value`."""
        name = f"{stem}_{id(value)}"
        self.constants[name] = value
        return name

    def function(self, value: Any) -> str:
        """As `constant`, for a function, under its own name."""
        name: str = value.__name__
        self.constants[name] = value
        return name


# --- the types -------------------------------------------------------------------------------------------------------


class WireType(Construct):  # type: ignore[misc]
    """Base of our constructs.

    `format`: the struct character of a fixed-size type, by which runs of fields fuse into one unpack; None otherwise.
    `min_size`: the fewest bytes that a value takes.
    """

    format: str | None = None
    min_size: int = 0
    linked_constants: dict[str, Any]

    def emit_parse(self, emit: Emitter, target: str) -> None:
        raise NotImplementedError

    def emit_build(self, emit: Emitter, value: str) -> None:
        raise NotImplementedError

    def _sizeof(self, context: Any, path: Any) -> int:
        return self.min_size

    # construct's own compiler calls these two: a WireType inside it becomes a call of one generated function.
    def _emitparse(self, code: CodeGen) -> str:
        emit = Emitter()
        emit.line("buf = io.buffer; pos = io.position; end = io.end; budget = io.budget")
        self.emit_parse(emit, "value")
        emit.line("io.position = pos; io.budget = budget")
        emit.line("return value")
        return self._function(code, emit, "io, this")

    def _emitbuild(self, code: CodeGen) -> str:
        emit = Emitter()
        emit.line("out = io.parts")
        self.emit_build(emit, "obj")
        emit.line("return obj")
        return self._function(code, emit, "obj, io, this")

    def _function(self, code: CodeGen, emit: Emitter, parameters: str) -> str:
        name = f"wire_{code.allocateId()}"
        code.append("\n".join([f"def {name}({parameters}):", *emit.lines]))
        self.linked_constants.update(emit.constants)
        return f"{name}({parameters})"

    def compile(self, filename: str | None = None) -> Any:
        """As construct's, with the constants that the generated source names put into its module."""
        self.linked_constants = {}
        compiled = super().compile(filename)
        vars(compiled.module).update(self.linked_constants)
        return compiled


class Fixed(WireType):
    """A type of fixed size: integers, float64, boolean, uuid (16 raw bytes)."""

    def __init__(self, format_character: str) -> None:
        super().__init__()
        self.format = format_character
        self.struct = Struct(">" + format_character)
        self.min_size = self.struct.size

    def _parse(self, stream: WireReader, context: Any, path: Any) -> Any:
        (value,) = self.struct.unpack_from(stream.buffer, stream.position)
        stream.position += self.min_size
        return value

    def _build(self, obj: Any, stream: WireWriter, context: Any, path: Any) -> Any:
        stream.parts.append(self.struct.pack(self.checked(obj)))
        return obj

    def checked(self, value: Any) -> Any:
        return value

    def emit_parse(self, emit: Emitter, target: str) -> None:
        emit.line(f"{target}, = {emit.constant('unpack', self.struct.unpack_from)}(buf, pos); pos += {self.min_size}")

    def emit_build(self, emit: Emitter, value: str) -> None:
        emit.line(f"{emit.out}.append({emit.constant('pack', self.struct.pack)}({self.emit_value(emit, value)}))")

    def emit_value(self, emit: Emitter, value: str) -> str:
        """The expression that is packed."""
        return value


class Uuid(Fixed):
    """16 raw bytes. struct would pad or cut any other length in silence, so it is checked."""

    def __init__(self) -> None:
        super().__init__("16s")

    def checked(self, value: Any) -> Any:
        return checked_uuid(value)

    def emit_value(self, emit: Emitter, value: str) -> str:
        return f"{emit.function(checked_uuid)}({value})"


def checked_uuid(value: bytes) -> bytes:
    if len(value) != 16:
        raise UnencodableMessage(f"a uuid has 16 bytes, not {len(value)}")
    return value


class Sized(WireType):
    """A length and that many bytes: strings, bytes, records. `reader` and `writer` are the functions above."""

    def __init__(self, reader: Any, writer: Any, min_size: int) -> None:
        super().__init__()
        self.reader = reader
        self.writer = writer
        self.min_size = min_size

    def _parse(self, stream: WireReader, context: Any, path: Any) -> Any:
        value, stream.position = self.reader(stream.buffer, stream.position, stream.end)
        return value

    def _build(self, obj: Any, stream: WireWriter, context: Any, path: Any) -> Any:
        self.writer(stream.parts, obj)
        return obj

    def emit_parse(self, emit: Emitter, target: str) -> None:
        emit.line(f"{target}, pos = {emit.function(self.reader)}(buf, pos, end)")

    def emit_build(self, emit: Emitter, value: str) -> None:
        emit.line(f"{emit.function(self.writer)}({emit.out}, {value})")


class Array(WireType):
    """A count and that many elements; a Python list, or None where nullable."""

    def __init__(self, element: WireType, *, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.element = element
        self.nullable = nullable
        self.read_length = read_compact_array_length if compact else read_array_length
        self.put_length = put_compact_array_length if compact else put_array_length
        self.min_size = 1 if compact else 4
        self.element_size = max(1, element.min_size)

    def _parse(self, stream: WireReader, context: Any, path: Any) -> Any:
        count, stream.position = self.read_length(stream.buffer, stream.position)
        if count < 0:
            if not self.nullable:
                raise null_array(stream.position)
            return None
        remaining = stream.end - stream.position
        if count * self.element_size > remaining or count > stream.budget:
            raise too_many_elements(count, remaining)
        stream.budget -= count
        return [self.element._parse(stream, context, path) for _ in range(count)]

    def _build(self, obj: Any, stream: WireWriter, context: Any, path: Any) -> Any:
        self.put_length(stream.parts, obj, self.nullable)
        for item in obj or ():
            self.element._build(item, stream, context, path)
        return obj

    def emit_parse(self, emit: Emitter, target: str) -> None:
        count = emit.name("count")
        if self.read_length is read_compact_array_length:
            emit.line(f"{count} = buf[pos] - 1; pos += 1")
            with emit.block(f"if {count} > 0x7E:"):
                emit.line(f"{count}, pos = {emit.function(self.read_length)}(buf, pos - 1)")
        else:
            emit.line(f"{count}, pos = {emit.function(self.read_length)}(buf, pos)")
        with emit.block(f"if {count} < 0:"):
            if self.nullable:
                emit.line(f"{target} = None")
            else:
                emit.line(f"raise {emit.function(null_array)}(pos)")
        with emit.block("else:"):
            with emit.block(f"if {count} * {self.element_size} > end - pos or {count} > budget:"):
                emit.line(f"raise {emit.function(too_many_elements)}({count}, end - pos)")
            emit.line(f"budget -= {count}")
            if self.element.format is not None:
                fused = emit.constant("unpack_from", unpack_from)
                emit.line(f"{target} = list({fused}({self._fused_format(count)}, buf, pos))")
                emit.line(f"pos += {self.element_size} * {count}")
                return
            items, item = emit.name("items"), emit.name("item")
            emit.line(f"{target} = {items} = []")
            with emit.block(f"for _ in range({count}):"):
                self.element.emit_parse(emit, item)
                emit.line(f"{items}.append({item})")

    def _fused_format(self, count: str) -> str:
        if self.element.format == "16s":  # a count before "s" is its length, not a repetition
            return f"'>' + '16s' * {count}"
        return f"'>%d{self.element.format}' % {count}"

    def emit_build(self, emit: Emitter, value: str) -> None:
        items, item = emit.name("items"), emit.name("item")
        emit.line(f"{items} = {value}")
        emit.line(f"{emit.function(self.put_length)}({emit.out}, {items}, {self.nullable})")
        with emit.block(f"if {items}:"):
            if isinstance(self.element, Fixed) and not isinstance(self.element, Uuid):
                fused = emit.constant("pack", pack)
                emit.line(f"{emit.out}.append({fused}({self._fused_format(f'len({items})')}, *{items}))")
            else:
                with emit.block(f"for {item} in {items}:"):
                    self.element.emit_build(emit, item)


PRIMITIVES: Final[dict[str, WireType]] = {
    "boolean": Fixed("?"),
    "int8": Fixed("b"),
    "int16": Fixed("h"),
    "uint16": Fixed("H"),
    "int32": Fixed("i"),
    "uint32": Fixed("I"),
    "int64": Fixed("q"),
    "float64": Fixed("d"),
    "uuid": Uuid(),
}
"""By Kafka's type name."""

SIZED: Final[dict[tuple[str, bool, bool], WireType]] = {
    ("string", False, False): Sized(read_string, put_string, 2),
    ("string", False, True): Sized(read_nullable_string, put_nullable_string, 2),
    ("string", True, False): Sized(read_compact_string, put_compact_string, 1),
    ("string", True, True): Sized(read_compact_nullable_string, put_compact_nullable_string, 1),
    ("bytes", False, False): Sized(read_bytes, put_records, 4),
    ("bytes", False, True): Sized(read_nullable_bytes, put_nullable_records, 4),
    ("bytes", True, False): Sized(read_compact_bytes, put_compact_records, 1),
    ("bytes", True, True): Sized(read_compact_nullable_bytes, put_compact_nullable_records, 1),
    ("records", False, False): Sized(read_records, put_records, 4),
    ("records", False, True): Sized(read_nullable_records, put_nullable_records, 4),
    ("records", True, False): Sized(read_compact_records, put_compact_records, 1),
    ("records", True, True): Sized(read_compact_nullable_records, put_compact_nullable_records, 1),
}
"""By (Kafka's type name, compact, nullable)."""
