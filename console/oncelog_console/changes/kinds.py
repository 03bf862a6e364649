"""All kinds of changes, by their names in URLs such as /change/topic-create."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog_console.changes.acls import AddAcl, RemoveAcl
from oncelog_console.changes.change import Change
from oncelog_console.changes.groups import DeleteGroup, DeleteOffsets, DeleteShareGroup
from oncelog_console.changes.quotas import RemoveQuota, SetQuota
from oncelog_console.changes.records import DeleteRecords, ProduceRecord
from oncelog_console.changes.topics import AlterTopic, CreateTopic, DeleteTopic
from oncelog_console.changes.users import RemoveUser, SetUser

KINDS: Final[Mapping[str, type[Change]]] = {
    kind.name_in_url: kind
    for kind in (
        CreateTopic, AlterTopic, DeleteTopic, ProduceRecord, DeleteRecords, DeleteGroup, DeleteShareGroup,
        DeleteOffsets,
        AddAcl, RemoveAcl, SetUser, RemoveUser, SetQuota, RemoveQuota,
    )
}  # fmt: skip
