"""The only list of the APIs and versions that this broker serves; the ApiVersions response is built from this list.

The version ranges are those of a Kafka 4.3 broker: this broker advertises only versions that it serves (T3). A handler
is imported when its first request arrives (`routes`), so that the broker starts quickly.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from oncelog_broker.metadata.membership import feature_levels
from oncelog_protocol.api import ApiKey
from oncelog_protocol.light_classes import dataclass
from oncelog_protocol.versions import VersionRange


@dataclass(frozen=True, slots=True)
class Served:
    """One API: `module` is the handler's subpackage and file (`records.produce`), which has `handle`; the other fields
    are the decoded versions, and the lowest advertised version.
    """

    key: ApiKey
    module: str
    versions: VersionRange
    advertised_low: int
    is_for_brokers: bool = False
    """Whether the API is advertised only to brokers of the cluster, because clients do not use the API."""
    first_level: int = 1
    """The API is advertised from this finalized level of `oncelog.version` on."""
    has_lane: bool = False
    """Whether `lanes/` has a file of the same name with this API's fast lane."""

    @property
    def needs_coordinators(self) -> bool:
        """Whether the handler uses the coordinators of groups, transactions or share partitions."""
        return self.module.partition(".")[0] in ("groups", "shares", "transactions")

    def load(self) -> Callable[..., Any]:
        """Import the handler, `handle(request, context)`."""
        handler: Callable[..., Any] = importlib.import_module(f"{__package__}.{self.module}").handle
        return handler

    def load_lane(self) -> Callable[..., Any] | None:
        """Import the constructor of this API's fast lane for a connection; None if the API has no lane."""
        if not self.has_lane:
            return None
        make: Callable[..., Any] = importlib.import_module(f"{__package__}.lanes.{self.key.name.lower()}").make_lane
        return make


def _served(
    room: str,
    key: ApiKey,
    low: int,
    high: int,
    *,
    advertised_low: int | None = None,
    has_lane: bool = False,
    is_for_brokers: bool = False,
    first_level: int = 1,
) -> Served:
    lowest = low if advertised_low is None else advertised_low
    module, versions = f"{room}.{key.name.lower()}", VersionRange(low, high)
    return Served(key, module, versions, lowest, is_for_brokers, first_level, has_lane)


