"""Changes that create, change and delete topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from oncelog.admin import AlterConfig, AlterOperation, ConfigResource, NewTopic
from oncelog.admin.resources import BROKER_DEFAULT
from oncelog.cli.options import key_value
from oncelog_console.changes.change import BadField, Change, Fields, Preview
from oncelog_console.changes.commands import oncelog
from oncelog_console.link import Link

MAX_PARTITIONS = 100_000
MAX_REPLICAS = 1_000


def _settings(fields: Fields) -> dict[str, str]:
    """Parse lines of `key=value`. Raises BadField."""
    try:
        return dict(key_value(line) for line in fields.lines("settings"))
    except ValueError as error:
        raise BadField(f"a setting is KEY=VALUE on a line of its own: {error}") from error


def _told(settings: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


@dataclass(frozen=True, slots=True)
class CreateTopic(Change):
    """Creates a topic; a number of None means the broker's default."""

    section: ClassVar[str] = "topics"
    name_in_url: ClassVar[str] = "topic-create"
    has_form: ClassVar[bool] = True
    heading: ClassVar[str] = "Create a topic"
    verb: ClassVar[str] = "Create it"
    name: str
    partitions: int | None = None
    replicas: int | None = None
    settings: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(
            fields.text("name", "the name"),
            fields.number("partitions", "the number of partitions", 1, MAX_PARTITIONS),
            fields.number("replicas", "the number of replicas", 1, MAX_REPLICAS),
            _settings(fields),
        )

    @property
    def title(self) -> str:
        return f"Create the topic {self.name}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(
            bootstrap, "topics create", self.name,
            partitions=self.partitions, replication_factor=self.replicas, config=_told(self.settings),
        )  # fmt: skip

    async def preview(self, link: Link) -> Preview:
        admin = await link.admin()
        made = (await admin.create_topics([self._topic], validate_only=True)).get(self.name)
        if made is None or made.num_partitions < 0:
            return Preview()
        return Preview((("Partitions", str(made.num_partitions)), ("Replicas of each", str(made.replication_factor))))

    async def apply(self, link: Link) -> str:
        await (await link.admin()).create_topics([self._topic])
        return f"Created the topic {self.name}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/topic", {"name": self.name}

    @property
    def _topic(self) -> NewTopic:
        return NewTopic(
            self.name, self.partitions or BROKER_DEFAULT, self.replicas or BROKER_DEFAULT, dict(self.settings)
        )


@dataclass(frozen=True, slots=True)
class AlterTopic(Change):
    """Changes settings of a topic or its number of partitions. `reset`: the configuration keys that get their default
    values again. `partitions`: the new number of partitions; None leaves it
    unchanged.
    """

    section: ClassVar[str] = "topics"
    name_in_url: ClassVar[str] = "topic-alter"
    has_form: ClassVar[bool] = True
    heading: ClassVar[str] = "Change a topic"
    verb: ClassVar[str] = "Change it"
    name: str
    partitions: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    reset: tuple[str, ...] = ()

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        made = cls(
            fields.text("name", "the topic"),
            fields.number("partitions", "the number of partitions", 1, MAX_PARTITIONS),
            _settings(fields),
            tuple(fields.lines("reset")),
        )
        if made.partitions is None and not made.settings and not made.reset:
            raise BadField("nothing is to be changed: fill in a setting, a key to reset, or a number of partitions")
        if both := made.settings.keys() & set(made.reset):
            raise BadField(f"{', '.join(sorted(both))}: either set it or reset it")
        return made

    @property
    def title(self) -> str:
        return f"Change the topic {self.name}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(
            bootstrap, "topics alter", self.name,
            partitions=self.partitions, config=_told(self.settings), delete_config=list(self.reset),
        )  # fmt: skip

    async def preview(self, link: Link) -> Preview:
        admin = await link.admin()
        resource = ConfigResource.topic(self.name)
        known = (await admin.describe_configs([resource]))[resource]
        facts = [
            (key, f"{known[key].value if key in known else 'not known'} → {self.settings.get(key, 'the default')}")
            for key in (*self.settings, *self.reset)
        ]
        if self._changes:
            await admin.incremental_alter_configs({resource: self._changes}, validate_only=True)
        if self.partitions is not None:
            await admin.create_partitions({self.name: self.partitions}, validate_only=True)
            had = len((await admin.describe_topics([self.name]))[self.name].partitions)
            facts.append(("Partitions", f"{had} → {self.partitions}; keys go to other partitions from then on"))
        return Preview(tuple(facts))

    async def apply(self, link: Link) -> str:
        admin = await link.admin()
        if self._changes:
            await admin.incremental_alter_configs({ConfigResource.topic(self.name): self._changes})
        if self.partitions is not None:
            await admin.create_partitions({self.name: self.partitions})
        return f"Changed the topic {self.name}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/topic", {"name": self.name}

    @property
    def _changes(self) -> list[AlterConfig]:
        changes = [AlterConfig(key, value) for key, value in self.settings.items()]
        return changes + [AlterConfig(key, None, AlterOperation.DELETE) for key in self.reset]


@dataclass(frozen=True, slots=True)
class DeleteTopic(Change):
    """Deletes a topic with all its records."""

    section: ClassVar[str] = "topics"
    name_in_url: ClassVar[str] = "topic-delete"
    heading: ClassVar[str] = "Delete a topic"
    verb: ClassVar[str] = "Delete it"
    is_dangerous: ClassVar[bool] = True
    name: str

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(fields.text("name", "the topic"))

    @property
    def title(self) -> str:
        return f"Delete the topic {self.name}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(bootstrap, "topics delete", self.name)

    async def preview(self, link: Link) -> Preview:
        topic = (await (await link.admin()).describe_topics([self.name]))[self.name]
        facts = (("Partitions", str(len(topic.partitions))),)
        return Preview(facts, "All its records are deleted, on all replicas. This cannot be undone.")

    async def apply(self, link: Link) -> str:
        await (await link.admin()).delete_topics([self.name])
        return f"Deleted the topic {self.name}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/topics", {}
