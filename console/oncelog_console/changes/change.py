"""The common parts of all changes: a change is built from the fields of a form, previewed, and then applied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from oncelog_console.link import Link

MAX_NUMBER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Preview:
    """The preview of a change: what the user sees before the change is applied. `facts`: pairs of a label and a text.
    `warning`: text that says which data the change destroys.
    """

    facts: tuple[tuple[str, str], ...] = ()
    warning: str | None = None


class Change(ABC):
    """A change of a cluster. `name_in_url` is also the name of the template of the change's form, if the change
    `has_form`. `section` is the page that the navigation highlights, `heading` the heading of the empty form,
    `verb` the text of the button.
    """

    name_in_url: ClassVar[str]
    section: ClassVar[str]
    verb: ClassVar[str]
    heading: ClassVar[str] = "A change"
    has_form: ClassVar[bool] = False
    """Whether the change has a form. A change without a form is described by its URL, and the user only confirms it."""
    is_dangerous: ClassVar[bool] = False
    is_secret: ClassVar[bool] = False
    """Whether the form has a secret field, which must not be sent back to the browser; such a change is applied without
    a preview.
    """

    @classmethod
    @abstractmethod
    def from_fields(cls, fields: Fields) -> Self:
        """Return the change that the fields of a form describe. Raises BadField."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The question to the user: "Delete orders?"."""

    @abstractmethod
    def command(self, bootstrap: str) -> str:
        """Return the `oncelog` command that makes the same change."""

    async def preview(self, link: Link) -> Preview:
        """Return the facts about the change, without changing anything. Raises BadField, and KafkaError if the cluster
        would refuse the change.
        """
        return Preview()

    @abstractmethod
    async def apply(self, link: Link) -> str:
        """Do it. Apply the change; returns a sentence that says what was done. Raises KafkaError or BadField."""

    @property
    @abstractmethod
    def back(self) -> tuple[str, dict[str, str]]:
        """Return the path and the parameters of the page to show afterwards."""


class BadField(ValueError):
    """Raised if a field of a form is missing or wrong. The message names the field and the expected value."""


class Fields:
    """The fields of a form, as strings."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str, what: str) -> str:
        """Return the text of a required field; `what`: the field's name for the user. Raises BadField."""
        value = self._given.get(name, "")
        if not value:
            raise BadField(f"{what} is missing")
        return value

    def optional(self, name: str) -> str | None:
        """Return the text of a field; None if the field is empty."""
        return self._given.get(name) or None

    def raw(self, name: str) -> str:
        """Return the text of a field, which may be empty. Line ends become newlines, whatever the browser has sent."""
        return self._given.get(name, "").replace("\r\n", "\n").replace("\r", "\n")

    def is_set(self, name: str) -> bool:
        """Return whether a check box is ticked."""
        return bool(self._given.get(name))

    def number(self, name: str, what: str, low: int = 0, high: int = MAX_NUMBER) -> int | None:
        """Return the number in a field; None if the field is empty. Raises BadField."""
        text = self._given.get(name, "").strip()
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high):
            raise BadField(f"{what} is a number from {low} to {high}, not {text[:40]!r}")
        return int(text)

    def needed_number(self, name: str, what: str, low: int = 0, high: int = MAX_NUMBER) -> int:
        """Return the number in a required field, from `low` to `high`; `what` is the field's name for the user. Raises
        BadField.
        """
        number = self.number(name, what, low, high)
        if number is None:
            raise BadField(f"{what} is missing")
        return number

    def lines(self, name: str) -> list[str]:
        """Return the lines of a field, without blank lines."""
        return [line.strip() for line in self.raw(name).split("\n") if line.strip()]

    def choice(self, name: str, what: str, choices: Mapping[str, Any]) -> Any:
        """Return the value in `choices` that the field names. Raises BadField."""
        text = self._given.get(name, "")
        if text not in choices:
            raise BadField(f"{what} is one of {', '.join(choices)}, not {text[:40]!r}")
        return choices[text]
