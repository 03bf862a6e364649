"""DescribeUserScramCredentials (50): describes the SCRAM credentials of users (KIP-554). The response contains no
secrets.
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int8, int16, int32, message, string, struct


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    """Describe these users; without names, all users."""

    users: list[UserName] | None = array(nullable="0+")

    @struct
    class UserName:
        name: str = string()


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """The response has one result per user.

    Errors of a user: RESOURCE_NOT_FOUND (the user has no credentials), DUPLICATE_RESOURCE (the user is named twice),
    CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = array()

    @struct
    class DescribeUserScramCredentialsResult:
        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        credential_infos: list[CredentialInfo] = array()

        @struct
        class CredentialInfo:
            mechanism: int = int8()  # number of the mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
            iterations: int = int32()
