"""ACLs are stored in Kafka's nodes, whose versions guard each write, and appear in the cluster image."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oncelog_broker.controller.acls import AclController, Entries
from oncelog_broker.metadata.model.acl_payload import encode_acls, parse_acls
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.payloads import MalformedPayload
from oncelog_broker.metadata.stores.store import Set
from oncelog_protocol.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from oncelog_protocol.errors import ErrorCode, KafkaError

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "jobs-", PatternType.PREFIXED)
READ = AclEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
WRITE = AclEntry("User:bob", "10.0.0.1", AclOperation.IDEMPOTENT_WRITE, AclPermission.DENY)
NODE = "/kafka-acl/Topic/orders"


@pytest.fixture
def acls(store: Any) -> AclController:
    return AclController(store)


@pytest.fixture
async def cache(store: Any) -> AsyncIterator[MetadataCache]:
    cache = await MetadataCache.start(store)
    yield cache
    await cache.close()


def adding(*entries: AclEntry) -> Any:
    return lambda before: before | frozenset(entries)


def removing(*entries: AclEntry) -> Any:
    return lambda before: before - frozenset(entries)


async def test_a_pattern_is_a_node_as_kafka_has_it(store: Any, acls: AclController) -> None:
    await acls.change(ORDERS, adding(READ))
    await acls.change(PREFIX, adding(WRITE))
    data, _ = await store.get(NODE)
    assert json.loads(data) == {
        "version": 1,
        "acls": [{"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}],
    }
    data, _ = await store.get("/kafka-acl-extended/prefixed/TransactionalId/jobs-")
    assert json.loads(data)["acls"][0]["operation"] == "IdempotentWrite"


async def test_a_change_builds_on_what_is_there_and_says_what_was(acls: AclController) -> None:
    assert await acls.change(ORDERS, adding(READ)) == frozenset()
    assert await acls.change(ORDERS, adding(WRITE)) == {READ}
    assert await acls.change(ORDERS, removing(READ)) == {READ, WRITE}


async def test_the_node_goes_with_the_last_entry(store: Any, acls: AclController) -> None:
    await acls.change(ORDERS, adding(READ))
    await acls.change(ORDERS, removing(READ))
    assert await store.exists(NODE) is None


async def test_two_concurrent_changes_of_acls_are_both_kept(store: Any, acls: AclController) -> None:
    await acls.change(ORDERS, adding(READ))
    data = encode_acls([READ, WRITE])
    someone_else = [Set(NODE, data)]

    async def change_meanwhile(before: Entries) -> None:
        while someone_else:
            await store.multi([someone_else.pop()])

    get_many = store.get_many

    async def get_then_change(paths: list[str]) -> Any:
        found = await get_many(paths)
        await change_meanwhile(frozenset())
        return found

    store.get_many = get_then_change
    delete = AclEntry("User:carol", "*", AclOperation.DELETE, AclPermission.ALLOW)
    await acls.change(ORDERS, adding(delete))
    data, _ = await store.get(NODE)
    assert parse_acls(data, NODE) == {READ, WRITE, delete}


async def test_an_entry_that_was_removed_meanwhile_does_not_come_back_and_a_new_one_is_not_lost(
    store: Any, acls: AclController
) -> None:
    """An ACL node is deleted with its last entry, so the versions of a node that is created later start at 0 again."""
    await acls.change(ORDERS, adding(READ))

    async def others() -> None:
        await acls.change(ORDERS, removing(READ))
        await acls.change(ORDERS, adding(WRITE))

    store.before_write = others
    delete = AclEntry("User:carol", "*", AclOperation.DELETE, AclPermission.ALLOW)
    assert await acls.change(ORDERS, adding(delete)) == {WRITE}
    data, _ = await store.get(NODE)
    assert parse_acls(data, NODE) == {WRITE, delete}


async def test_an_unreadable_node_is_not_overwritten(store: Any, acls: AclController) -> None:
    await store.create(NODE, b"nonsense", make_parents=True)
    with pytest.raises(KafkaError) as refused:
        await acls.change(ORDERS, adding(READ))
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await store.get(NODE))[0] == b"nonsense"


async def test_the_image_follows(acls: AclController, cache: MetadataCache) -> None:
    await acls.change(ORDERS, adding(READ))
    image = await cache.synced()
    assert image.acls == {ORDERS: {READ}}
    kept = image.acls[ORDERS]
    await acls.change(PREFIX, adding(WRITE))
    image = await cache.synced()
    assert image.acls[ORDERS] is kept
    assert image.acls[PREFIX] == {WRITE}
    await acls.change(ORDERS, removing(READ))
    assert (await cache.synced()).acls == {PREFIX: {WRITE}}


async def test_a_new_image_has_all_and_whom_nobody_can_read_keeps_out_everybody(
    store: Any, acls: AclController
) -> None:
    await acls.change(ORDERS, adding(READ))
    await store.create("/kafka-acl/Group/g", b'{"version":1,"acls":[{"principal":"User:a"}]}', make_parents=True)
    cache = await MetadataCache.start(store)
    unreadable = ResourcePattern(ResourceType.GROUP, "g", PatternType.LITERAL)
    assert cache.image.acls == {ORDERS: {READ}, unreadable: frozenset()}
    await cache.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":[{"principal":"User:a","host":"*","operation":"Fly","permissionType":"Deny"}]}',
        b'{"version":1,"acls":[{"principal":1,"host":"*","operation":"Read","permissionType":"Deny"}]}',
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedPayload):
        parse_acls(data, NODE)
