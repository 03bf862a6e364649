"""Tests ACLs for authenticated users: each client library reports a refusal to its user, and transactions work for
authorized users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from foreign_clients import eventually
from secured_broker import ADMIN, ADMIN_PASSWORD, CLIENTS, USER, SecuredBroker

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog.admin import (
    EVERY_ACL,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternFilter,
    PatternType,
    ResourcePattern,
)
from oncelog.errors import AuthorizationFailed, ErrorCode, KafkaError

GUARDED = {"authorizer.class.name": "StandardAuthorizer", "super.users": f"User:{ADMIN}"}
LISTENER, MECHANISM = "SASL_PLAINTEXT", "SCRAM-SHA-256"
TOPIC, GROUP, TRANSACTION = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("guarded"), GUARDED) as broker:
        yield broker
    assert "Traceback" not in broker.logged


def of_user(broker: SecuredBroker) -> dict[str, Any]:
    return broker.settings(LISTENER, MECHANISM)


def of_admin(broker: SecuredBroker) -> dict[str, Any]:
    return broker.settings(LISTENER, MECHANISM, user=ADMIN, password=ADMIN_PASSWORD)


async def make(broker: SecuredBroker, topic: str) -> None:
    async with Admin(broker.address(LISTENER), **of_admin(broker)) as admin:
        await admin.create_topics([NewTopic(topic)])


async def allow(broker: SecuredBroker, kind: AclResourceType, name: str, *operations: AclOperation) -> None:
    pattern = ResourcePattern(kind, name, PatternType.LITERAL)
    async with Admin(broker.address(LISTENER), **of_admin(broker)) as admin:
        await admin.acls.create(
            AclBinding(pattern, AclEntry(f"User:{USER}", "*", operation, AclPermission.ALLOW))
            for operation in operations
        )


@pytest.mark.parametrize("library", CLIENTS)
async def test_a_user_writes_and_reads_what_acls_allow(guarded: SecuredBroker, library: str, topic: str) -> None:
    await make(guarded, topic)
    await allow(guarded, TOPIC, topic, AclOperation.READ, AclOperation.WRITE)
    await allow(guarded, GROUP, topic, AclOperation.READ)
    there_and_back = asyncio.to_thread(CLIENTS[library], guarded.address(LISTENER), topic, of_user(guarded))
    assert await there_and_back == b"hello"


async def test_our_client_reports_a_refusal(guarded: SecuredBroker, topic: str) -> None:
    address = guarded.address(LISTENER)
    await make(guarded, topic)
    async with Producer(address, **of_user(guarded), enable_idempotence=False) as producer:
        with pytest.raises(AuthorizationFailed) as refused:
            await (await producer.send(topic, b"v"))
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await allow(guarded, TOPIC, topic, AclOperation.DESCRIBE)
    async with Consumer(address, **of_user(guarded), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(AuthorizationFailed) as refused:
            await anext(aiter(consumer))
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with Admin(address, **of_user(guarded)) as admin:
        with pytest.raises(KafkaError) as denied:
            await admin.create_topics([NewTopic(topic + "-2")])
        with pytest.raises(KafkaError) as not_theirs:
            await admin.acls.describe()
    assert denied.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not_theirs.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    eventually(lambda: f"principal=User:{USER} operation=Describe" in guarded.logged, "the refusal is in the audit log")


async def test_transactions_need_the_right_to_write_their_id(guarded: SecuredBroker, topic: str) -> None:
    address = guarded.address(LISTENER)
    await make(guarded, topic)
    await allow(guarded, TOPIC, topic, AclOperation.WRITE)
    with pytest.raises(KafkaError) as refused:
        async with Producer(address, **of_user(guarded), transactional_id=topic) as producer:
            await producer.begin_transaction()
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    await allow(guarded, TRANSACTION, topic, AclOperation.WRITE)
    async with Producer(address, **of_user(guarded), transactional_id=topic) as producer, producer.transaction():
        await producer.send(topic, b"in a transaction")
    async with Consumer(address, **of_admin(guarded), auto_offset_reset="earliest",
                        isolation_level="read_committed") as consumer:  # fmt: skip
        consumer.assign([TopicPartition(topic, 0)])
        assert (await anext(aiter(consumer))).value == b"in a transaction"


async def test_a_removed_acl_takes_effect_at_once(guarded: SecuredBroker, topic: str) -> None:
    address = guarded.address(LISTENER)
    await make(guarded, topic)
    await allow(guarded, TOPIC, topic, AclOperation.WRITE)
    async with Producer(address, **of_user(guarded)) as producer:
        await (await producer.send(topic, b"allowed"))
        async with Admin(address, **of_admin(guarded)) as admin:
            await admin.acls.delete([only(topic)])
        with pytest.raises(AuthorizationFailed):
            await (await producer.send(topic, b"no more"))


def only(topic: str) -> AclFilter:
    return AclFilter(PatternFilter(TOPIC, topic, PatternType.LITERAL), EVERY_ACL.entry)
