"""UpdateFeatures accepts the present levels and refuses all others (KIP-584)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.handlers import asked

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.cluster import update_features
from oncelog_broker.server.cluster.update_features import MAX_UPDATES
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.update_features import UpdateFeaturesRequest

Update = UpdateFeaturesRequest.FeatureUpdateKey
IN_FORCE = ("transaction.version", 2)


def ask(*updates: tuple[str, int], version: int = 2, upgrade_type: int = 1, refused: Any = ()) -> Any:
    wanted = [Update(feature=name, max_version_level=level, upgrade_type=upgrade_type) for name, level in updates]
    context = asked(ApiKey.UPDATE_FEATURES, version, refused=refused)
    return update_features.handle(UpdateFeaturesRequest(feature_updates=wanted), context)


def test_the_levels_in_force_are_accepted() -> None:
    assert ask(IN_FORCE, ("group.version", 1), ("oncelog.version", 2)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (("transaction.version", 1), "level 2 of transaction.version is in force"),
        (("transaction.version", 3), "level 2 of transaction.version is in force"),
        (("transaction.version", 0), "level 2 of transaction.version is in force"),
        (("metadata.version", 27), "has no feature 'metadata.version'"),
    ],
)
def test_another_level_is_refused_with_the_reason(update: tuple[str, int], message: str) -> None:
    answer = ask(("group.version", 1), update)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert message in answer.error_message


def test_an_older_version_lists_the_features_if_all_are_accepted() -> None:
    refused = ask(IN_FORCE, ("group.version", 0), version=1)
    assert (refused.error_code, refused.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    accepted = ask(IN_FORCE, ("group.version", 1), version=1)
    assert [(each.feature, each.error_code) for each in accepted.results] == [
        ("transaction.version", ErrorCode.NONE),
        ("group.version", ErrorCode.NONE),
    ]


def test_a_feature_that_is_named_twice_and_an_unknown_upgrade_type_are_refused() -> None:
    assert ask(IN_FORCE, IN_FORCE).error_code == ErrorCode.INVALID_REQUEST
    assert ask(IN_FORCE, upgrade_type=4).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert ask(*[IN_FORCE] * (MAX_UPDATES + 1)).error_code == ErrorCode.INVALID_REQUEST


def test_updating_features_needs_the_right_to_alter_the_cluster() -> None:
    assert ask(IN_FORCE, refused={rules.UPDATE_FEATURES}).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
