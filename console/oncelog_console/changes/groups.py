"""Changes of groups: delete a group, or offsets that it has committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from oncelog import TopicPartition
from oncelog.admin import Admin
from oncelog_console.changes.change import BadField, Change, Fields, Preview
from oncelog_console.changes.commands import oncelog
from oncelog_console.link import Link
from oncelog_console.lookups import share_groups
from oncelog_console.visible_text import plural


@dataclass(frozen=True, slots=True)
class DeleteGroup(Change):
    """Deletes a group without members, and its offsets."""

    section: ClassVar[str] = "groups"
    name_in_url: ClassVar[str] = "group-delete"
    heading: ClassVar[str] = "Delete a group"
    verb: ClassVar[str] = "Delete it"
    is_dangerous: ClassVar[bool] = True
    group_id: str

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(fields.text("id", "the group"))

    @property
    def title(self) -> str:
        return f"Delete the group {self.group_id}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(bootstrap, "groups delete", self.group_id)

    async def preview(self, link: Link) -> Preview:
        admin = await link.admin()
        group = (await admin.groups.describe([self.group_id]))[self.group_id]
        if group.members:
            raise BadField(f"the group has {plural(len(group.members), 'member')}: stop them first")
        committed = await admin.groups.offsets(self.group_id)
        warning = "Its members begin at auto.offset.reset if they come back."
        return Preview((("Committed offsets", str(len(committed))),), warning)

    async def apply(self, link: Link) -> str:
        await (await link.admin()).groups.delete([self.group_id])
        return f"Deleted the group {self.group_id}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/groups", {}


@dataclass(frozen=True, slots=True)
class DeleteShareGroup(Change):
    """Deletes a share group without members, and its progress (KIP-932)."""

    section: ClassVar[str] = "groups"
    name_in_url: ClassVar[str] = "share-group-delete"
    heading: ClassVar[str] = "Delete a share group"
    verb: ClassVar[str] = "Delete it"
    is_dangerous: ClassVar[bool] = True
    group_id: str

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(fields.text("id", "the group"))

    @property
    def title(self) -> str:
        return f"Delete the share group {self.group_id}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(bootstrap, "shares delete", self.group_id)

    async def preview(self, link: Link) -> Preview:
        look = await share_groups.look(await link.admin(), self.group_id)
        if look.group.members:
            raise BadField(f"the group has {plural(len(look.group.members), 'member')}: stop them first")
        warning = "Its members begin at share.auto.offset.reset if they come back."
        return Preview((("Partitions with progress", str(len(look.rows))),), warning)

    async def apply(self, link: Link) -> str:
        await (await link.admin()).groups.delete([self.group_id])
        return f"Deleted the share group {self.group_id}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/groups", {}


@dataclass(frozen=True, slots=True)
class DeleteOffsets(Change):
    """Deletes the offsets that a group has committed in a topic."""

    section: ClassVar[str] = "groups"
    name_in_url: ClassVar[str] = "offsets-delete"
    heading: ClassVar[str] = "Delete offsets of a group"
    verb: ClassVar[str] = "Delete them"
    is_dangerous: ClassVar[bool] = True
    group_id: str
    topic: str

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(fields.text("id", "the group"), fields.text("topic", "the topic"))

    @property
    def title(self) -> str:
        return f"Delete the offsets of {self.group_id} in {self.topic}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(bootstrap, "groups delete-offsets", self.group_id, topic=[self.topic])

    async def preview(self, link: Link) -> Preview:
        partitions = await self._partitions(await link.admin())
        return Preview((("Partitions", str(len(partitions))),), "The group begins there at auto.offset.reset again.")

    async def apply(self, link: Link) -> str:
        admin = await link.admin()
        partitions = await self._partitions(admin)
        await admin.groups.delete_offsets(self.group_id, partitions)
        return f"Deleted the offsets of {self.group_id} in {plural(len(partitions), 'partition')} of {self.topic}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/group", {"id": self.group_id}

    async def _partitions(self, admin: Admin) -> list[TopicPartition]:
        """Return the partitions of the topic for which the group has committed an offset. Raises BadField if there are
        none.
        """
        committed = [where for where in await admin.groups.offsets(self.group_id) if where.topic == self.topic]
        if not committed:
            raise BadField(f"the group has committed nothing in {self.topic}")
        return committed
