"""Decodes one value after another in a worker process: by its schema, as MessagePack, or as JSON."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.serialization.codecs import codec_of
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.json_values import json_value
from oncelog.serialization.schemas import Schema
from oncelog.serialization.wire import unframed
from oncelog_console.limits import MAX_TEXTS_CHARACTERS
from oncelog_console.values.expression import Expression
from oncelog_console.values.tasks import Result, Task, WrittenWith

if TYPE_CHECKING:
    from oncelog.serialization.codec import Codec

MAX_CODECS: Final = 50
PROBLEM_CHARACTERS: Final = 400
UTC_DATETIME: Final = 3
"""Option of msgpack: times become datetimes in UTC."""


class Read(NamedTuple):
    """A value that was decoded. `text` is None for a value without a schema."""

    matches: bool
    text: str | None
    is_cut: bool
    problem: str | None


class Reader:
    """Executes tasks, and keeps the codecs of their schemas."""

    def __init__(self) -> None:
        self._codecs: OrderedDict[str, Codec | SerializationError] = OrderedDict()

    def done(self, task: Task) -> Result:
        """Execute a task and return its result."""
        try:
            expression = None if task.expression is None else Expression(task.expression)
        except ValueError as error:
            return Result(problem=str(error))
        room = MAX_TEXTS_CHARACTERS
        reads: list[Read] = []
        for index, value in enumerate(task.values):
            which = task.written_with[index] if task.written_with else None
            written_with = None if which is None else task.schemas[which]
            read = self._read(value, written_with, expression, task)
            room -= len(read.text or "")
            if room < 0:
                read = Read(read.matches, None, False, "there is no room for more of these values")
            reads.append(read)
        matches, texts, cut, problems = zip(*reads, strict=True) if reads else ((), (), (), ())
        return Result(matches, texts, cut, problems)

    def _read(
        self, value: bytes | None, written_with: WrittenWith | None, expression: Expression | None, task: Task
    ) -> Read:
        if value is None:
            return Read(False, None, False, None)
        try:
            if written_with is None:
                document = json.loads(value) if expression is not None else None
            else:
                document = json_value(self._decoded(value, written_with))
            matches = expression is not None and expression.matches(document)
            text, is_cut = None, False
            if written_with is not None and task.characters:
                text = json.dumps(document, ensure_ascii=False, indent=2 if task.indents else None)
                text, is_cut = text[: task.characters], len(text) > task.characters
            return Read(matches, text, is_cut, None)
        except SerializationError as error:
            return Read(False, None, False, error.message[:PROBLEM_CHARACTERS])
        except (ValueError, RecursionError):  # ValueError: the value is not JSON or not UTF-8
            return Read(False, None, False, "it is not JSON")
        except MemoryError:
            return Read(False, None, False, "it takes more memory than there is for it")

    def _decoded(self, value: bytes, written_with: WrittenWith) -> Any:
        """Decode one value. Raises SerializationError."""
        if written_with.text is None and written_with.file is None:
            return _message_pack(value)
        codec = self._codec(written_with)
        return codec.decode_bare(value) if written_with.file is not None else codec.decode(unframed(value)[1])

    def _codec(self, written_with: WrittenWith) -> Codec:
        """Return the codec with which such values are decoded. Raises SerializationError."""
        key = repr(written_with)
        found = self._codecs.get(key)
        if found is None:
            found = self._codecs[key] = _codec_of(written_with)
            if len(self._codecs) > MAX_CODECS:
                self._codecs.popitem(last=False)
        self._codecs.move_to_end(key)
        if isinstance(found, SerializationError):
            raise found.with_traceback(None)
        return found


def _codec_of(written_with: WrittenWith) -> Codec | SerializationError:
    try:
        if written_with.file is not None:
            from oncelog.serialization.schema_files import codec_of_file

            return codec_of_file(Path(written_with.file), written_with.message)
        assert written_with.text is not None
        referred = {name: Schema(text, kind) for name, (text, kind) in written_with.referred.items()}
        return codec_of(Schema(written_with.text, written_with.type), referred)
    except SerializationError as error:
        return error
    except OSError as error:
        return SerializationError(f"{written_with.file}: {error.strerror}")


def _message_pack(value: bytes) -> Any:
    """Decode a value of MessagePack. Raises SerializationError."""
    import msgpack

    try:
        return msgpack.unpackb(value, timestamp=UTC_DATETIME, strict_map_key=False)
    except MemoryError:
        raise
    except Exception as error:  # msgpack may raise any exception, depending on the bytes
        raise SerializationError(f"it is not MessagePack: {type(error).__name__}: {error}") from error
