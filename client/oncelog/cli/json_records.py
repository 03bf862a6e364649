"""Records as lines of JSON: the output of `consume --json` and the input of `produce --json`. Pure.

    {"topic": "t", "partition": 0, "offset": 17, "timestamp": 1767225600000,
     "key": "k", "value": "v", "headers": [["name", "value"]], "encoding": "utf-8"}

Keys, values and header values are text or null; with the `encoding` "base64", all of them are base64. In a record to
produce, all fields are optional: `{"value": "hello"}` is a record. `produce` ignores `topic` and `offset`, so that it
can read the output of `consume --json`. In both commands, a key or value in a format such as Avro is any JSON value.
Headers may also be an object if no header name occurs twice.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal

from oncelog.cli.text_records import InputRecord, OutputRecord
from oncelog.escaping import visible_json

Encoding = Literal["utf-8", "base64"]
ENCODINGS: Final[tuple[Encoding, ...]] = ("utf-8", "base64")
FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "encoding")
MAX_PARTITION: Final = 2**31 - 1
MAX_TIMESTAMP_MS: Final = 2**63 - 1


def format_json(record: OutputRecord, *, base64: bool) -> bytes:
    """Return one line of JSON with its newline; bytes become strings if all bytes are UTF-8 and `base64` is not set."""
    line = json.dumps(as_json(record, base64=base64), ensure_ascii=False, separators=(",", ":"))
    return visible_json(line).encode() + b"\n"


def as_json(record: OutputRecord, *, base64: bool) -> dict[str, Any]:
    """Return the fields of a line of JSON, as the module docstring describes them."""
    encoding: Encoding = "base64" if base64 else "utf-8"
    decoded: Mapping[str, Any] = getattr(record, "decoded", {})
    try:
        contents = _contents(record, encoding, decoded)
    except UnicodeDecodeError:
        encoding = "base64"
        contents = _contents(record, encoding, decoded)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **contents,
        "encoding": encoding,
    }


def _contents(record: OutputRecord, encoding: Encoding, decoded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for key, value and headers. Raises UnicodeDecodeError."""

    def text(data: bytes | None) -> str | None:
        if data is None:
            return None
        return data.decode() if encoding == "utf-8" else b64encode(data).decode()

    return {
        "key": decoded["key"] if "key" in decoded else text(record.key),
        "value": decoded["value"] if "value" in decoded else text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


def parse_json(line: bytes, as_json: Collection[str] = ()) -> InputRecord:
    """Return the record that a line of JSON describes. `as_json` names the fields ("key", "value" or both) whose
    format, such as Avro, accepts any JSON value. Raises ValueError, whose message says which field is wrong.
    """
    try:
        fields = json.loads(line)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("a record is a JSON object")
    for name in fields:
        if name not in FIELDS:
            raise ValueError(f"unknown field {name!r}; known fields: {', '.join(FIELDS)}")
    encoding = fields.get("encoding", "utf-8")
    if encoding not in ENCODINGS:
        raise ValueError(f"encoding is one of {', '.join(ENCODINGS)}")

    def content(name: str, value: object) -> Any:
        return value if name in as_json else _content(name, value, encoding)

    return InputRecord(
        content("key", fields.get("key")),
        content("value", fields.get("value")),
        _headers(fields.get("headers"), content),
        _number("partition", fields.get("partition"), MAX_PARTITION),
        _number("timestamp", fields.get("timestamp"), MAX_TIMESTAMP_MS),
    )


def _content(name: str, value: object, encoding: Encoding) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{name} is a string or null")
    try:
        return value.encode() if encoding == "utf-8" else b64decode(value, validate=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _headers(value: object, content: Callable[[str, object], bytes | None]) -> list[tuple[str, bytes | None]]:
    if value is None:
        return []
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise ValueError("headers are a list of [name, value], or an object")
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError("headers are a list of [name, value], or an object")
        headers.append((pair[0], content(f"header {pair[0]!r}", pair[1])))
    return headers


def _number(name: str, value: object, maximum: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise ValueError(f"{name} is an integer from 0 to {maximum}")
    return value
