"""(pure) Text that a client chose, as a terminal or a page may show it.

Names, metadata and messages come from whoever may write to the cluster. Characters that show nothing by themselves, or
change what stands beside them (control characters of ASCII and of Latin-1, marks of direction, zero-width characters,
line breaks), become escapes: `\\x1b`, `\\u202e`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection


def visible(text: str, kept: Collection[str] = "") -> str:
    """`text`, with a Python escape for each character that is not printable; those that are `kept` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def visible_bytes(data: bytes) -> bytes:
    """The same for UTF-8; bytes that are no UTF-8 become `\\xHH`."""
    return visible(data.decode(errors="backslashreplace")).encode()


def visible_json(document: str) -> str:
    """A JSON document with JSON's own escapes for the same characters: whoever reads it gets the same values.

    json.dumps leaves out those above 0x7e without `ensure_ascii`, and 0x7f with it. Line breaks between values stay.
    """
    if document.isprintable():
        return document
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in document)


def shell_quoted(text: str) -> str:
    """`text` as an argument to be copied into a shell: in quotes where it needs them, as bash's `$'...'` where it has
    characters that are not printable."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_shell_escape(c) for c in text) + "'"


def _shell_escape(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _json_escape(character: str) -> str:
    """In UTF-16, as JSON has it."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
