"""The version of each API to use with a broker: the highest that both sides support (T1, T2)."""

from __future__ import annotations

from typing import Any, Final

from oncelog.errors import KafkaError, UnsupportedVersion, error_for
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog_protocol.schema import Request, schema_of
from oncelog_protocol.versions import VersionRange

PRODUCE: Final = 0
FETCH: Final = 1
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9

CLIENT_MAX: Final = {PRODUCE: 12, FETCH: 12, OFFSET_COMMIT: 9, OFFSET_FETCH: 9}
"""The highest versions that the client uses. From the next version on, these requests name topics by id. This client
finds leaders by topic name, and topic ids would require Metadata v10 or newer.
"""

CLIENT_SOFTWARE_NAME: Final = "oncelog"
CLIENT_SOFTWARE_VERSION: Final = "0.1.0"

TRANSACTION_VERSION: Final = "transaction.version"

FIRST_TRY: Final = 3
"""The first ApiVersions version to try: the newest version on which no broker fails; version 4 has no benefit with
brokers that lack the fix of KAFKA-17011.
"""
LAST_TRY: Final = 0


def api_versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(
        client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
    )


def next_try(response: ApiVersionsResponse, tried: int) -> int | None:
    """Return the version for the next ApiVersions attempt after `response` in version `tried`; None if the response is
    final.

    Raises KafkaError for any other error, and if version 0 was refused too.
    """
    if response.error_code == ErrorCode.NONE:
        return None
    if response.error_code != ErrorCode.UNSUPPORTED_VERSION or tried == LAST_TRY:
        raise error_for(response.error_code, "the broker refuses to list its supported versions")
    key = schema_of(ApiVersionsRequest).api_key
    for entry in response.api_keys:
        if entry.api_key == key:
            return max(LAST_TRY, min(tried - 1, entry.max_version))
    return LAST_TRY


def _finalized(response: ApiVersionsResponse, feature: str) -> int:
    """Return the level of a finalised feature; 0 if the cluster does not have the feature, or the broker does not know
    it yet.
    """
    if response.finalized_features_epoch < 0:
        return 0
    return next((entry.max_version_level for entry in response.finalized_features if entry.name == feature), 0)


def highest_used(cls: type[Request[Any]]) -> int:
    """Return the highest version in which this client sends requests of class `cls`."""
    schema = schema_of(cls)
    assert schema.api_key is not None, f"{cls.__name__} is not a request"
    return min(schema.versions.high, CLIENT_MAX.get(schema.api_key, schema.versions.high))


class VersionTable:
    """The API versions and finalised features of one broker."""

    __slots__ = ("_chosen", "_ranges", "transaction_version")

    def __init__(self, response: ApiVersionsResponse) -> None:
        self._ranges = {
            entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in response.api_keys
        }
        self._chosen: dict[type, int] = {}
        self.transaction_version = _finalized(response, TRANSACTION_VERSION)
        """The finalised level of the feature transaction.version; from level 2 on, transactions are V2 (KIP-890, T6).
        """

    @property
    def served(self) -> frozenset[tuple[int, int, int]]:
        """The APIs that the broker serves, as (API key, lowest version, highest version)."""
        return frozenset((key, each.low, each.high) for key, each in self._ranges.items())

    def choose(self, cls: type[Request[Any]]) -> int:
        """Return the version in which to send requests of class `cls`. Raises UnsupportedVersion if there is no common
        version.
        """
        version = self._chosen.get(cls)
        if version is None:
            version = self._chosen[cls] = self._choose(cls)
        return version

    def choose_at_most(self, cls: type[Request[Any]], highest: int) -> int:
        """Return the version in which to send requests of class `cls`, but not above `highest`. The limit is for APIs
        in which a request has a different meaning in later versions (T6).
        """
        return min(self.choose(cls), highest)

    def supports(self, cls: type[Request[Any]]) -> bool:
        """Return whether both sides support some version of `cls`."""
        try:
            self.choose(cls)
        except KafkaError:
            return False
        return True

    def _choose(self, cls: type[Request[Any]]) -> int:
        return self._common(cls, highest_used(cls))

    def highest(self, cls: type[Request[Any]]) -> int:
        """Return the version in which to send requests of class `cls` between brokers, which name topics by id; the
        client's upper limits do not apply.
        """
        return self._common(cls, schema_of(cls).versions.high)

    def _common(self, cls: type[Request[Any]], highest: int) -> int:
        schema = schema_of(cls)
        assert schema.api_key is not None, f"{cls.__name__} is not a request"
        theirs = self._ranges.get(schema.api_key)
        if theirs is None:
            raise UnsupportedVersion(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not have {schema.name}")
        ours = VersionRange(schema.versions.low, highest)
        version = min(ours.high, theirs.high)
        if version < max(ours.low, theirs.low):
            raise UnsupportedVersion(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{schema.name}: the broker has versions {theirs}, this client {ours}",
            )
        return version
