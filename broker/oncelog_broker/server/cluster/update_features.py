"""UpdateFeatures (57), v0-2: request other feature levels (KIP-584).

The cluster raises the finalized levels automatically when its brokers are upgraded
(`metadata/membership/feature_levels.py`). So a request succeeds only if it names levels that are already finalized.
Every other change is refused, with the reason in the response. As in Kafka, the response carries the first error.
Versions: v0 and v1 list the features if all updates are accepted, v2 does not.
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
"""The maximum number of features in one request; a cluster has only a few features."""


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
    """Raises KafkaError unless the requested level is already finalized: INVALID_REQUEST for a feature that the request
    names twice, INVALID_UPDATE_VERSION for an unknown feature, an unknown upgrade type or another level.
    """
    if mentions[update.feature] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"feature '{update.feature}' is named several times")
    known = range(UpgradeType.UPGRADE, UpgradeType.UNSAFE_DOWNGRADE + 1)
    if version >= FIRST_UPGRADE_TYPE_VERSION and update.upgrade_type not in known:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"unknown upgrade type {update.upgrade_type}")
    in_force = _levels_in_force(level).get(update.feature)
    if in_force is None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"this cluster has no feature '{update.feature}'")
    if max(update.max_version_level, 0) != in_force:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"level {in_force} of {update.feature} is in force and follows the releases of the brokers "
            "automatically: to change the level, upgrade the brokers",
        )


def _levels_in_force(level: int) -> dict[str, int]:
    """Return the finalized level of each feature, given the finalized `level` of `oncelog.version`."""
    of_clients = {name: high if level >= first_level else low for name, low, high, first_level in FEATURES}
    return {**of_clients, feature_levels.FEATURE: level}
