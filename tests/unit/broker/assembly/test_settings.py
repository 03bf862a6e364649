"""The settings of a running broker: changes in the cluster's settings take effect, also on the logs."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog_broker.assembly.settings import Settings
from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import throttle_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.clock import ManualClock

ME, OTHER = 1, 2
EMPTY = ClusterImage("c")


@pytest.fixture
def settings() -> Settings:
    return Settings(BrokerConfig.of({"node.id": str(ME), "log.retention.ms": "1000"}), ManualClock())


def changed(**of: dict[str, str]) -> ClusterImage:
    """Return an image with these settings: `all` for all brokers, `me` for this broker, `other` for another broker."""
    ids: dict[str, Any] = {"all": None, "me": ME, "other": OTHER}
    return EMPTY.with_broker_configs({ids[name]: values for name, values in of.items()})


def test_a_setting_of_this_broker_takes_precedence_over_one_for_all_brokers(settings: Settings) -> None:
    name = keys.LOG_CLEANER_BACKOFF_MS.name
    before = settings.current()[keys.LOG_CLEANER_BACKOFF_MS]
    for_all = changed(all={name: "2000"}, other={name: "5"})
    settings.on_image(EMPTY, for_all)
    assert settings.current()[keys.LOG_CLEANER_BACKOFF_MS] == 2000
    settings.on_image(for_all, both := changed(all={name: "2000"}, me={name: "3000"}))
    assert settings.current()[keys.LOG_CLEANER_BACKOFF_MS] == 3000
    settings.on_image(both, EMPTY)
    assert settings.current()[keys.LOG_CLEANER_BACKOFF_MS] == before


def test_topics_with_the_same_overrides_share_their_settings_until_the_brokers_change(settings: Settings) -> None:
    plain = settings.of_log({})
    assert plain.retention_ms == 1000
    assert settings.of_log({}) is plain
    assert settings.of_log({"retention.ms": "5"}).retention_ms == 5
    settings.on_image(EMPTY, changed(me={"log.retention.ms": "7"}))
    assert settings.of_log({}).retention_ms == 7
    assert settings.of_log({"retention.ms": "5"}).retention_ms == 5


def test_an_image_with_the_same_settings_changes_nothing(settings: Settings) -> None:
    shown = changed(me={"log.retention.ms": "7"})
    settings.on_image(EMPTY, shown)
    config, of_log = settings.current(), settings.of_log({})
    settings.on_image(shown, shown.with_controller(OTHER))
    assert settings.current() is config
    assert settings.of_log({}) is of_log


def test_the_rates_of_replication_follow_the_settings(settings: Settings) -> None:
    quotas = {throttle_keys.LEADER_REPLICATION_THROTTLED_RATE: settings.throttles.leader}
    quotas[throttle_keys.FOLLOWER_REPLICATION_THROTTLED_RATE] = settings.throttles.follower
    for key, quota in quotas.items():
        assert not quota.is_exceeded(0.0)
        settings.follow(changed(me={key.name: "10"}))
        quota.record(1000, 0.0)
        assert quota.is_exceeded(0.0), key.name
