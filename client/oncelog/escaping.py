"""(pure) Escapes text of foreign origin for display in a terminal or page.

Names, metadata and messages may come from any client that is allowed to write to the cluster. Invisible characters, and
characters
that affect their neighbours (control characters of ASCII and Latin-1, direction marks, zero-width characters, line
breaks), become escapes: `\\x1b`, `\\u202e`."""

from __future__ import annotations

import shlex
from collections.abc import Collection


def visible(text: str, kept: Collection[str] = "") -> str:
    """Return `text` with a Python escape for each unprintable character; characters in `kept` are not escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def visible_bytes(data: bytes) -> bytes:
    """Escape UTF-8 text as `visible` does; bytes that are not UTF-8 become `\\xHH`."""
    return visible(data.decode(errors="backslashreplace")).encode()


def visible_json(document: str) -> str:
    """Return a JSON document with JSON escapes for the same characters, so that parsing it gives the same values.

    This function is needed because json.dumps never escapes 0x7f, and escapes higher characters only with
    `ensure_ascii`. Line breaks between
    values are kept.
    """
    if document.isprintable():
        return document
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in document)


def shell_quoted(text: str) -> str:
    """Return `text` as a shell argument to copy: quoted if needed, and in bash's form `$'...'` if it has unprintable
    characters.
    """
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_shell_escape(c) for c in text) + "'"


def _shell_escape(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _json_escape(character: str) -> str:
    """Return the escapes of a character as UTF-16 code units, as in JSON."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
