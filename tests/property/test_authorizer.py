"""The authorizer decides like Kafka's StandardAuthorizer; decisions are compared with a model that reads every ACL."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.security.authorizer.authorizer import StandardAuthorizer
from oncelog_broker.security.authorizer.rules import Rule, kind_of
from oncelog_broker.security.principal import parse_principal
from oncelog_protocol.acls import (
    EVERYBODY,
    OPERATIONS,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode

ADMIN, ALICE, BOB = "User:admin", "User:alice", "User:bob"
HERE, THERE = "10.0.0.1", "10.0.0.2"
IMPLIED = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}

names = st.text("ab*", min_size=1, max_size=4)
kinds = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
operations = st.sampled_from(OPERATIONS)
patterns = st.builds(
    ResourcePattern,
    kinds,
    st.one_of(names, st.just(WILDCARD)),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
entries = st.builds(
    AclEntry,
    st.sampled_from([ALICE, BOB, EVERYBODY]),
    st.sampled_from([WILDCARD, HERE, THERE]),
    operations,
    st.sampled_from([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
)
bindings = st.lists(st.builds(AclBinding, patterns, entries), max_size=12)
questions = st.lists(
    st.tuples(
        st.sampled_from([ALICE, BOB, ADMIN]),
        st.sampled_from([HERE, THERE]),
        operations.filter(lambda operation: operation is not AclOperation.ALL),
        kinds,
        names,
    ),
    min_size=1,
    max_size=8,
)


def as_image(acls: Iterable[AclBinding]) -> dict[ResourcePattern, frozenset[AclEntry]]:
    grouped: dict[ResourcePattern, set[AclEntry]] = {}
    for pattern, entry in acls:
        grouped.setdefault(pattern, set()).add(entry)
    return {pattern: frozenset(some) for pattern, some in grouped.items()}


def rule(operation: AclOperation, kind: ResourceType) -> Rule:
    return Rule(
        ApiKey.METADATA, operation, kind, "", "", ErrorCode.TOPIC_AUTHORIZATION_FAILED, False, kind_of(operation, kind)
    )


def may(
    authorizer: StandardAuthorizer,
    principal: str,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str | None,
) -> bool:
    """Return the authorizer's decision for a request; the authorizer consults its cache first."""
    asked, rights = rule(operation, kind), authorizer.rights_of(parse_principal(principal), host)
    return (asked.kind, name) in rights.allowed or authorizer.may(rights, asked, name)


def model(
    acls: Iterable[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    allows_without: bool,
) -> bool:
    """Read each ACL, and return the decision that Kafka's documentation prescribes."""
    if principal == ADMIN:
        return True
    of_resource = [acl for acl in acls if acl.pattern.type is kind and holds_for(acl.pattern, name)]
    if not of_resource:
        return allows_without
    of_asker = [
        acl.entry
        for acl in of_resource
        if acl.entry.principal in (principal, EVERYBODY) and acl.entry.host in (host, WILDCARD)
    ]
    if any(e.permission is AclPermission.DENY and e.operation in (operation, AclOperation.ALL) for e in of_asker):
        return False
    allowing = {operation, AclOperation.ALL} | IMPLIED.get(operation, set())
    return any(e.permission is AclPermission.ALLOW and e.operation in allowing for e in of_asker)


def holds_for(pattern: ResourcePattern, name: str) -> bool:
    if pattern.pattern is PatternType.PREFIXED:
        return name[: len(pattern.name)] == pattern.name
    return pattern.name in (name, WILDCARD)


@given(before=bindings, acls=bindings, asked=questions, allows_without=st.booleans())
def test_the_authorizer_decides_as_if_it_read_every_acl(
    before: list[AclBinding],
    acls: list[AclBinding],
    asked: list[tuple[str, str, AclOperation, ResourceType, str]],
    allows_without: bool,
) -> None:
    authorizer = StandardAuthorizer([parse_principal(ADMIN)], allows_without_acls=allows_without)
    for some in (before, acls):  # the second index shares the unchanged ACLs with the first
        authorizer.use(as_image(some))
        for principal, host, operation, kind, name in asked * 2:  # the second time the decision comes from the cache
            assert may(authorizer, principal, host, operation, kind, name) == model(
                some, principal, host, operation, kind, name, allows_without
            )


@given(acls=bindings, allows_without=st.booleans(), principal=st.sampled_from([ALICE, BOB, ADMIN]))
def test_the_right_to_write_any_topic_needs_one_writable_topic(
    acls: list[AclBinding], allows_without: bool, principal: str
) -> None:
    """The authorizer may report that writing to "any topic" is allowed only if there is a topic to which writing is
    allowed (KIP-679).
    """
    authorizer = StandardAuthorizer([parse_principal(ADMIN)], allows_without_acls=allows_without)
    authorizer.use(as_image(acls))
    if may(authorizer, principal, HERE, AclOperation.WRITE, ResourceType.TOPIC, None):
        stars = {acl.pattern.name for acl in acls}
        candidates = {"hardcode", *stars, *(name + "zz" for name in stars)}
        assert any(
            model(acls, principal, HERE, AclOperation.WRITE, ResourceType.TOPIC, name, allows_without)
            for name in candidates
        )


@given(acls=bindings, name=names, principal=st.sampled_from([ALICE, BOB, ADMIN]))
def test_authorized_operations_are_the_allowed_ones(acls: list[AclBinding], name: str, principal: str) -> None:
    authorizer = StandardAuthorizer([parse_principal(ADMIN)])
    authorizer.use(as_image(acls))
    rights = authorizer.rights_of(parse_principal(principal), HERE)
    bits = authorizer.operations(rights, ResourceType.TOPIC, name)
    for operation in SUPPORTED_OPERATIONS[ResourceType.TOPIC]:
        is_allowed = model(acls, principal, HERE, operation, ResourceType.TOPIC, name, allows_without=False)
        assert bool(bits >> operation & 1) == is_allowed
