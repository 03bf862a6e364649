"""ApiVersions (18), v0-4: the APIs that this broker serves, and the broker's features.

Versions: v3 is flexible and has the features in tagged fields. The response header always has version 0 (T1). A request
with an unknown version gets the v0 response with UNSUPPORTED_VERSION and the range of versions that this broker serves
(T2).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.server.net.software import Software
from oncelog_broker.server.request.context import AnyContext, level_in_force
from oncelog_broker.server.served import SERVED, highest_version
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.features import CONSUMER_GROUPS, SHARE_GROUPS, STREAMS_GROUPS, TRANSACTIONS_V2
from oncelog_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

FIRST_SOFTWARE_NAME_VERSION: Final = 3
FIRST_ZERO_FEATURE_VERSION: Final = 4
FEATURES: Final[tuple[tuple[str, int, int, int], ...]] = (
    ("group.version", 0, CONSUMER_GROUPS, feature_levels.CONSUMER_GROUPS),
    ("share.version", 0, SHARE_GROUPS, feature_levels.SHARE_GROUPS),
    ("streams.version", 0, STREAMS_GROUPS, feature_levels.STREAMS_GROUPS),
    ("transaction.version", 0, TRANSACTIONS_V2, feature_levels.LOWEST),
)
"""Table of features. Each row has the feature's name, the lowest and the highest level that this broker supports, and a
level of `oncelog.version`. From that level of `oncelog.version` on, the feature's highest level is finalized; below
that level, the feature's lowest level is finalized. From transaction.version 2 on, clients use Kafka's transactions V2
(T6).
"""
OF_CLIENT_METRICS: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""APIs that are advertised only while there is a subscription of client metrics, as Kafka advertises these APIs only if
a plug-in that receives client metrics is configured. Without a subscription, clients would send requests for nothing,
and librdkafka would log each of these requests.
"""
SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""The characters that a client may use in its software name and version (KIP-511), as in Kafka."""


@cache
def served_versions(
    level: int,
    shows_zero: bool = True,
    is_for_brokers: bool = False,
    two_phase_commit: bool = False,
    client_metrics: bool = False,
) -> ApiVersionsResponse:
    """Return the response to every well-formed request. `level`: the finalized level of `oncelog.version`
    (`feature_levels`). `shows_zero`: whether the client can read features whose lowest level is 0; `is_for_brokers`:
    whether the response includes `oncelog.version` and the APIs that only brokers use; `two_phase_commit`: the setting
    transaction.two.phase.commit.enable; `client_metrics`: whether there is a subscription of client metrics.
    """
    features = [(name, low, high) for name, low, high, _ in FEATURES]
    in_force = [(name, high if level >= first_level else low) for name, low, high, first_level in FEATURES]
    if is_for_brokers:
        features.append((feature_levels.FEATURE, feature_levels.LOWEST, feature_levels.HIGHEST))
        in_force.append((feature_levels.FEATURE, level))
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=served.key,
                min_version=served.advertised_low,
                max_version=highest_version(served, two_phase_commit=two_phase_commit),
            )
            for served in SERVED.values()
            if level >= served.first_level
            and (is_for_brokers or not served.is_for_brokers)
            and (client_metrics or served.key not in OF_CLIENT_METRICS)
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=min_version, max_version=max_version)
            for name, min_version, max_version in features
            if min_version > 0 or shows_zero
        ],
        # Clients ignore the features if the features' epoch is negative. A higher level of `oncelog.version` gives a
        # higher epoch.
        finalized_features_epoch=level - feature_levels.LOWEST,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=known, min_version_level=known)
            for name, known in in_force
            if known > 0
        ],
    )


@cache
def unsupported_version() -> ApiVersionsResponse:
    """Return the v0 response to an unknown version: the error, and the version range of ApiVersions itself."""
    versions = SERVED[ApiKey.API_VERSIONS].versions
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=ApiKey.API_VERSIONS, min_version=versions.low, max_version=versions.high
            )
        ],
    )


def handle(request: ApiVersionsRequest, context: AnyContext) -> ApiVersionsResponse:
    if context.version >= FIRST_SOFTWARE_NAME_VERSION:
        for text in (request.client_software_name, request.client_software_version):
            if SOFTWARE_NAME.fullmatch(text) is None:
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        context.connection.software = Software(request.client_software_name, request.client_software_version).cut()
    is_in_cluster = context.services.is_clustered and context.is_for_brokers
    two_phase_commit = context.services.config[keys.TRANSACTION_TWO_PHASE_COMMIT_ENABLE]
    shows_zero = context.version >= FIRST_ZERO_FEATURE_VERSION
    client_metrics = bool(context.services.image.client_metrics)
    return served_versions(level_in_force(context), shows_zero, is_in_cluster, two_phase_commit, client_metrics)