SERVED: Final[dict[int, Served]] = {
    int(served.key): served
    for served in (
        # Produce versions 0 to 2 are advertised, although requests in these versions are refused: librdkafka before
        # 2.11 turns compression off if they are not advertised (T4).
        _served("records", ApiKey.PRODUCE, 3, 13, advertised_low=0, has_lane=True),
        _served("records", ApiKey.FETCH, 4, 18, has_lane=True),
        _served("records", ApiKey.LIST_OFFSETS, 1, 11),
        _served("topics", ApiKey.METADATA, 0, 13),
        # ControlledShutdown is an API of Kafka's brokers with ZooKeeper. Versions 0 and 1 are not served, because their
        # requests do not contain the broker epoch.
        _served("replicas", ApiKey.CONTROLLED_SHUTDOWN, 2, 3, is_for_brokers=True),
        _served("groups", ApiKey.OFFSET_COMMIT, 2, 10, has_lane=True),
        _served("groups", ApiKey.OFFSET_FETCH, 1, 10),
        _served("groups", ApiKey.FIND_COORDINATOR, 0, 6),
        # JoinGroup version 0 is advertised because old versions of librdkafka recognise by it that the broker supports
        # groups (T5).
        _served("groups", ApiKey.JOIN_GROUP, 0, 9),
        _served("groups", ApiKey.HEARTBEAT, 0, 4, has_lane=True),
        _served("groups", ApiKey.LEAVE_GROUP, 0, 5),
        _served("groups", ApiKey.SYNC_GROUP, 0, 5),
        _served("groups", ApiKey.DESCRIBE_GROUPS, 0, 6),
        _served("groups", ApiKey.LIST_GROUPS, 0, 5),
        _served("access", ApiKey.SASL_HANDSHAKE, 0, 1),
        _served("cluster", ApiKey.API_VERSIONS, 0, 4),
        _served("topics", ApiKey.CREATE_TOPICS, 2, 7),
        _served("topics", ApiKey.DELETE_TOPICS, 1, 6),
        _served("records", ApiKey.DELETE_RECORDS, 0, 2),
        _served("transactions", ApiKey.INIT_PRODUCER_ID, 0, 6),  # see `highest_version`
        _served("records", ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4),
        _served("transactions", ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, has_lane=True),
        _served("transactions", ApiKey.ADD_OFFSETS_TO_TXN, 0, 4),
        _served("transactions", ApiKey.END_TXN, 0, 5, has_lane=True),
        _served("transactions", ApiKey.WRITE_TXN_MARKERS, 1, 2),
        _served("transactions", ApiKey.TXN_OFFSET_COMMIT, 0, 5),
        _served("access", ApiKey.DESCRIBE_ACLS, 1, 3),
        _served("access", ApiKey.CREATE_ACLS, 1, 3),
        _served("access", ApiKey.DELETE_ACLS, 1, 3),
        _served("topics", ApiKey.DESCRIBE_CONFIGS, 1, 4),
        _served("topics", ApiKey.ALTER_CONFIGS, 0, 2),
        _served("replicas", ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2),
        _served("replicas", ApiKey.DESCRIBE_LOG_DIRS, 1, 5),
        _served("access", ApiKey.SASL_AUTHENTICATE, 0, 2),
        _served("topics", ApiKey.CREATE_PARTITIONS, 0, 3),
        _served("groups", ApiKey.DELETE_GROUPS, 0, 2),
        _served("replicas", ApiKey.ELECT_LEADERS, 0, 2),
        _served("topics", ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1),
        _served("replicas", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1),
        _served("replicas", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0),
        _served("groups", ApiKey.OFFSET_DELETE, 0, 0),
        # AlterPartition is advertised as by Kafka's brokers with ZooKeeper. Versions 0 and 1 are not served, because
        # their requests name topics without their ids.
        _served("replicas", ApiKey.ALTER_PARTITION, 2, 3, is_for_brokers=True),
        _served("access", ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1),
        _served("access", ApiKey.ALTER_CLIENT_QUOTAS, 0, 1),
        _served("access", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0),
        _served("access", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0),
        _served("cluster", ApiKey.UPDATE_FEATURES, 0, 2),
        _served("dispatch", ApiKey.ENVELOPE, 0, 0, is_for_brokers=True),
        _served("cluster", ApiKey.DESCRIBE_CLUSTER, 0, 2),
        _served("records", ApiKey.DESCRIBE_PRODUCERS, 0, 0),
        _served("transactions", ApiKey.DESCRIBE_TRANSACTIONS, 0, 0),
        _served("transactions", ApiKey.LIST_TRANSACTIONS, 0, 2),
        _served(
            "groups",
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            0,
            1,
            has_lane=True,
            first_level=feature_levels.CONSUMER_GROUPS,
        ),
        _served("groups", ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, first_level=feature_levels.CONSUMER_GROUPS),
        # Both telemetry APIs are advertised only while a subscription of client metrics exists: see
        # `cluster/api_versions.py`.
        _served("cluster", ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0),
        _served("cluster", ApiKey.PUSH_TELEMETRY, 0, 0),
        _served("topics", ApiKey.LIST_CONFIG_RESOURCES, 0, 1),
        _served("topics", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0),
        # Version 0 of the share APIs was an early-access version of Kafka 4.0.
        _served("groups", ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, first_level=feature_levels.SHARE_GROUPS),
        _served("groups", ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, first_level=feature_levels.SHARE_GROUPS),
        _served("shares", ApiKey.SHARE_FETCH, 1, 2, first_level=feature_levels.SHARE_GROUPS),
        _served("shares", ApiKey.SHARE_ACKNOWLEDGE, 1, 2, first_level=feature_levels.SHARE_GROUPS),
        _served("shares", ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, is_for_brokers=True),
        _served("shares", ApiKey.READ_SHARE_GROUP_STATE, 0, 0, is_for_brokers=True),
        _served("shares", ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, is_for_brokers=True),
        _served("shares", ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, is_for_brokers=True),
        _served("shares", ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, is_for_brokers=True),
        _served("groups", ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 0, first_level=feature_levels.STREAMS_GROUPS),
        _served("groups", ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0, first_level=feature_levels.STREAMS_GROUPS),
        _served("groups", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, first_level=feature_levels.SHARE_GROUPS),
        _served("groups", ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, first_level=feature_levels.SHARE_GROUPS),
        _served("groups", ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, first_level=feature_levels.SHARE_GROUPS),
    )
}
"""The entry of each API, by API key."""

LAST_INIT_BEFORE_TWO_PHASE_COMMIT: Final = 5


def highest_version(served: Served, *, two_phase_commit: bool) -> int:
    """Return the highest version of an API that this broker serves: v6 of InitProducerId is served only if
    `two_phase_commit` is True, the setting transaction.two.phase.commit.enable (S120).
    """
    if served.key is ApiKey.INIT_PRODUCER_ID and not two_phase_commit:
        return LAST_INIT_BEFORE_TWO_PHASE_COMMIT
    return served.versions.high
