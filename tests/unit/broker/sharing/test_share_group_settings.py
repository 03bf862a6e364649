"""The settings of a share group that partition leaders use."""

from __future__ import annotations

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.share_keys import parse_reset
from oncelog_broker.sharing.share_group_settings import ShareGroupSettings

HOUR_MS = 3_600_000


def test_a_group_without_settings_has_those_of_the_broker() -> None:
    assert ShareGroupSettings.of(BrokerConfig.of({}), {}) == ShareGroupSettings()
    config = BrokerConfig.of({"group.share.delivery.count.limit": "7"})
    assert ShareGroupSettings.of(config, {}).delivery_limit == 7


def test_a_group_has_its_own_within_the_bounds_of_the_broker() -> None:
    own = {
        "share.record.lock.duration.ms": "1",
        "share.delivery.count.limit": "3",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "share.auto.offset.reset": "by_duration:PT1H",
    }
    settings = ShareGroupSettings.of(BrokerConfig.of({}), own)
    assert settings == ShareGroupSettings(15.0, 3, 2_000, True, False, HOUR_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest", "latest"),
        ("earliest", "earliest"),
        ("by_duration:PT1H", HOUR_MS),
        ("by_duration:P1DT2H3M4.5S", 26 * HOUR_MS + 3 * 60_000 + 4_500),
    ],
)
def test_strategies_of_offset_resets(text: str, expected: str | int) -> None:
    assert parse_reset(text) == expected


@pytest.mark.parametrize("text", ["", "none", "by_duration:", "by_duration:PT", "by_duration:1h", "by_duration:PT-1H"])
def test_what_is_no_strategy(text: str) -> None:
    with pytest.raises(ValueError, match="not an offset reset strategy"):
        parse_reset(text)
