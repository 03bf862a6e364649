"""UpdateFeatures (57), v0-2: asks for other levels of features (KIP-584).

The levels in force follow the releases of the brokers by themselves (`metadata/membership/feature_levels.py`), so a
request succeeds that asks for the levels in force. Every other change is refused with the reason. The
response has the first error, as Kafka's. Versions: v0 and v1 list the features if all are accepted, v2 does not.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.cluster.api_versions import FEATURES
from oncelog_broker.server.request.context import AnyContext, level_in_force
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse, UpgradeType

Update = UpdateFeaturesRequest.FeatureUpdateKey
Result = UpdateFeaturesResponse.UpdatableFeatureResult

FIRST_VERSION_WITHOUT_RESULTS: Final = 2
FIRST_UPGRADE_TYPE_VERSION: Final = 1
MAX_UPDATES: Final = 100
"""The most features that a request may name: a cluster has a handful."""


def handle(request: UpdateFeaturesRequest, context: AnyContext) -> UpdateFeaturesResponse:
    if not context.may(rules.UPDATE_FEATURES):
        code = rules.UPDATE_FEATURES.refused
        return UpdateFeaturesResponse(error_code=code, error_message=code.meaning)
    if len(request.feature_updates) > MAX_UPDATES:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=f"more than {MAX_UPDATES} features are named"
        )
    level, mentions = level_in_force(context), Counter(update.feature for update in request.feature_updates)
    results = []
    for update in request.feature_updates:
        code, message = ErrorCode.NONE, None
        try:
            _check(update, level, mentions, context.version)
        except KafkaError as error:
            code, message = error.code, error.message
        results.append(Result(feature=update.feature, error_code=code, error_message=message))
    first = next((result for result in results if result.error_code), None)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE if first is None else first.error_code,
        error_message=None if first is None else first.error_message,
        results=results if first is None and context.version < FIRST_VERSION_WITHOUT_RESULTS else [],
    )


def _check(update: Update, level: int, mentions: Counter[str], version: int) -> None:
    """Raises KafkaError unless the level that is asked for is in force: INVALID_REQUEST for a feature that is named
    twice, INVALID_UPDATE_VERSION for an unknown feature, for an unknown upgrade type and for another level."""
    if mentions[update.feature] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"feature '{update.feature}' is named several times")
    known = range(UpgradeType.UPGRADE, UpgradeType.UNSAFE_DOWNGRADE + 1)
    if version >= FIRST_UPGRADE_TYPE_VERSION and update.upgrade_type not in known:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"there is no upgrade type {update.upgrade_type}")
    in_force = _levels_in_force(level).get(update.feature)
    if in_force is None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"this cluster has no feature '{update.feature}'")
    if max(update.max_version_level, 0) != in_force:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"level {in_force} of {update.feature} is in force and follows the releases of the brokers by itself: to"
            " change it, update the brokers",
        )


def _levels_in_force(level: int) -> dict[str, int]:
    """The level of each feature where `level` of `oncelog.version` is in force."""
    of_clients = {name: high if level >= first_level else low for name, low, high, first_level in FEATURES}
    return {**of_clients, feature_levels.FEATURE: level}
