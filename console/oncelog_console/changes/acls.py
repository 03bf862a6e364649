"""Changes that add and remove ACLs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from oncelog.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    EntryFilter,
    PatternFilter,
    PatternType,
    ResourcePattern,
)
from oncelog_console.changes.change import BadField, Change, Fields, Preview
from oncelog_console.changes.commands import oncelog
from oncelog_console.link import Link
from oncelog_protocol.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, WILDCARD

RESOURCES: Final[Mapping[str, AclResourceType]] = {
    kind.shown: kind
    for kind in (
        AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID, AclResourceType.CLUSTER,
    )
}  # fmt: skip
OPERATIONS: Final[Mapping[str, AclOperation]] = {
    operation.shown: operation
    for operation in dict.fromkeys(
        (AclOperation.ALL, *(each for kind in RESOURCES.values() for each in SUPPORTED_OPERATIONS[kind]))
    )
}
PATTERNS: Final[Mapping[str, PatternType]] = {each.shown: each for each in (PatternType.LITERAL, PatternType.PREFIXED)}
PERMISSIONS: Final[Mapping[str, AclPermission]] = {
    each.shown: each for each in (AclPermission.ALLOW, AclPermission.DENY)
}


def fields_of(acl: AclBinding) -> dict[str, str]:
    """Return the fields of a form that describes this ACL."""
    pattern, entry = acl
    return {
        "resource": pattern.type.shown,
        "name": pattern.name,
        "pattern": pattern.pattern.shown,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.shown,
        "permission": entry.permission.shown,
    }


def _binding(fields: Fields) -> AclBinding:
    """Return the ACL that the fields of a form describe. Raises BadField."""
    resource = fields.choice("resource", "the resource", RESOURCES)
    operation = fields.choice("operation", "the operation", OPERATIONS)
    is_cluster = resource is AclResourceType.CLUSTER
    if operation is not AclOperation.ALL and operation not in SUPPORTED_OPERATIONS[resource]:
        known = ", ".join(each.shown for each in SUPPORTED_OPERATIONS[resource])
        raise BadField(f"of a {resource.shown} there are the operations {known}")
    principal = fields.text("principal", "the principal")
    if ":" not in principal:
        raise BadField(f"a principal is User:NAME, not {principal[:40]!r}")
    pattern = ResourcePattern(
        resource,
        CLUSTER_NAME if is_cluster else fields.text("name", "the name of the resource"),
        PatternType.LITERAL if is_cluster else fields.choice("pattern", "the pattern", PATTERNS),
    )
    permission = fields.choice("permission", "the permission", PERMISSIONS)
    return AclBinding(pattern, AclEntry(principal, fields.optional("host") or WILDCARD, operation, permission))


def _command(bootstrap: str, command: str, acl: AclBinding, permission: Mapping[str, bool]) -> str:
    (kind, name, pattern), entry = acl
    names = {
        AclResourceType.TOPIC: "topic",
        AclResourceType.GROUP: "group",
        AclResourceType.TRANSACTIONAL_ID: "transactional_id",
    }
    of = {"cluster": True} if kind is AclResourceType.CLUSTER else {names[kind]: name}
    return oncelog(
        bootstrap, command, **of, prefixed=pattern is PatternType.PREFIXED, principal=entry.principal,
        host=entry.host, operation=entry.operation.shown, **permission,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AddAcl(Change):
    section: ClassVar[str] = "access"
    name_in_url: ClassVar[str] = "acl-add"
    has_form: ClassVar[bool] = True
    heading: ClassVar[str] = "Add an ACL"
    verb: ClassVar[str] = "Add it"
    acl: AclBinding

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(_binding(fields))

    @property
    def title(self) -> str:
        return "Add this ACL?"

    def command(self, bootstrap: str) -> str:
        denies = self.acl.entry.permission is AclPermission.DENY
        return _command(bootstrap, "acls add", self.acl, {"deny": denies})

    async def preview(self, link: Link) -> Preview:
        warning = "A deny wins over every allow." if self.acl.entry.permission is AclPermission.DENY else None
        return Preview((("ACL", str(self.acl)),), warning)

    async def apply(self, link: Link) -> str:
        await (await link.admin()).acls.create([self.acl])
        return f"Added the ACL: {self.acl}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/acls", {}


@dataclass(frozen=True, slots=True)
class RemoveAcl(Change):
    section: ClassVar[str] = "access"
    name_in_url: ClassVar[str] = "acl-remove"
    heading: ClassVar[str] = "Remove an ACL"
    verb: ClassVar[str] = "Remove it"
    is_dangerous: ClassVar[bool] = True
    acl: AclBinding

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(_binding(fields))

    @property
    def title(self) -> str:
        return "Remove this ACL?"

    def command(self, bootstrap: str) -> str:
        allows = self.acl.entry.permission is AclPermission.ALLOW
        return _command(bootstrap, "acls remove", self.acl, {"allow": allows, "deny": not allows})

    async def preview(self, link: Link) -> Preview:
        if not await (await link.admin()).acls.describe(self._filter):
            raise BadField("there is no such ACL any more")
        return Preview((("ACL", str(self.acl)),))

    async def apply(self, link: Link) -> str:
        deleted = await (await link.admin()).acls.delete([self._filter])
        count = sum(len(found) for found in deleted.values())
        return f"Removed the ACL: {self.acl}." if count else "There was no such ACL any more."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/acls", {}

    @property
    def _filter(self) -> AclFilter:
        pattern, entry = self.acl
        return AclFilter(PatternFilter(*pattern), EntryFilter(*entry))
