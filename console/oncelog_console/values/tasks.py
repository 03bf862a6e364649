"""(pure) What a worker process is asked and what it answers: MessagePack, behind its length in four bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import msgpack

LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class WrittenWith:
    """How values were written.

    With `text`, `type` and `referred` (name -> text and type): by a schema of a registry, whose id stands in front of
    each value. With `file` and `message`: by a schema in a file, see `serialization.schema_files`. With nothing: in
    MessagePack.
    """

    text: str | None = None
    type: str = ""
    referred: Mapping[str, Sequence[str]] = field(default_factory=dict)
    file: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """Values to read and to search.

    `written_with`: an index into `schemas` for each value; None for a value that is JSON, text or unknown bytes.
    `expression`: see expression.py; None: none. `characters`: how much of a read value is told as JSON, `indents` in
    lines; values without a schema are not told.
    """

    values: Sequence[bytes | None]
    written_with: Sequence[int | None] = ()
    schemas: Sequence[WrittenWith] = ()
    expression: str | None = None
    characters: int = 0
    indents: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a task, with an item for each value.

    `matches`: whether the expression is true of the value. `texts`: the value as JSON, where it was written with a
    schema; `cut`: whether it goes on. `problems`: why a value could not be read. `problem`: why the task cannot be done
    for any value.
    """

    matches: Sequence[bool] = ()
    texts: Sequence[str | None] = ()
    cut: Sequence[bool] = ()
    problems: Sequence[str | None] = ()
    problem: str | None = None


def packed(message: Task | Result) -> bytes:
    """The message with its length."""
    body: bytes = msgpack.packb(asdict(message), unicode_errors="surrogatepass")
    return len(body).to_bytes(LENGTH_BYTES) + body


def task_of(body: bytes) -> Task:
    """Raises ValueError, TypeError for anything but a task."""
    fields = _fields(body)
    schemas = [WrittenWith(**each) for each in fields["schemas"]]
    return Task(**{**fields, "schemas": schemas})


def result_of(body: bytes) -> Result:
    """Raises ValueError, TypeError for anything but a result."""
    return Result(**_fields(body))


def _fields(body: bytes) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = msgpack.unpackb(body, unicode_errors="surrogatepass")
    return fields
