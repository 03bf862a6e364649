"""What all changes have in common: made of the fields of a form, shown before it is done, then done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from oncelog_console.link import Link

MAX_NUMBER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known before a change is done. `facts`: label and text. `warning`: what is lost by it."""

    facts: tuple[tuple[str, str], ...] = ()
    warning: str | None = None


class Change(ABC):
    """One change. `name_in_url` is also the name of the template of its form, if it `has_form`; `section`: the page
    that the navigation marks; `heading`: above the empty form; `verb`: the button's text."""

    name_in_url: ClassVar[str]
    section: ClassVar[str]
    verb: ClassVar[str]
    heading: ClassVar[str] = "A change"
    has_form: ClassVar[bool] = False
    """Otherwise the address says all, and the change needs only to be confirmed."""
    is_dangerous: ClassVar[bool] = False
    is_secret: ClassVar[bool] = False
    """Whether a field must not be sent back to the browser: then it is done without being shown before."""

    @classmethod
    @abstractmethod
    def from_fields(cls, fields: Fields) -> Self:
        """Raises BadField."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The question: "Delete orders?"."""

    @abstractmethod
    def command(self, bootstrap: str) -> str:
        """The command that does the same."""

    async def preview(self, link: Link) -> Preview:
        """Look, and change nothing. Raises KafkaError if the cluster would refuse the change, BadField."""
        return Preview()

    @abstractmethod
    async def apply(self, link: Link) -> str:
        """Do it. Returns what was done, a sentence. Raises KafkaError, BadField."""

    @property
    @abstractmethod
    def back(self) -> tuple[str, dict[str, str]]:
        """The path and the parameters of the page to show afterwards."""


class BadField(ValueError):
    """A field of a form is missing or wrong. The message says which, and what it should be."""


class Fields:
    """The fields of a form, as text."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str, what: str) -> str:
        """A field that must be filled in; `what`: its name for the user. Raises BadField."""
        value = self._given.get(name, "")
        if not value:
            raise BadField(f"{what} is missing")
        return value

    def optional(self, name: str) -> str | None:
        """None if the field is empty."""
        return self._given.get(name) or None

    def raw(self, name: str) -> str:
        """The text of a field, which may be empty. Line ends are newlines, whatever the browser has made of them."""
        return self._given.get(name, "").replace("\r\n", "\n").replace("\r", "\n")

    def is_set(self, name: str) -> bool:
        """Whether a box is ticked."""
        return bool(self._given.get(name))

    def number(self, name: str, what: str, low: int = 0, high: int = MAX_NUMBER) -> int | None:
        """None if the field is empty. Raises BadField."""
        text = self._given.get(name, "").strip()
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high):
            raise BadField(f"{what} is a number from {low} to {high}, not {text[:40]!r}")
        return int(text)

    def needed_number(self, name: str, what: str, low: int = 0, high: int = MAX_NUMBER) -> int:
        """Raises BadField."""
        number = self.number(name, what, low, high)
        if number is None:
            raise BadField(f"{what} is missing")
        return number

    def lines(self, name: str) -> list[str]:
        """The lines of a field that are not blank."""
        return [line.strip() for line in self.raw(name).split("\n") if line.strip()]

    def choice(self, name: str, what: str, choices: Mapping[str, Any]) -> Any:
        """One of `choices`, by its name. Raises BadField."""
        text = self._given.get(name, "")
        if text not in choices:
            raise BadField(f"{what} is one of {', '.join(choices)}, not {text[:40]!r}")
        return choices[text]
