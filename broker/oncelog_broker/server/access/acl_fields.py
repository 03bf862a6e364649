"""Convert ACLs between the types of `oncelog_protocol/acls.py` and the numbers and strings of requests and responses. A
client may have sent any number or string.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from oncelog_protocol.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    EntryFilter,
    PatternFilter,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from oncelog_protocol.errors import ErrorCode, KafkaError

LAST_TYPE_BEFORE_USERS = ResourceType.DELEGATION_TOKEN
FIRST_VERSION_WITH_USERS = 3
_E = TypeVar("_E", ResourceType, PatternType, AclOperation, AclPermission)


class FilterFields(Protocol):
    """The fields of DescribeAcls and DeleteAcls that select ACLs."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class CreationFields(Protocol):
    """The fields of an ACL in a CreateAcls request."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def filter_of(fields: FilterFields) -> AclFilter:
    """Return the ACL filter that the fields describe. Raises KafkaError INVALID_REQUEST if a field has an unknown
    number.
    """
    return AclFilter(
        PatternFilter(
            _known(ResourceType, fields.resource_type_filter),
            fields.resource_name_filter,
            _known(PatternType, fields.pattern_type_filter),
        ),
        EntryFilter(
            fields.principal_filter,
            fields.host_filter,
            _known(AclOperation, fields.operation),
            _known(AclPermission, fields.permission_type),
        ),
    )


def pattern_of(fields: CreationFields) -> ResourcePattern:
    """Return the resource pattern of the ACL. Raises KafkaError INVALID_REQUEST if the number of the resource type or
    pattern type is unknown, or stands for several types.
    """
    kind = _known(ResourceType, fields.resource_type)
    pattern = _known(PatternType, fields.resource_pattern_type)
    if kind is ResourceType.ANY or pattern in (PatternType.ANY, PatternType.MATCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An ACL is about one type of resource and of pattern, not any.")
    return ResourcePattern(kind, fields.resource_name, pattern)


def entry_of(fields: CreationFields) -> AclEntry:
    """Return the entry of the ACL: principal, host, operation and permission. Raises KafkaError INVALID_REQUEST if the
    number of the operation or permission is unknown, or stands for several values.
    """
    operation = _known(AclOperation, fields.operation)
    permission = _known(AclPermission, fields.permission_type)
    if operation is AclOperation.ANY or permission is AclPermission.ANY:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An ACL allows or denies one operation, or All; not Any.")
    return AclEntry(fields.principal, fields.host, operation, permission)


def _known(kind: type[_E], number: int) -> _E:
    try:
        known = kind(number)
    except ValueError:
        known = kind(0)
    if known == 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid {kind.__name__} {number}.")
    return known
