"""The items of a dump: rows to print, notices, and faults, which make the exit code 1."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from oncelog.escaping import visible_json

Value = int | str | bool | bytes | list[str] | dict[str, Any] | None
"""The value of a field in a row; a dictionary is printed as JSON without spaces."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a dump: named values in the order and spelling of Kafka's tool. `kind` (batch, record, offset index,
    ...) is printed only with --json.
    """

    kind: str
    fields: dict[str, Value]
    prefix: str = ""

    def as_text(self) -> str:
        return self.prefix + " ".join(f"{name}: {_text(name, value)}" for name, value in self.fields.items())

    def as_json(self, file: str) -> str:
        """Return the row as one line of JSON. Bytes are printed as text, or as {"base64": ...} if they are not
        UTF-8.
        """
        values = {name: _json(value) for name, value in self.fields.items()}
        return visible_json(json.dumps({"file": file, "kind": self.kind, **values}, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Message:
    """A line of text without data, such as `Log starting offset: 0`. With --json, text lines are not printed."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice: a fact that is unusual but legal; printed on standard error."""

    text: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: the file is corrupt, or contradicts the file that it indexes. `position` is the byte offset in the file;
    None means that the fault concerns the entire file."""

    text: str
    position: int | None = None

    def __str__(self) -> str:
        return self.text if self.position is None else f"position {self.position}: {self.text}"


Item = Row | Message | Notice | Fault


def _text(name: str, value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, bool):
        return "true" if value else "false"
    if name == "deleteHorizonMs":
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, list):
        return f"[{','.join(value)}]"
    return str(value)


def _json(value: Value) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}
