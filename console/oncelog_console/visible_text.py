"""Text from the cluster in readable form: characters that are invisible, or change their neighbours, are replaced by
escapes.

Anybody who may write to the cluster can choose names, keys, values and messages. The templates escape HTML; this module
turns a NUL, a bell, or a mark that changes the direction of a line into `\\x00`, `\\x07`, `\\u202e`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from oncelog import escaping
from oncelog_console.limits import MAX_SHOWN_CHARACTERS, NAME_CHARACTERS

if TYPE_CHECKING:
    from oncelog_console.values.reader import Reading

KEPT: Final = frozenset(" \n\t")
THOUSANDS: Final = "\u202f"
"""A narrow space, which Python's `str.isprintable` counts as unprintable. The space is kept where `number` inserts it,
and escaped elsewhere.
"""
_WITHIN_NUMBER: Final = re.compile(rf"(?<=[0-9]){THOUSANDS}(?=[0-9]{{3}})")
NOTHING: Final = "–"
HEX_BYTES: Final = 1024
HEX_LINE: Final = 16
MAX_JSON_BYTES: Final = 32 * 1024
"""Size in bytes above which JSON is not indented, because parsing it would cost too much."""
MAX_JSON_DEPTH: Final = 32
"""Nesting depth beyond which JSON is not indented, because each line would begin with a space for each level."""


def visible(text: str) -> str:
    """Return `text`, cut to MAX_SHOWN_CHARACTERS, with each invisible character replaced by an escape."""
    if len(text) > MAX_SHOWN_CHARACTERS:
        text = text[:MAX_SHOWN_CHARACTERS] + "…"
    if text.isprintable():
        return text
    return THOUSANDS.join(escaping.visible(part, KEPT) for part in _WITHIN_NUMBER.split(text))


def finalized(value: Any) -> Any:
    """Escape the value of an expression in a template; the templates apply this function to every expression."""
    if value is None:
        return NOTHING
    if isinstance(value, Markup):
        return value
    return visible(value if isinstance(value, str) else str(value))


def short(text: str | None, characters: int = NAME_CHARACTERS) -> str | None:
    """Return a name that fits into a table."""
    return text if text is None or len(text) <= characters else text[: characters - 1] + "…"


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes of a key or value as text that a page can show. `kind` is "null", "empty", "text", "json" or "binary";
    `size` is the full size in
    bytes.
    """

    kind: str
    text: str
    size: int
    is_cut: bool


def bytes_shown(data: bytes | None, limit: int, *, indents: bool = False, size: int | None = None) -> Shown:
    """Return `limit` bytes of `data` as text if they are UTF-8, otherwise in hexadecimal; `indents`: write JSON in
    lines. `size`: the full size in bytes, if `data` is only the beginning.
    """
    if data is None:
        return Shown("null", "null", 0, False)
    if not data:
        return Shown("empty", "", 0, False)
    size = len(data) if size is None else size
    part = data[:limit]
    is_cut = size > limit
    text = _as_text(part, is_cut=is_cut)
    if text is None:
        return Shown("binary", _hex(part, in_lines=indents), size, size > min(limit, HEX_BYTES))
    if indents and not is_cut and size <= MAX_JSON_BYTES and (document := _indented(text)) is not None:
        return Shown("json", visible(document), size, False)
    return Shown("text", visible(text), size, is_cut)


def read_shown(reading: Reading | None) -> Shown | None:
    """Return the text of a value that was decoded with its schema; None if the value was not decoded, so that the page
    shows its bytes.
    """
    if reading is None or reading.text is None:
        return None
    return Shown("json", visible(reading.text), len(reading.text), reading.is_cut)


def _as_text(part: bytes, *, is_cut: bool) -> str | None:
    """Return the bytes as text; None if the bytes are not UTF-8, or if more than a tenth of the characters would be
    escapes. The last character may be incomplete, because the bytes may be cut.
    """
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.end < len(part) or error.start < len(part) - 3:
            return None
        text = part[: error.start].decode()
    odd = sum(not c.isprintable() and c not in KEPT for c in text)
    return text if odd * 10 <= len(text) else None


def _indented(text: str) -> str | None:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        document = json.loads(text)
        return json.dumps(document, indent=2, ensure_ascii=False) if _is_flat(document) else None
    except (ValueError, RecursionError):
        return None


def _is_flat(document: Any) -> bool:
    """Return whether the document is nested at most MAX_JSON_DEPTH deep."""
    level = [document]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


def _hex(part: bytes, *, in_lines: bool) -> str:
    part = part[:HEX_BYTES]
    if not in_lines:
        return part.hex(" ")
    lines = []
    for start in range(0, len(part), HEX_LINE):
        line = part[start : start + HEX_LINE]
        letters = "".join(chr(c) if 32 <= c < 127 else "·" for c in line)
        lines.append(f"{start:06x}  {line.hex(' '):{HEX_LINE * 3}} {letters}")
    return "\n".join(lines)


def byte_count(count: int | None) -> str | None:
    """`1.5 MiB`."""
    if count is None:
        return None
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def number(count: int | None) -> str | None:
    """Return the number with thin spaces between thousands."""
    return None if count is None else f"{count:,}".replace(",", THOUSANDS)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
