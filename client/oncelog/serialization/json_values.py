"""Converts any decoded value to JSON. Pure.

Bytes become text if they are printable UTF-8, otherwise base64 with the prefix `base64:`. Decimals and UUIDs become
text; dates and times become ISO 8601. Numbers that JSON does not have (NaN, infinity) become text. With a schema,
`avro_json` converts this form back to values.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

BASE64: Final = "base64:"
MAX_DEPTH: Final = 200
"""Maximum nesting depth of a value; deeper parts are replaced by the text DEEPER."""
DEEPER: Final = "... nested too deeply"


def json_value(value: Any) -> Any:
    """Return a value that `json.dumps` accepts: None, bool, int, finite float, str, list, or dict with str keys."""
    return _json_value(value, 0)


def _json_value(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return DEEPER
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return text_of(bytes(value))
        case Mapping():
            return {_key(key): _json_value(each, depth + 1) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_json_value(each, depth + 1) for each in value]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal() | UUID():
            return str(value)
    return str(value)


def text_of(data: bytes) -> str:
    """Return bytes as text: printable UTF-8 unchanged, otherwise base64 with a prefix."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return BASE64 + b64encode(data).decode()
    if text.startswith(BASE64) or not (text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()):
        return BASE64 + b64encode(data).decode()
    return text


def bytes_of(text: str) -> bytes:
    """Return the bytes of a text from `text_of`. Raises ValueError for invalid base64."""
    if text.startswith(BASE64):
        return b64decode(text.removeprefix(BASE64), validate=True)
    return text.encode()


def _key(key: Any) -> str:
    shown = _json_value(key, MAX_DEPTH)
    return shown if isinstance(shown, str) else str(key)
