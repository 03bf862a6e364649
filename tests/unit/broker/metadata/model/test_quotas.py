"""Quotas are stored in Kafka's nodes, beside SCRAM credentials; node versions guard each write, and the image contains
the quotas.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from oncelog_broker.config.secret import Secret
from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.payloads import BrokerRegistration, Endpoint, encode_config
from oncelog_broker.metadata.model.quotas import quota_values
from oncelog_broker.metadata.stores.store import NoNode
from oncelog_broker.runtime.addresses import plain_address
from oncelog_broker.runtime.slices import no_pause
from oncelog_broker.security.first_users import make_first_users
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.quotas import DEFAULT, QuotaEntity, QuotaKey

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
RATE = QuotaKey.CONNECTION_CREATION_RATE
SCRAM = "SCRAM-SHA-256"
NODES = {
    QuotaEntity("alice b"): "/config/users/alice%20b",
    QuotaEntity(DEFAULT): "/config/users/<default>",
    QuotaEntity("<default>"): "/config/users/%3Cdefault%3E",
    QuotaEntity("alice", "a/b"): "/config/users/alice/clients/a%2Fb",
    QuotaEntity("alice", DEFAULT): "/config/users/alice/clients/<default>",
    QuotaEntity(DEFAULT, "c"): "/config/users/<default>/clients/c",
    QuotaEntity(None, "c"): "/config/clients/c",
    QuotaEntity(None, ".."): "/config/clients/%2E%2E",
    QuotaEntity(None, DEFAULT): "/config/clients/<default>",
    QuotaEntity(ip="::1"): "/config/ips/%3A%3A1",
    QuotaEntity(ip=DEFAULT): "/config/ips/<default>",
}


@pytest.fixture
async def founded(store: Any) -> Any:
    await register_broker(store, 1, BrokerRegistration((Endpoint("PLAINTEXT", "h", 1),)))
    return store


@pytest.fixture
async def cache(founded: Any) -> AsyncIterator[MetadataCache]:
    cache = await MetadataCache.start(founded)
    yield cache
    await cache.close()


def setting(**values: str) -> Any:
    return lambda before: {**before, **values}


def without(*keys: str) -> Any:
    return lambda before: {key: value for key, value in before.items() if key not in keys}


def a_quota_of(entity: QuotaEntity) -> dict[str, str]:
    return {PRODUCE if entity.ip is None else RATE: "5"}


async def kept(store: Any, path: str) -> Mapping[str, str]:
    data, _ = await store.get(path)
    document: dict[str, Any] = json.loads(data)
    assert document["version"] == 1
    config: Mapping[str, str] = document["config"]
    return config


async def test_each_quota_entity_has_kafkas_path_and_reaches_every_broker(founded: Any, cache: MetadataCache) -> None:
    configs = ConfigController(founded)
    for entity in NODES:
        await configs.alter_quotas(entity, setting(**a_quota_of(entity)))
    for entity, path in NODES.items():
        assert await kept(founded, path) == a_quota_of(entity)
    expected = {entity: quota_values(entity, a_quota_of(entity)) for entity in NODES}
    assert (await cache.synced()).quotas == expected, "as the watches tell it"
    await cache.close()
    other = await MetadataCache.start(founded)
    assert other.image.quotas == expected, "as a start reads it"
    for entity in NODES:
        await configs.alter_quotas(entity, without(PRODUCE, RATE))
    assert (await other.synced()).quotas == {}
    assert await founded.children(paths.CLIENT_CONFIGS) == [], "what holds nothing goes"
    await other.close()


async def test_quotas_and_credentials_of_a_user_do_not_touch_each_other(founded: Any, cache: MetadataCache) -> None:
    configs, alice = ConfigController(founded), QuotaEntity("alice")
    await configs.alter_quotas(alice, setting(**{PRODUCE: "1"}))
    await configs.alter_user_config("alice", setting(**{SCRAM: "secret"}))
    await configs.alter_quotas(alice, setting(**{FETCH: "2"}))
    image = await cache.synced()
    assert image.quotas == {alice: {PRODUCE: 1.0, FETCH: 2.0}}
    assert image.config_of_user("alice")[SCRAM] == "secret"
    await configs.alter_quotas(alice, without(PRODUCE, FETCH))
    quotas = (await cache.synced()).quotas
    assert (await kept(founded, "/config/users/alice"), quotas) == ({SCRAM: "secret"}, {})
    await configs.alter_user_config("alice", without(SCRAM))
    assert (await cache.synced()).quotas is quotas, "what is not a quota changes none"
    assert await kept(founded, "/config/users/alice") == {}, "that there was such a user stays known"


async def test_changes_at_the_same_time_are_all_made(founded: Any, cache: MetadataCache) -> None:
    configs, alice = ConfigController(founded), QuotaEntity("alice", "c")
    await asyncio.gather(
        *(configs.alter_quotas(alice, setting(**{key: "3"})) for key in (PRODUCE, FETCH)),
        configs.alter_user_config("alice", setting(**{SCRAM: "secret"})),
    )
    image = await cache.synced()
    assert image.quotas == {alice: {PRODUCE: 3.0, FETCH: 3.0}}
    assert image.config_of_user("alice") == {SCRAM: "secret"}


async def test_a_dry_run_changes_no_quota(founded: Any) -> None:
    await ConfigController(founded).alter_quotas(QuotaEntity("alice"), setting(**{PRODUCE: "1"}), validate_only=True)
    with pytest.raises(NoNode):
        await founded.get("/config/users/alice")


async def test_an_unreadable_node_is_not_overwritten(founded: Any, cache: MetadataCache) -> None:
    configs, alice = ConfigController(founded), QuotaEntity("alice")
    await configs.alter_quotas(alice, setting(**{PRODUCE: "1"}))
    await cache.synced()
    await founded.set("/config/users/alice", b"{")
    with pytest.raises(KafkaError, match="cannot be read"):
        await configs.alter_quotas(alice, setting(**{PRODUCE: "2"}))
    assert (await cache.synced()).quotas == {alice: {PRODUCE: 1.0}}


async def test_a_first_user_is_made_though_there_are_quotas_of_it_with_client_ids(founded: Any) -> None:
    await ConfigController(founded).alter_quotas(QuotaEntity("alice", "c"), setting(**{PRODUCE: "1"}))
    await make_first_users(founded, {"alice": Secret("pw")})
    credentials = await kept(founded, "/config/users/alice")
    assert SCRAM in credentials
    await make_first_users(founded, {"alice": Secret("other")})
    assert await kept(founded, "/config/users/alice") == credentials


def test_a_stored_quota_that_is_no_positive_number_limits_nothing() -> None:
    texts = {PRODUCE: "nan", FETCH: "0", QuotaKey.REQUEST_PERCENTAGE: "x", SCRAM: "1", RATE: "1"}
    assert quota_values(QuotaEntity("u"), texts) == {}
    assert quota_values(QuotaEntity("u"), {PRODUCE: "-1", FETCH: "inf"}) == {}


LOOPBACK = QuotaEntity(ip="::1")
JAVAS = "/config/ips/0%3A0%3A0%3A0%3A0%3A0%3A0%3A1"


async def test_an_address_is_one_entity_however_its_node_is_spelled(founded: Any, cache: MetadataCache) -> None:
    """Kafka's tools write the address in Java's notation."""
    await founded.create(JAVAS, encode_config({RATE: "7"}), make_parents=True)
    image = await cache.wait_for(lambda image: LOOPBACK in image.quotas)
    assert image.quotas == {LOOPBACK: {RATE: 7}}
    again = await MetadataCache.start(founded)
    assert again.image.quotas == {LOOPBACK: {RATE: 7}}
    await again.close()
    configs = ConfigController(founded)
    others = await configs.nodes_of_addresses(no_pause)
    await configs.alter_quotas(LOOPBACK, setting(**{RATE: "8"}), others=others)
    await cache.wait_for(lambda image: image.quotas == {LOOPBACK: {RATE: 8}})
    await founded.set(JAVAS, encode_config({RATE: "9"}))
    await configs.alter_quotas(QuotaEntity(ip="::2"), setting(**{RATE: "1"}))
    image = await cache.wait_for(lambda image: QuotaEntity(ip="::2") in image.quotas)
    assert image.quotas[LOOPBACK] == {RATE: 8}, "of two nodes the usual one holds"
    await configs.alter_quotas(LOOPBACK, without(RATE), others=others)
    await cache.wait_for(lambda image: image.quotas == {QuotaEntity(ip="::2"): {RATE: 1}})
    assert await founded.children("/config/ips") == ["%3A%3A2"], "what is removed does not hold again"


async def test_a_stored_entity_that_is_no_address_is_shown_unchanged(founded: Any, cache: MetadataCache) -> None:
    await founded.create("/config/ips/some.host", encode_config({RATE: "7"}), make_parents=True)
    await cache.wait_for(lambda image: image.quotas == {QuotaEntity(ip="some.host"): {RATE: 7}})


@pytest.mark.parametrize(
    ("spelled", "address"),
    [
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:a00:1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.01", None),
        ("10.1", None),
        ("localhost", None),
        ("", None),
        ("10.0.0.1/8", None),
        (" 10.0.0.1", None),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("::1%" + "x" * 100, None),
    ],
)
def test_an_address_has_one_spelling(spelled: str, address: str | None) -> None:
    assert plain_address(spelled) == address
    if address:
        assert paths.parse_quota_path(f"/config/ips/{paths.sanitized(spelled)}") == QuotaEntity(ip=address)
