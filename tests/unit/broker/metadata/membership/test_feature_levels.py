"""Brokers agree on the highest feature level that all their releases support, and a broker that shares no level with
the others is not admitted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.metadata.membership.feature_levels import FEATURE, NoCommonLevel, check_levels, level_in_force
from oncelog_broker.metadata.model.image import Broker, ClusterImage
from oncelog_broker.metadata.model.payloads import BrokerRegistration, encode_broker
from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.store import Create

OLD: Mapping[str, tuple[int, int]] = {}
THIS, NEXT = {FEATURE: (1, 1)}, {FEATURE: (1, 2)}


@pytest.mark.parametrize(
    ("features", "level"),
    [([THIS], 1), ([NEXT], 2), ([NEXT, NEXT, THIS], 1), ([NEXT, OLD], 1), ([{"other": (3, 9)}], 1)],
)
def test_the_highest_level_that_all_know_is_in_force(features: list[Mapping[str, tuple[int, int]]], level: int) -> None:
    brokers = {number: Broker(number, 1, (), features=each) for number, each in enumerate(features)}
    assert level_in_force(ClusterImage("", brokers)) == level


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = EmbeddedStore.open(tmp_path / "metadata.db")
    yield opened
    await opened.close()


async def register(store: EmbeddedStore, broker_id: int, features: Mapping[str, tuple[int, int]]) -> None:
    data = encode_broker(BrokerRegistration((), features=features))
    await store.multi([Create("/brokers"), Create(paths.BROKER_IDS), Create(paths.broker_id(broker_id), data)])


async def test_the_first_broker_of_a_cluster_has_nobody_to_agree_with(store: EmbeddedStore) -> None:
    await check_levels(store, 1)


@pytest.mark.parametrize("other", [OLD, THIS, NEXT])
async def test_releases_with_a_common_level_join(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, other: Mapping[str, tuple[int, int]]
) -> None:
    await register(store, 2, other)
    await check_levels(store, 1)
    monkeypatch.setattr(feature_levels, "HIGHEST", 3)
    await check_levels(store, 1)


@pytest.mark.parametrize(
    ("lowest", "other", "words"),
    [(2, OLD, "broker 2 supports oncelog.version up to level 1"), (1, {FEATURE: (3, 4)}, "from level 3 on")],
)
async def test_a_release_without_a_common_level_does_not_join(
    store: EmbeddedStore,
    monkeypatch: pytest.MonkeyPatch,
    lowest: int,
    other: Mapping[str, tuple[int, int]],
    words: str,
) -> None:
    await register(store, 2, other)
    monkeypatch.setattr(feature_levels, "LOWEST", lowest)
    with pytest.raises(NoCommonLevel, match=words):
        await check_levels(store, 1)
    await check_levels(store, 2)  # the registration under this broker's own id is that of its predecessor
