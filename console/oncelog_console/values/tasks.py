"""(pure) The messages to a worker process and its responses: MessagePack with a length prefix of four bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import msgpack

LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class WrittenWith:
    """Describes how values were encoded; there are three cases.

    If `text`, `type` and `referred` (text and type by name) are set, they are a schema of a registry, and the schema's
    id precedes each value. If `file` and `message` are set, they name a schema in a file (see
    `serialization.schema_files`). If no field is set, the values are MessagePack.
    """

    text: str | None = None
    type: str = ""
    referred: Mapping[str, Sequence[str]] = field(default_factory=dict)
    file: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """Values to decode and to search.

    `written_with`: for each value an index into `schemas`; None for a value that is JSON, text or unknown bytes.
    `expression`: see expression.py; None means no expression. `characters`: the number of characters of each decoded
    value to return as JSON; `indents`: whether this JSON is divided into lines. Values without a schema are not
    returned.
    """

    values: Sequence[bytes | None]
    written_with: Sequence[int | None] = ()
    schemas: Sequence[WrittenWith] = ()
    expression: str | None = None
    characters: int = 0
    indents: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a task, with an item for each value.

    `matches`: whether the expression is true for the value. `texts`: the value as JSON, if it was encoded with a
    schema; `cut`: whether the text was shortened to the limit. `problems`: why a value could not be decoded. `problem`:
    why the task failed for all values.
    """

    matches: Sequence[bool] = ()
    texts: Sequence[str | None] = ()
    cut: Sequence[bool] = ()
    problems: Sequence[str | None] = ()
    problem: str | None = None


def packed(message: Task | Result) -> bytes:
    """Return the message with its length prefix."""
    body: bytes = msgpack.packb(asdict(message), unicode_errors="surrogatepass")
    return len(body).to_bytes(LENGTH_BYTES) + body


def task_of(body: bytes) -> Task:
    """Parse a task. Raises ValueError or TypeError for anything else."""
    fields = _fields(body)
    schemas = [WrittenWith(**each) for each in fields["schemas"]]
    return Task(**{**fields, "schemas": schemas})


def result_of(body: bytes) -> Result:
    """Parse a result. Raises ValueError or TypeError for anything else."""
    return Result(**_fields(body))


def _fields(body: bytes) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = msgpack.unpackb(body, unicode_errors="surrogatepass")
    return fields
