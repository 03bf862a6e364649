"""Kafka's wire types as constructs of the library `construct`: the encoding of one value.

Each type is implemented twice: interpreted (`_parse`, `_build`), and as a generator of straight-line Python
(`emit_parse`, `emit_build`), which `.compile()` turns into one function per message version. Both implementations call
the same `wire_readers` and `wire_writers`, so their length checks cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from struct import Struct, pack, unpack_from
from typing import Any, Final

from construct import Construct
from construct.core import CodeGen

from oncelog_protocol.errors import UnencodableMessage
from oncelog_protocol.wire_readers import (
    MAX_ELEMENTS,
    null_array,
    read_array_length,
    read_bytes,
    read_compact_array_length,
    read_compact_bytes,
    read_compact_nullable_bytes,
    read_compact_nullable_records,
    read_compact_nullable_string,
    read_compact_records,
    read_compact_string,
    read_nullable_bytes,
    read_nullable_records,
    read_nullable_string,
    read_records,
    read_string,
    too_many_elements,
)
from oncelog_protocol.wire_writers import (
    Buffer,
    put_array_length,
    put_compact_array_length,
    put_compact_nullable_records,
    put_compact_nullable_string,
    put_compact_records,
    put_compact_string,
    put_nullable_records,
    put_nullable_string,
    put_records,
    put_string,
)


class WireReader:
    """The input of a decoder: a buffer, the present position, the end position, and the maximum number of array
    elements that the decoder may still decode.
    """

    __slots__ = ("budget", "buffer", "end", "position")

    def __init__(self, buffer: memoryview, position: int = 0, budget: int = MAX_ELEMENTS) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        self.budget = budget


class WireWriter:
    """The output of an encoder: parts in order, with record data unchanged (never copied)."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[Buffer] = []


# --- the generator of straight-line code -----------------------------------------------------------------------------


class Emitter:
    """The Python source of one parse or build function, written by the wire types.

    The local variables of a parse function are `buf`, `pos`, `end` and `budget`. The local variable of a build function
    is `out`, a list of parts. `constants` are the objects that the source refers to (classes, struct packers, readers).
    With `pauses`, the function is a generator that yields before each element of an array.
    """

    def __init__(self, *, pauses: bool = False) -> None:
        self.pauses = pauses
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.out = "out"
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def pause(self) -> None:
        if self.pauses:
            self.line("yield")

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """Return a new name for a local variable."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """Return the global name by which the generated source refers to `value`."""
        name = f"{stem}_{id(value)}"
        self.constants[name] = value
        return name

    def function(self, value: Any) -> str:
        """Return the global name by which the generated source refers to a function; it is the function's own name."""
        name: str = value.__name__
        self.constants[name] = value
        return name


# --- the types -------------------------------------------------------------------------------------------------------


class WireType(Construct):  # type: ignore[misc]
    """Base class of the wire types, which are subclasses of Construct (of the library `construct`).

    `format` is the character of a fixed-size type in formats of the module `struct`, so that one unpack can read
    several consecutive fields; None for types without a fixed size. `min_size` is the smallest number of bytes of a
    value.
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

    # construct's own compiler calls these two methods; inside another construct, a WireType is compiled to a call of
    # its generated function.
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

    def steps(self, *, parses: bool) -> Callable[..., Generator[None, None, Any]]:
        """Return the generated function as a generator function, with the argument (stream) for parsing and (value,
        stream) for building.
        """
        emit = Emitter(pauses=True)
        if parses:
            emit.line("buf = io.buffer; pos = io.position; end = io.end; budget = io.budget")
            self.emit_parse(emit, "value")
            emit.line("return value")
        else:
            emit.line("out = io.parts")
            self.emit_build(emit, "obj")
            emit.line("return obj")
        emit.line("yield")  # a yield that is never reached makes the function a generator
        source = "\n".join([f"def steps({'io' if parses else 'obj, io'}):", *emit.lines])
        namespace: dict[str, Any] = dict(emit.constants)
        exec(compile(source, "<steps>", "exec"), namespace)  # noqa: S102  our own declarations
        generated: Callable[..., Generator[None, None, Any]] = namespace["steps"]
        return generated

    def compile(self, filename: str | None = None) -> Any:
        """Compile like construct's `compile`, but add the constants that the generated source refers to."""
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
        """Return the Python expression whose value is packed."""
        return value


class Uuid(Fixed):
    """16 raw bytes. The length is checked, because struct would silently pad or cut any other length."""

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
    """A type that is encoded as a length, followed by that number of bytes: strings, bytes, records. `reader` and
    `writer` are functions of wire_readers and wire_writers.
    """

    def __init__(self, reader: Any, writer: Any, min_size: int, null: bytes = b"") -> None:
        """`null` is the encoding of None, for a nullable type."""
        super().__init__()
        self.reader = reader
        self.writer = writer
        self.min_size = min_size
        self.null = null

    def _parse(self, stream: WireReader, context: Any, path: Any) -> Any:
        value, stream.position = self.reader(stream.buffer, stream.position, stream.end)
        return value

    def _build(self, obj: Any, stream: WireWriter, context: Any, path: Any) -> Any:
        self.writer(stream.parts, obj)
        return obj

    def emit_parse(self, emit: Emitter, target: str) -> None:
        emit.line(f"{target}, pos = {emit.function(self.reader)}(buf, pos, end)")

    def emit_build(self, emit: Emitter, value: str) -> None:
        if not self.null:
            emit.line(f"{emit.function(self.writer)}({emit.out}, {value})")
            return
        # None needs no call, because most nullable fields are None
        with emit.block(f"if {value} is None:"):
            emit.line(f"{emit.out}.append({self.null!r})")
        with emit.block("else:"):
            emit.line(f"{emit.function(self.writer)}({emit.out}, {value})")


class Array(WireType):
    """An array, encoded as a count followed by that number of elements; its value is a Python list, or None if
    nullable.
    """

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
                emit.pause()
                self.element.emit_parse(emit, item)
                emit.line(f"{items}.append({item})")

    def _fused_format(self, count: str) -> str:
        if self.element.format == "16s":  # in struct formats, a count before "s" is a length, not a repetition
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
                    emit.pause()
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
"""Wire types by Kafka's type name."""

SIZED: Final[dict[tuple[str, bool, bool], WireType]] = {
    ("string", False, False): Sized(read_string, put_string, 2),
    ("string", False, True): Sized(read_nullable_string, put_nullable_string, 2, b"\xff\xff"),
    ("string", True, False): Sized(read_compact_string, put_compact_string, 1),
    ("string", True, True): Sized(read_compact_nullable_string, put_compact_nullable_string, 1, b"\0"),
    ("bytes", False, False): Sized(read_bytes, put_records, 4),
    ("bytes", False, True): Sized(read_nullable_bytes, put_nullable_records, 4),
    ("bytes", True, False): Sized(read_compact_bytes, put_compact_records, 1),
    ("bytes", True, True): Sized(read_compact_nullable_bytes, put_compact_nullable_records, 1),
    ("records", False, False): Sized(read_records, put_records, 4),
    ("records", False, True): Sized(read_nullable_records, put_nullable_records, 4),
    ("records", True, False): Sized(read_compact_records, put_compact_records, 1),
    ("records", True, True): Sized(read_compact_nullable_records, put_compact_nullable_records, 1),
}
"""Wire types with a length, by (Kafka's type name, compact, nullable)."""
