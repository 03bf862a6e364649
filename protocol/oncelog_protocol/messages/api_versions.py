"""ApiVersions (18): the APIs and versions that the broker serves. ApiVersions is the first request of a connection."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, int16, int32, int64, message, string, struct


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """Request the APIs that the broker supports; a client may send this request before it authenticates.

    v0-2: no fields. v3: flexible; the client names itself (KIP-511). v4: the client can read supported features whose
    lowest version is 0 (KAFKA-17011).
    """

    client_software_name: str = string("3+", default="")  # [a-zA-Z0-9], inside also - and ., otherwise INVALID_REQUEST
    client_software_version: str = string("3+", default="")


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """The version range of each API, and the cluster's features.

    The header of this response always has version 0. A client whose request version the broker does not know must still
    be able to read the response (T1). If the broker does not know the request version, it responds with a v0 body that
    has UNSUPPORTED_VERSION and the version range of ApiVersions. The client then retries with a version in that range
    (KIP-511, T2).

    v1: throttle_time_ms.
    v2: on a quota violation, the broker responds before it mutes the connection.
    v3: flexible; features as tagged fields (KIP-584).
    v4: supported_features may have min_version 0; below v4, such features are left out.

    Errors: UNSUPPORTED_VERSION, INVALID_REQUEST.
    """

    error_code: int = int16()
    api_keys: list[ApiVersion] = array()
    throttle_time_ms: int = int32("1+", default=0)
    supported_features: list[SupportedFeatureKey] = array("3+", tag=0, default_factory=list)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1)  # -1 means that finalized_features is unknown
    # If "transaction.version" has level 2 or above, clients use transactions V2 (T6).
    finalized_features: list[FinalizedFeatureKey] = array("3+", tag=2, default_factory=list)
    zk_migration_ready: bool = boolean("3+", tag=3, default=False)

    @struct
    class ApiVersion:
        api_key: int = int16()
        min_version: int = int16()
        max_version: int = int16()

    @struct
    class SupportedFeatureKey:
        name: str = string("3+")
        min_version: int = int16("3+")
        max_version: int = int16("3+")

    @struct
    class FinalizedFeatureKey:
        name: str = string("3+")
        max_version_level: int = int16("3+")
        min_version_level: int = int16("3+")
