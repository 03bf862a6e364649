"""The configuration keys of share groups (KIP-932), with Kafka's names and defaults.

The group coordinator uses the keys about members, partition leaders use the keys about records, and the share
coordinator uses the keys about `__share_group_state`.
"""

from __future__ import annotations

import re
from typing import Final

from oncelog_broker.config.bounded_keys import bounded
from oncelog_broker.config.declared import Allowed, ConfigKey, ConfigType, at_least, between

INT, SHORT = ConfigType.INT, ConfigType.SHORT


SESSION_TIMEOUT: Final = bounded(
    "share",
    "session.timeout.ms",
    45_000,
    45_000,
    60_000,
    "The time without a heartbeat after which a member of a share group is removed. Clients cannot set it.",
)
HEARTBEAT_INTERVAL: Final = bounded(
    "share",
    "heartbeat.interval.ms",
    5_000,
    5_000,
    15_000,
    "How often members of share groups send heartbeats. From members that wait for an assignment, the "
    "coordinator requests more frequent heartbeats.",
)
ASSIGNMENT_INTERVAL: Final = bounded(
    "share",
    "assignment.interval.ms",
    1_000,
    0,
    15_000,
    "The shortest time between two assignments of a share group. 0 means no minimum (KIP-1263).",
    minimum=0,
)
RECORD_LOCK_DURATION: Final = bounded(
    "share",
    "record.lock.duration.ms",
    30_000,
    15_000,
    60_000,
    "How long a member of a share group owns an acquired record. Afterwards the record may be delivered again.",
)
DELIVERY_COUNT_LIMIT: Final = bounded(
    "share",
    "delivery.count.limit",
    5,
    2,
    10,
    "The largest number of deliveries of a record to a share group. A record that is not accepted after the "
    "last delivery is archived.",
)
PARTITION_MAX_RECORD_LOCKS: Final = bounded(
    "share",
    "partition.max.record.locks",
    2_000,
    100,
    4_000,
    "The largest number of records of a share partition in flight: all records between the first and the last "
    "delivered record that is not finished, including these.",
)

SHARE_SESSION_TIMEOUT_MS, SHARE_MIN_SESSION_TIMEOUT_MS, SHARE_MAX_SESSION_TIMEOUT_MS = SESSION_TIMEOUT
SHARE_HEARTBEAT_INTERVAL_MS, SHARE_MIN_HEARTBEAT_INTERVAL_MS, SHARE_MAX_HEARTBEAT_INTERVAL_MS = HEARTBEAT_INTERVAL
SHARE_ASSIGNMENT_INTERVAL_MS, SHARE_MIN_ASSIGNMENT_INTERVAL_MS, SHARE_MAX_ASSIGNMENT_INTERVAL_MS = ASSIGNMENT_INTERVAL
SHARE_RECORD_LOCK_DURATION_MS, SHARE_MIN_RECORD_LOCK_DURATION_MS, SHARE_MAX_RECORD_LOCK_DURATION_MS = (
    RECORD_LOCK_DURATION
)
SHARE_DELIVERY_COUNT_LIMIT, SHARE_MIN_DELIVERY_COUNT_LIMIT, SHARE_MAX_DELIVERY_COUNT_LIMIT = DELIVERY_COUNT_LIMIT
SHARE_PARTITION_MAX_RECORD_LOCKS, SHARE_MIN_PARTITION_MAX_RECORD_LOCKS, SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = (
    PARTITION_MAX_RECORD_LOCKS
)

SHARE_MAX_SIZE = ConfigKey[int](
    "group.share.max.size", INT, 200, "The largest number of members of a share group.", between(1, 1_000)
)
SHARE_MAX_SHARE_SESSIONS = ConfigKey[int](
    "group.share.max.share.sessions",
    INT,
    2_000,
    "The largest number of share sessions of one broker: each member of a share group has a session at each "
    "leader that the member reads from.",
    at_least(1),
)
SHARE_INITIALIZE_RETRY_INTERVAL_MS = ConfigKey[int](
    "group.share.initialize.retry.interval.ms",
    INT,
    30_000,
    "How long the group coordinator waits before it retries a failed initialization of the state of a share partition.",
    at_least(1),
)
SHARE_STATE_TOPIC_NUM_PARTITIONS = ConfigKey[int](
    "share.coordinator.state.topic.num.partitions",
    INT,
    50,
    "The number of partitions of __share_group_state, used when the topic is created.",
    at_least(1),
)
SHARE_STATE_TOPIC_REPLICATION_FACTOR = ConfigKey[int](
    "share.coordinator.state.topic.replication.factor",
    SHORT,
    3,
    "Replication factor of __share_group_state. The topic is created when that many brokers are alive. Without "
    "ZooKeeper, the factor is 1.",
    at_least(1),
)
SHARE_STATE_TOPIC_MIN_ISR = ConfigKey[int](
    "share.coordinator.state.topic.min.isr",
    SHORT,
    2,
    "min.insync.replicas of __share_group_state, used when the topic is created. A value above the topic's "
    "replication factor is lowered to that factor.",
    at_least(1),
)
SHARE_STATE_TOPIC_SEGMENT_BYTES = ConfigKey[int](
    "share.coordinator.state.topic.segment.bytes",
    INT,
    100 * 1024**2,
    "Segment size of __share_group_state, used when the topic is created.",
    at_least(1),
)
SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS = ConfigKey[int](
    "share.coordinator.state.topic.prune.interval.ms",
    INT,
    300_000,
    "How often records of __share_group_state that newer snapshots have replaced are deleted. The coordinator "
    "writes a new snapshot of each share partition whose snapshot is older than this interval, because an old "
    "snapshot prevents the deletion of later records.",
    at_least(1),
)
SHARE_SNAPSHOT_UPDATE_RECORDS = ConfigKey[int](
    "share.coordinator.snapshot.update.records.per.snapshot",
    INT,
    500,
    "The number of changes of a share partition's state after which the coordinator writes a complete snapshot "
    "of the state.",
    between(0, 500),
)
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = ConfigKey[int](
    "share.coordinator.write.timeout.ms",
    INT,
    5_000,
    "How long a share coordinator waits until the in-sync replicas have its record. Then it responds with "
    "COORDINATOR_NOT_AVAILABLE.",
    at_least(1),
)


def reset_strategy() -> Allowed:
    """Return the allowed values of share.auto.offset.reset, which `parse_reset` parses."""

    def check(value: object) -> bool:
        try:
            parse_reset(str(value))
        except ValueError:
            return False
        return True

    return Allowed("latest, earliest, or by_duration:PnDTnHnMnS", check)


def parse_reset(text: str) -> str | int:
    """Parse share.auto.offset.reset. Returns "latest", "earliest", or the milliseconds of a duration such as
    `by_duration:PT1H`. Raises ValueError."""
    if text in ("latest", "earliest"):
        return text
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not an offset reset strategy")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int(1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days))))


_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?"
)
