"""UpdateFeatures (57): changes the levels of features that the cluster has finalised (KIP-584, KIP-1022)."""

from __future__ import annotations

from enum import IntEnum

from oncelog_protocol.schema import Request, array, boolean, int8, int16, int32, message, string, struct


class UpgradeType(IntEnum):
    """Says in which direction the level of a feature may be changed."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """A downgrade that may lose data."""


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    """Change the levels of these features.

    v1: upgrade_type instead of allow_downgrade; validate_only.
    v2: the response has no results per feature.
    """

    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array()
    validate_only: bool = boolean("1+", default=False)

    @struct
    class FeatureUpdateKey:
        feature: str = string()
        max_version_level: int = int16()  # the new level; a level below 1 switches the feature off
        allow_downgrade: bool = boolean("0", default=False)
        upgrade_type: int = int8("1+", default=1)  # an UpgradeType


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """The response says whether the levels were changed.

    `error_code` is the first error of any feature. In v0 and v1, the response lists the features if all changes were
    accepted.

    Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_UPDATE_VERSION, INVALID_REQUEST.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = array("0-1", default_factory=list)

    @struct
    class UpdatableFeatureResult:
        feature: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
