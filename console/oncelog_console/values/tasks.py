"""What a worker process is asked and what it answers: MessagePack, each message behind its length in four bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgpack

LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Task:
    """Values to search. `expression`: its text, see expression.py."""

    expression: str
    values: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a task. `matches`: for each value whether it matches. `unread`: how many values could not be read,
    which never match. `problem`: why the task cannot be done for any value, in words for the user."""

    matches: Sequence[bool] = ()
    unread: int = 0
    problem: str | None = None


def packed(message: Task | Result) -> bytes:
    """The message with its length."""
    body: bytes = msgpack.packb(asdict(message))
    return len(body).to_bytes(LENGTH_BYTES) + body


def task_of(body: bytes) -> Task:
    """Raises ValueError, TypeError for anything but a task."""
    return Task(**_fields(body))


def result_of(body: bytes) -> Result:
    """Raises ValueError, TypeError for anything but a result."""
    return Result(**_fields(body))


def _fields(body: bytes) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = msgpack.unpackb(body)
    return fields
