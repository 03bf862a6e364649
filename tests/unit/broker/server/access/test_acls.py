"""CreateAcls, DescribeAcls and DeleteAcls: which requests are refused, what is written, and the responses."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with

from oncelog_broker.metadata.stores.store import ConnectionLost
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.access import create_acls, delete_acls, describe_acls
from oncelog_protocol.acls import AclEntry, AclOperation, AclPermission, PatternType, ResourcePattern, ResourceType
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.create_acls import CreateAclsRequest
from oncelog_protocol.messages.delete_acls import DeleteAclsRequest
from oncelog_protocol.messages.describe_acls import DescribeAclsRequest

TOPIC, GROUP, CLUSTER, USER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.USER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE_READS = AclEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
BOB_WRITES = AclEntry("User:bob", "*", AclOperation.WRITE, AclPermission.DENY)
ORDERS, RETURNS = ResourcePattern(TOPIC, "orders", LITERAL), ResourcePattern(TOPIC, "returns", LITERAL)


class Acls:
    """The ACLs of a cluster; `changed` lists the patterns that were written."""

    def __init__(self, **failing: ErrorCode) -> None:
        self.kept: dict[ResourcePattern, frozenset[AclEntry]] = {
            ORDERS: frozenset({ALICE_READS, BOB_WRITES}),
            RETURNS: frozenset({ALICE_READS}),
        }
        self.shown: dict[ResourcePattern, frozenset[AclEntry]] | None = None
        """The ACLs in the image; None means that the image has those of the store."""
        self.changed: list[ResourcePattern] = []
        self.failing = failing
        self.waited = 0
        self.is_store_away = False

    async def change(self, pattern: ResourcePattern, to: Callable[[frozenset[AclEntry]], Any]) -> frozenset[AclEntry]:
        if (code := self.failing.get(pattern.name)) is not None:
            raise KafkaError(code, "the store is away")
        before = self.kept.get(pattern, frozenset())
        self.kept[pattern] = to(before)
        self.changed.append(pattern)
        return before

    async def synced(self) -> None:
        self.waited += 1
        if self.is_store_away:
            raise ConnectionLost("", "away")

    async def ask(
        self, handler: Any, api: ApiKey, request: Any, *, version: int = 3, refused: Any = (), **more: Any
    ) -> Any:
        context = asked(
            api,
            version,
            refused=refused,
            **{"authorizer": object(), "acls": self, "metadata": SimpleNamespace(synced=self.synced)} | more,
            image=image_with(acls=self.kept if self.shown is None else self.shown),
        )
        answer = await answered(handler.handle, request, context)
        await context.services.tasks.close()
        return answer


def creation(pattern: ResourcePattern = ORDERS, entry: AclEntry = ALICE_READS, **other: Any) -> Any:
    fields = {
        "resource_type": pattern.type,
        "resource_name": pattern.name,
        "resource_pattern_type": pattern.pattern,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }
    return CreateAclsRequest.AclCreation(**fields | other)


async def create(acls: Acls, *creations: Any, **options: Any) -> list[int]:
    request = CreateAclsRequest(creations=list(creations))
    answer = await acls.ask(create_acls, ApiKey.CREATE_ACLS, request, **options)
    return [result.error_code for result in answer.results]


async def test_acls_of_one_pattern_are_written_together() -> None:
    acls = Acls()
    new = ResourcePattern(GROUP, "g", PREFIXED)
    codes = await create(acls, creation(new), creation(new, BOB_WRITES), creation(new), creation(ORDERS))
    assert codes == [ErrorCode.NONE] * 4, "one that is there already is no error"
    assert (acls.changed, acls.kept[new]) == ([new, ORDERS], {ALICE_READS, BOB_WRITES})
    assert acls.waited == 1, "answered when this broker decides by them"


async def test_written_acls_hold_though_the_store_goes_away_afterwards() -> None:
    acls = Acls()
    acls.is_store_away = True
    assert await create(acls, creation(RETURNS, BOB_WRITES)) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_type": ResourceType.ANY},
        {"resource_type": 77},
        {"resource_pattern_type": PatternType.MATCH},
        {"operation": AclOperation.ANY},
        {"permission_type": AclPermission.ANY},
        {"permission_type": 0},
        {"resource_type": CLUSTER, "resource_name": "another cluster"},
        {"resource_name": ""},
        {"resource_name": ".."},
        {"resource_name": "a/b"},
        {"principal": "alice"},
        {"host": ""},
    ],
)
async def test_malformed_acls_are_refused(fields: dict[str, Any]) -> None:
    acls = Acls()
    assert await create(acls, creation(**fields), creation(RETURNS, BOB_WRITES)) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert acls.changed == [RETURNS]


async def test_each_resource_pattern_fails_alone() -> None:
    acls = Acls(orders=ErrorCode.REQUEST_TIMED_OUT)
    codes = await create(acls, creation(ORDERS), creation(RETURNS), creation(ORDERS, BOB_WRITES))
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]


async def test_without_rights_or_an_authorizer_nothing_is_changed() -> None:
    acls = Acls()
    denied = await create(acls, creation(), refused={rules.CREATE_ACLS})
    assert denied == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert await create(acls, creation(), authorizer=None) == [ErrorCode.SECURITY_DISABLED]
    assert (acls.changed, acls.waited) == ([], 0)


def filters(**fields: Any) -> dict[str, Any]:
    everything = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermission.ANY,
    }
    return everything | fields


async def describe(acls: Acls, version: int = 3, **fields: Any) -> Any:
    options = {key: fields.pop(key) for key in ("refused", "authorizer") if key in fields}
    request = DescribeAclsRequest(**filters(**fields))
    return await acls.ask(describe_acls, ApiKey.DESCRIBE_ACLS, request, version=version, **options)


async def test_matching_acls_are_grouped_by_resource_pattern() -> None:
    answer = await describe(Acls(), principal_filter="User:alice")
    found = {resource.resource_name: [acl.principal for acl in resource.acls] for resource in answer.resources}
    assert found == {"orders": ["User:alice"], "returns": ["User:alice"]}
    assert (await describe(Acls(), resource_name_filter="nothing")).resources == []


@pytest.mark.parametrize(("version", "shown"), [(2, set()), (3, {"carol"})])
async def test_acls_of_users_are_shown_to_those_who_know_them(version: int, shown: set[str]) -> None:
    acls = Acls()
    acls.kept = {ResourcePattern(USER, "carol", LITERAL): frozenset({ALICE_READS})}
    assert {resource.resource_name for resource in (await describe(acls, version)).resources} == shown


async def test_describing_acls_needs_the_right_an_authorizer_and_a_valid_filter() -> None:
    for fields, code in (
        ({"refused": {rules.DESCRIBE_ACLS}}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ({"authorizer": None}, ErrorCode.SECURITY_DISABLED),
        ({"operation": 99}, ErrorCode.INVALID_REQUEST),
    ):
        answer = await describe(Acls(), **fields)
        assert (answer.error_code, answer.resources) == (code, [])


async def delete(acls: Acls, *asked_for: dict[str, Any], **options: Any) -> list[tuple[int, set[Any]]]:
    """Return for each filter its error code, and (resource name, principal, error code) of each matching ACL."""
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**fields) for fields in asked_for])
    answer = await acls.ask(delete_acls, ApiKey.DELETE_ACLS, request, **options)
    return [
        (result.error_code, {(acl.resource_name, acl.principal, acl.error_code) for acl in result.matching_acls})
        for result in answer.filter_results
    ]


async def test_each_acl_is_reported_once() -> None:
    acls = Acls()
    told = await delete(acls, filters(principal_filter="User:alice"), filters())
    of_alice = {("orders", "User:alice", 0), ("returns", "User:alice", 0)}
    assert told == [(ErrorCode.NONE, of_alice), (ErrorCode.NONE, {("orders", "User:bob", 0)})]
    assert acls.kept == {ORDERS: frozenset(), RETURNS: frozenset()}
    assert acls.waited == 1


async def test_a_filter_with_a_pattern_is_matched_against_the_store() -> None:
    """The cluster image may lag behind the store, but the request must still find every ACL of its pattern."""
    acls = Acls()
    acls.shown = {}
    one = filters(resource_type_filter=TOPIC, resource_name_filter="orders", pattern_type_filter=LITERAL)
    assert await delete(acls, one) == [(0, {("orders", "User:alice", 0), ("orders", "User:bob", 0)})]
    assert acls.changed == [ORDERS]


async def test_a_failed_deletion_of_acls_is_reported_with_the_reason() -> None:
    acls = Acls(orders=ErrorCode.REQUEST_TIMED_OUT)
    ((_, told),) = await delete(acls, filters(principal_filter="User:alice"))
    assert told == {("orders", "User:alice", ErrorCode.REQUEST_TIMED_OUT), ("returns", "User:alice", ErrorCode.NONE)}


async def test_deleting_acls_needs_the_right_and_an_authorizer() -> None:
    acls = Acls()
    assert await delete(acls, filters(), refused={rules.DELETE_ACLS}) == [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, set())
    ]
    assert await delete(acls, filters(), authorizer=None) == [(ErrorCode.SECURITY_DISABLED, set())]
    assert acls.changed == []
