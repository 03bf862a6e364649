"""Compares the responses to DescribeAcls, CreateAcls and DeleteAcls of brokers without an authorizer."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.acls import AclOperation, AclPermission, PatternType, ResourceType
from oncelog_protocol.api import ApiKey

FILTER = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermission.ANY,
}
ACL = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "any",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": AclPermission.ALLOW,
}


@scenario
def without_authorizer(side: Side) -> None:
    for version in (1, 2, 3):
        side.ask(ApiKey.DESCRIBE_ACLS, version, FILTER, "all")
        for label, acls in (("none", []), ("one", [ACL]), ("two", [ACL, {**ACL, "resource_name": ""}])):
            side.ask(ApiKey.CREATE_ACLS, version, {"creations": acls}, f"create {label}")
        for label, filters in (("none", []), ("one", [FILTER]), ("two", [FILTER, FILTER])):
            side.ask(ApiKey.DELETE_ACLS, version, {"filters": filters}, f"delete {label}")
