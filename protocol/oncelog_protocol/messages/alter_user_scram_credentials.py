"""AlterUserScramCredentials (51): creates, changes and deletes SCRAM credentials (KIP-554). The request contains salted
passwords only.
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, bytes_, int8, int16, int32, message, string, struct


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"]):
    """Either all changes of a user are applied, or none of them."""

    deletions: list[ScramCredentialDeletion] = array()
    upsertions: list[ScramCredentialUpsertion] = array()

    @struct
    class ScramCredentialDeletion:
        name: str = string()
        mechanism: int = int8()  # number of the mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512

    @struct
    class ScramCredentialUpsertion:
        name: str = string()
        mechanism: int = int8()
        iterations: int = int32()
        salt: bytes = bytes_()
        salted_password: bytes = bytes_()


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """The response has one result per user.

    Errors of a user: UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND (nothing to delete),
    DUPLICATE_RESOURCE (changed twice), CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    results: list[AlterUserScramCredentialsResult] = array()

    @struct
    class AlterUserScramCredentialsResult:
        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
