"""An unreadable value in the metadata store affects only that value, not the broker (S76, E45)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.resolve import describe_topic, resolve_topic
from oncelog_broker.config.stored import readable_broker_overrides, unreadable_broker_overrides
from oncelog_broker.controller import reading
from oncelog_broker.controller.leadership import claim_controllership
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.payloads import (
    BrokerRegistration,
    Endpoint,
    Incarnation,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_broker,
    encode_config,
    encode_incarnation,
    encode_partition_state,
    encode_topic,
    parse_broker,
    parse_incarnation,
)
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import Create, MetadataStore, NodeExists, Set
from oncelog_broker.runtime.slices import no_pause
from oncelog_broker.security.authorizer.acl_index import DENIED_BY_DEFAULT, AclIndex, Decision
from oncelog_protocol.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

NODES = [
    paths.broker_id(7),
    paths.incarnation(7),
    paths.incarnation(1),
    paths.CONTROLLER,
    paths.CONTROLLER_EPOCH,
    paths.topic("bad"),
    paths.partition_state("bad", 0),
    paths.topic_config("bad"),
    paths.topic_config("nowhere"),
    paths.broker_config(1),
    paths.broker_config(None),
    f"{paths.BROKER_CONFIGS}/seven",
    paths.user_config("alice"),
    f"{paths.USER_CONFIGS}/<default>",
    f"{paths.USER_CONFIGS}/alice/clients/c",
    f"{paths.CLIENT_CONFIGS}/c",
    f"{paths.IP_CONFIGS}/10.0.0.1",
    f"{paths.LITERAL_ACLS}/Topic/bad",
    f"{paths.PREFIXED_ACLS}/Topic/ba",
    f"{paths.LITERAL_ACLS}/Future/x",
    paths.deletion("bad"),
    paths.LATEST_PRODUCER_ID_BLOCK,
]
NONSENSE = [b"", b"{", b"[]", b"\xff\x00", b'{"version":9,"config":{"retention.ms":7},"acls":[7]}', b"7" * 30]
REGISTRATION = BrokerRegistration((Endpoint("PLAINTEXT", "h", 1),), timestamp_ms=1)


@pytest.fixture
async def store(embedded_store: Any) -> MetadataStore:
    """A cluster of brokers 1 and 7 with the topics `good` and `bad`; broker 1 was registered earlier."""
    await register_broker(embedded_store, 7, registration_at(7))
    for name, number in (("good", 1), ("bad", 2)):
        topic = TopicAssignment(bytes([number]) * 16, {p: ReplicaAssignment((1,)) for p in (0, 1)})
        await embedded_store.create(paths.topic(name), encode_topic(topic))
        for partition in (0, 1):
            path = paths.partition_state(name, partition)
            data = encode_partition_state(PartitionState(1, 3, (1,), 1))
            await embedded_store.create(path, data, make_parents=True)
    await embedded_store.create(paths.incarnation(1), encode_incarnation(Incarnation()))
    return embedded_store


def registration_at(port: int) -> BrokerRegistration:
    return BrokerRegistration((Endpoint("PLAINTEXT", "h", port),), timestamp_ms=1)


async def put(store: MetadataStore, path: str, data: bytes) -> None:
    try:
        await store.create(path, data, make_parents=True)
    except NodeExists:
        await store.set(path, data)


@pytest.mark.parametrize("data", NONSENSE, ids=range(len(NONSENSE)))
@pytest.mark.parametrize("path", NODES)
async def test_s76_e45_nonsense_in_any_node_keeps_no_broker_from_starting_and_no_other_topic_from_its_leader(
    store: MetadataStore, path: str, data: bytes
) -> None:
    await put(store, path, data)
    await register_broker(store, 1, REGISTRATION)
    await claim_controllership(store, 1, 5)
    cache = await MetadataCache.start(store)
    assert cache.image.topics["good"].partitions[0].leader == 1
    assert 1 in cache.image.brokers
    view = await reading.read_view(store, False, no_pause)
    assert view.states[PartitionKey("good", 0)].state.leader == 1
    for name in ("good", "bad", "nowhere"):
        resolve_topic(cache.image.config_of_topic(name), BrokerConfig())
    for broker in (1, None):
        readable_broker_overrides(cache.image.broker_configs.get(broker, {}))
    await cache.close()


@pytest.mark.parametrize("path", NODES)
async def test_s76_nonsense_that_comes_while_the_broker_runs_leaves_the_rest_current(
    store: MetadataStore, path: str
) -> None:
    await register_broker(store, 1, REGISTRATION)
    cache = await MetadataCache.start(store)
    await put(store, path, b"{")
    await put(store, paths.topic_config("good"), encode_config({"retention.ms": "5"}))
    image = await cache.wait_for(lambda image: image.config_of_topic("good") == {"retention.ms": "5"})
    assert image.topics["good"].partitions[0].leader == 1
    cache._on_change(paths.BROKERS)
    await cache.until_current()
    assert cache.image.topics["good"].partitions[0].leader == 1
    await cache.close()


async def test_s76_a_partition_whose_state_cannot_be_read_keeps_its_topic_no_others(store: MetadataStore) -> None:
    await put(store, paths.partition_state("bad", 0), b"{")
    await register_broker(store, 1, REGISTRATION)
    view = await reading.read_view(store, False, no_pause)
    assert PartitionKey("bad", 1) in view.states
    assert view.replicas(PartitionKey("bad", 0)) == (), "it is not taken for one that was never led"
    await put(store, paths.partition_state("bad", 0), encode_partition_state(PartitionState(1, 4, (1,), 1)))
    await reading.read_topics(store, view, ["bad"], no_pause)
    assert view.replicas(PartitionKey("bad", 0)) == (1,)


async def test_s76_a_bad_value_is_told_once_with_what_holds_instead(
    store: MetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = {"retention.ms": "7 days", "segment.bytes": "much", "max.message.bytes": "1000", "later.key": "x"}
    await put(store, paths.topic_config("bad"), encode_config(overrides))
    await put(store, f"{paths.CLIENT_CONFIGS}/c", encode_config({"producer_byte_rate": "fast"}))
    cache = await MetadataCache.start(store)
    for _ in range(3):
        cache._on_change(paths.BROKERS)
        await cache.until_current()
    told = [line for line in caplog.records if line.levelno == logging.ERROR]
    assert [(line.path, line.instead) for line in told] == [  # type: ignore[attr-defined]
        (paths.topic_config("bad"), "retention.ms=-1: records are kept"),
        (paths.topic_config("bad"), "the value that would hold without it"),
        (f"{paths.CLIENT_CONFIGS}/c", "no such quota"),
    ]
    assert "'7 days'" in told[0].getMessage()
    await cache.close()


def test_s76_unreadable_retention_settings_keep_all_records() -> None:
    given = {"retention.ms": "7 days", "retention.bytes": "x", "cleanup.policy": "future", "segment.bytes": "y"}
    values = resolve_topic(given, BrokerConfig.of({"log.segment.bytes": "4096"}))
    assert (values["retention.ms"], values["retention.bytes"], values["cleanup.policy"]) == (-1, -1, ())
    assert values["segment.bytes"] == 4096
    shown = {line.name: line.value for line in describe_topic(given, BrokerConfig())}
    assert shown["retention.ms"] == "-1"
    of_broker = {"log.retention.ms": "7 days", "num.io.threads": "9", "later.key": "x", "node.id": "7"}
    assert readable_broker_overrides(of_broker) == {"log.retention.ms": -1}
    told = {fault.name for fault in unreadable_broker_overrides(of_broker)}
    assert {"log.retention.ms", "node.id"} <= told
    assert "later.key" not in told


async def test_s76_a_topic_whose_settings_are_nonsense_keeps_its_records(store: MetadataStore) -> None:
    await put(store, paths.topic_config("bad"), b"{")
    await put(store, paths.broker_config(None), b"{")
    cache = await MetadataCache.start(store)
    assert resolve_topic(cache.image.config_of_topic("bad"), BrokerConfig())["cleanup.policy"] == ()
    of_all = readable_broker_overrides(cache.image.broker_configs[None])
    broker = BrokerConfig().with_dynamic({}, of_all)
    assert resolve_topic(cache.image.config_of_topic("good"), broker)["cleanup.policy"] == ()
    await cache.close()


async def test_s76_an_incarnation_that_cannot_be_read_makes_the_broker_unsure(store: MetadataStore) -> None:
    await put(store, paths.incarnation(1), b"{")
    written = await store.exists(paths.incarnation(1))
    assert written is not None
    await register_broker(store, 1, REGISTRATION)
    data, _ = await store.get(paths.incarnation(1))
    assert parse_incarnation(data, "").unsure_since == written.mzxid


async def test_s76_a_controller_epoch_that_cannot_be_read_continues_above_what_it_was(store: MetadataStore) -> None:
    for _ in range(3):
        claimed = await claim_controllership(store, 1, 5)
        assert claimed is not None
        await store.delete(paths.CONTROLLER)
    await store.set(paths.CONTROLLER_EPOCH, b"x")
    again = await claim_controllership(store, 1, 5)
    assert again is not None
    assert again.epoch > claimed.epoch
    await store.multi([again.fence, Create("/fenced")])


async def test_s76_an_unreadable_registration_keeps_its_last_value(store: MetadataStore) -> None:
    cache = await MetadataCache.start(store)
    before = cache.image.brokers[7]
    good = parse_broker((await store.get(paths.broker_id(7)))[0], "")
    await store.multi([Set(paths.broker_id(7), b"{")])
    await cache.until_current()
    assert cache.image.brokers[7] == before
    await store.set(paths.broker_id(7), encode_broker(good))
    await cache.close()


ALLOW = AclEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)


@pytest.mark.parametrize("pattern", [PatternType.LITERAL, PatternType.PREFIXED])
def test_s76_acls_that_cannot_be_read_open_nothing(pattern: PatternType) -> None:
    """The unreadable ACLs may deny an access that an ACL of another pattern allows."""
    allowing = ResourcePattern(ResourceType.TOPIC, "*", PatternType.LITERAL)
    unreadable = ResourcePattern(ResourceType.TOPIC, "secret", pattern)
    index = AclIndex().of({allowing: frozenset({ALLOW}), unreadable: frozenset()})
    everybody = Decision(True, "everybody may do what has no ACLs")

    def may_read(name: str) -> bool:
        return index.decide(
            "User:alice", "h", AclOperation.READ, ResourceType.TOPIC, name, default=everybody
        ).is_allowed

    assert may_read("other")
    assert not may_read("secret")
    only = AclIndex().of({unreadable: frozenset()})
    decided = only.decide("User:alice", "h", AclOperation.READ, ResourceType.TOPIC, "secret", default=everybody)
    assert not decided.is_allowed
    any_name = AclIndex().of({unreadable: frozenset({ALLOW}), allowing: frozenset()})
    for default in (everybody, DENIED_BY_DEFAULT):
        assert not any_name.decide_for_any(
            "User:alice", "h", AclOperation.READ, ResourceType.TOPIC, default=default
        ).is_allowed
