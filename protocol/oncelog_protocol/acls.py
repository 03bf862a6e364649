"""Access control lists as values: which principals may or may not perform which operations on which resources (KIP-11,
KIP-290).

An ACL binds an entry (principal, host, operation, permission) to a pattern of resource names. The values of the enums
are the numbers that the protocol uses. The camel-case names are the names in Kafka's tools and ZooKeeper nodes
(`TransactionalId`, `IdempotentWrite`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import product
from typing import Final

from oncelog_protocol.light_classes import NamedTuple

WILDCARD: Final = "*"
"""A name that matches everything: as a literal resource name, `*` matches every resource of its type; as a host, it
matches every host.
"""
EVERYBODY: Final = "User:*"
"""The principal of an ACL for all users."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of type CLUSTER."""


class _Named(IntEnum):
    """Base class of enums whose member names Kafka writes in camel case."""

    @property
    def shown(self) -> str:
        """The camel-case name: `IdempotentWrite`."""
        return self.name.title().replace("_", "")


class ResourceType(_Named):
    """The type of an ACL's resource. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """How a pattern's name matches resource names. ANY and MATCH occur in filters only. ANY matches any type of
    pattern; MATCH matches the patterns that match the resource named by the filter.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Named):
    """An operation that an ACL allows or denies. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Named):
    """Whether an ACL allows or denies. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_TYPES: Final = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
"""The resource types that an ACL can have."""
OPERATIONS: Final = tuple(operation for operation in AclOperation if operation > AclOperation.ANY)

_O = AclOperation
SUPPORTED_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip
"""Maps a resource type to the operations that exist for it; the field of authorized operations in responses reports
these operations (KIP-430).
"""


class AclEntry(NamedTuple):
    """Who may or may not do what: the part of an ACL without its resources. `principal` is `User:alice`, or EVERYBODY;
    `host` an address, or WILDCARD.
    """

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


class ResourcePattern(NamedTuple):
    """The resources of an ACL."""

    type: ResourceType
    name: str
    pattern: PatternType

    def covers(self, name: str) -> bool:
        """Return whether the pattern matches the resource with that name."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclBinding(NamedTuple):
    """One ACL: a pattern and an entry."""

    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        kind, name, pattern = self.pattern
        principal, host, operation, permission = self.entry
        of = f"{pattern.name.lower()} {kind.name.lower()} {name!r}"
        return f"{permission.name.lower()} {principal} from {host} {operation.name.lower()} on {of}"


class PatternFilter(NamedTuple):
    """A filter for resource patterns; a `name` of None matches any name."""

    type: ResourceType
    name: str | None
    pattern: PatternType

    @property
    def names_one(self) -> bool:
        """Whether the filter can match only one pattern, which can be looked up directly."""
        return (
            self.type > ResourceType.ANY
            and self.name is not None
            and self.pattern in (PatternType.LITERAL, PatternType.PREFIXED)
        )

    def matches(self, pattern: ResourcePattern) -> bool:
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.name is None:
            return self.pattern in (PatternType.ANY, PatternType.MATCH, pattern.pattern)
        if self.pattern is PatternType.MATCH:
            return pattern.covers(self.name)
        return self.pattern in (PatternType.ANY, pattern.pattern) and self.name == pattern.name


class EntryFilter(NamedTuple):
    """A filter for ACL entries; None matches any principal or host."""

    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    def matches(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )


def filters_matching(entry: AclEntry) -> Iterator[EntryFilter]:
    """Yield every filter that matches the entry, the most specific first. With these, the filters that match an entry
    are found by look-ups in a large set of filters, without a comparison with each filter.
    """
    for principal, host, operation, permission in product(
        (entry.principal, None),
        (entry.host, None),
        (entry.operation, AclOperation.ANY),
        (entry.permission, AclPermission.ANY),
    ):
        yield EntryFilter(principal, host, operation, permission)


class AclFilter(NamedTuple):
    """A filter for ACLs: it matches an ACL if it matches the ACL's pattern and its entry."""

    pattern: PatternFilter
    entry: EntryFilter

    def matches(self, binding: AclBinding) -> bool:
        return self.pattern.matches(binding.pattern) and self.entry.matches(binding.entry)


EVERY_ACL: Final = AclFilter(
    PatternFilter(ResourceType.ANY, None, PatternType.ANY),
    EntryFilter(None, None, AclOperation.ANY, AclPermission.ANY),
)
