"""A change of settings or quotas is based on the present state, even if the node in the store is deleted and re-created
during the change.
The versions of a re-created node start at 0 again, so the new node can have the same version as the node that was read.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.stores.store import NoNode
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.quotas import QuotaEntity, QuotaKey

PRODUCE, FETCH, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
ENTITIES = [QuotaEntity(None, "c"), QuotaEntity("alice", "c"), QuotaEntity("alice")]


def setting(**values: str) -> Any:
    return lambda before: {**before, **values}


def without(*keys: str) -> Any:
    return lambda before: {key: value for key, value in before.items() if key not in keys}


async def kept(store: Any, path: str) -> Mapping[str, str]:
    """Return the stored settings; {} if the node does not exist."""
    try:
        data, _ = await store.get(path)
    except NoNode:
        return {}
    config: Mapping[str, str] = json.loads(data)["config"]
    return config


@pytest.fixture
def topics(store: Any, term: PartitionController) -> TopicController:
    return TopicController(store, lambda: term)


@pytest.fixture
def made_again(store: Any, topics: TopicController) -> Callable[[], Awaitable[None]]:
    async def make_again() -> None:
        await topics.delete_topic("t")
        await topics.create_topic("t", 1, 1, {"second": "1"})

    return make_again


async def test_settings_of_a_topic_do_not_become_those_of_the_next_one_of_its_name(
    store: Any, topics: TopicController, made_again: Any
) -> None:
    await topics.create_topic("t", 1, 1, {"first": "1"})
    store.before_write = made_again
    changed = await ConfigController(store).alter_topic_config("t", setting(asked="1"))
    assert changed == await kept(store, paths.topic_config("t")) == {"second": "1", "asked": "1"}


async def test_removing_the_last_setting_of_a_topic_leaves_its_successors_settings(
    store: Any, topics: TopicController, made_again: Any
) -> None:
    await topics.create_topic("t", 1, 1, {"first": "1"})
    store.before_write = made_again
    assert await ConfigController(store).alter_topic_config("t", without("first")) == {"second": "1"}


async def test_settings_are_changed_while_other_topics_are_made(store: Any, topics: TopicController) -> None:
    await topics.create_topic("t", 1, 1)
    store.before_write = lambda: topics.create_topic("u", 1, 1)
    await ConfigController(store).alter_topic_config("t", setting(asked="1"))
    assert await kept(store, paths.topic_config("t")) == {"asked": "1"}


async def test_a_topic_that_is_gone_has_no_settings(store: Any, topics: TopicController) -> None:
    await topics.create_topic("t", 1, 1, {"first": "1"})
    store.before_write = lambda: topics.delete_topic("t")
    with pytest.raises(KafkaError) as refused:
        await ConfigController(store).alter_topic_config("t", setting(asked="1"))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await store.children(paths.TOPIC_CONFIGS) == []


@pytest.mark.parametrize("entity", ENTITIES, ids=str)
@pytest.mark.parametrize(
    ("change", "expected"),
    [(setting(**{REQUEST: "3"}), {FETCH: "2", REQUEST: "3"}), (without(PRODUCE), {FETCH: "2"})],
    ids=["set", "removed"],
)
async def test_a_quota_that_was_removed_meanwhile_does_not_come_back_and_a_new_one_is_not_lost(
    store: Any, entity: QuotaEntity, change: Any, expected: Mapping[str, str]
) -> None:
    configs = ConfigController(store)
    await configs.alter_quotas(entity, setting(**{PRODUCE: "1"}))

    async def others() -> None:
        await configs.alter_quotas(entity, without(PRODUCE))
        await configs.alter_quotas(entity, setting(**{FETCH: "2"}))

    store.before_write = others
    await configs.alter_quotas(entity, change)
    assert await kept(store, paths.quotas(entity)) == expected


async def test_a_subscription_of_client_metrics_ends_with_its_last_setting(store: Any) -> None:
    configs, path = ConfigController(store), paths.client_metrics_config("lag")
    assert await configs.alter_client_metrics_config("lag", setting(metrics="*")) == {"metrics": "*"}
    assert await kept(store, path) == {"metrics": "*"}
    await configs.alter_client_metrics_config("lag", setting(match="client_id=a"), validate_only=True)
    assert await kept(store, path) == {"metrics": "*"}
    await configs.alter_client_metrics_config("lag", without("metrics"))
    with pytest.raises(NoNode):
        await store.get(path)
