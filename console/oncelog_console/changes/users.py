"""Changes that set and remove SCRAM users. The console salts the password, and never sends the password itself to a
broker or to a page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from oncelog.admin import ScramDeletion, ScramUpsertion
from oncelog_console.changes.change import BadField, Change, Fields, Preview
from oncelog_console.changes.commands import oncelog
from oncelog_console.link import Link

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
BOTH: Final = "both"
CHOICES: Final = {BOTH: MECHANISMS, **{each: (each,) for each in MECHANISMS}}
DEFAULT_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384


@dataclass(frozen=True, slots=True)
class SetUser(Change):
    """Adds a user, or changes a user's password."""

    section: ClassVar[str] = "access"
    name_in_url: ClassVar[str] = "user-set"
    has_form: ClassVar[bool] = True
    heading: ClassVar[str] = "Set the password of a user"
    verb: ClassVar[str] = "Set the password"
    is_secret: ClassVar[bool] = True
    name: str
    password: str = field(repr=False)
    mechanisms: tuple[str, ...] = MECHANISMS
    iterations: int = DEFAULT_ITERATIONS

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        password = fields.text("password", "the password")
        if password != fields.raw("again"):
            raise BadField("the two passwords differ")
        return cls(
            fields.text("name", "the name"),
            password,
            fields.choice("mechanism", "the mechanism", CHOICES),
            fields.number("iterations", "iterations", DEFAULT_ITERATIONS, MAX_ITERATIONS) or DEFAULT_ITERATIONS,
        )

    @property
    def title(self) -> str:
        return f"Set the password of {self.name}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(bootstrap, "users set", self.name, mechanism=list(self.mechanisms), iterations=self.iterations)

    async def apply(self, link: Link) -> str:
        await (await link.admin()).alter_user_scram_credentials(
            ScramUpsertion(self.name, self.password, mechanism, self.iterations) for mechanism in self.mechanisms
        )
        return f"Set the password of {self.name}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/users", {}


@dataclass(frozen=True, slots=True)
class RemoveUser(Change):
    """Removes a user with all its mechanisms."""

    section: ClassVar[str] = "access"
    name_in_url: ClassVar[str] = "user-remove"
    heading: ClassVar[str] = "Remove a user"
    verb: ClassVar[str] = "Remove it"
    is_dangerous: ClassVar[bool] = True
    name: str

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(fields.text("name", "the name"))

    @property
    def title(self) -> str:
        return f"Remove the user {self.name}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(bootstrap, "users remove", self.name)

    async def preview(self, link: Link) -> Preview:
        found = (await (await link.admin()).describe_user_scram_credentials([self.name]))[self.name]
        mechanisms = ", ".join(info.mechanism for info in found)
        return Preview((("Mechanisms", mechanisms),), "Its connections stay until their logins end; its ACLs stay.")

    async def apply(self, link: Link) -> str:
        admin = await link.admin()
        infos = (await admin.describe_user_scram_credentials([self.name]))[self.name]
        await admin.alter_user_scram_credentials(ScramDeletion(self.name, info.mechanism) for info in infos)
        return f"Removed the user {self.name}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/users", {}
