"""The value of a password key, which is never shown."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"
"""The text that replaces a secret; Kafka logs the same text."""


class Secret:
    """A secret text that only `reveal` returns; formatting, repr and log lines show HIDDEN."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret text, for immediate use. The caller must not store the text."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))
