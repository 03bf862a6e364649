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
    "How long a member of a share group may be silent before it is removed. The client has no say.",
)
HEARTBEAT_INTERVAL: Final = bounded(
    "share",
    "heartbeat.interval.ms",
    5_000,
    5_000,
    15_000,
    "How often members of share groups send heartbeats. While they wait for an assignment they are asked to send them "
    "more often.",
)
ASSIGNMENT_INTERVAL: Final = bounded(
    "share",
    "assignment.interval.ms",
    1_000,
    0,
    15_000,
    "The least time between two assignments of a share group. 0: none (KIP-1263).",
    minimum=0,
)
RECORD_LOCK_DURATION: Final = bounded(
    "share",
    "record.lock.duration.ms",
    30_000,
    15_000,
    60_000,
    "How long a member of a share group has a record that it was given. After that the record may be delivered again.",
)
DELIVERY_COUNT_LIMIT: Final = bounded(
    "share",
    "delivery.count.limit",
    5,
    2,
    10,
    "How often a record is delivered to a share group at most. One that was not accepted by then is archived.",
)
PARTITION_MAX_RECORD_LOCKS: Final = bounded(
    "share",
    "partition.max.record.locks",
    2_000,
    100,
    4_000,
    "How many records of a share partition may be in flight at a time: delivered and not done, with all between the "
    "first and the last of them.",
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
    "group.share.max.size", INT, 200, "The most members that one share group may have.", between(1, 1_000)
)
SHARE_MAX_SHARE_SESSIONS = ConfigKey[int](
    "group.share.max.share.sessions",
    INT,
    2_000,
    "The most share sessions of one broker: each member of a share group has one at each leader that it reads from.",
    at_least(1),
)
SHARE_INITIALIZE_RETRY_INTERVAL_MS = ConfigKey[int](
    "group.share.initialize.retry.interval.ms",
    INT,
    30_000,
    "After how long the state of a share partition is begun again that could not be begun.",
    at_least(1),
)
SHARE_STATE_TOPIC_NUM_PARTITIONS = ConfigKey[int](
    "share.coordinator.state.topic.num.partitions",
    INT,
    50,
    "Partitions of __share_group_state, when it is created.",
    at_least(1),
)
SHARE_STATE_TOPIC_REPLICATION_FACTOR = ConfigKey[int](
    "share.coordinator.state.topic.replication.factor",
    SHORT,
    3,
    "Replication factor of __share_group_state, which is created when that many brokers are alive; without ZooKeeper, "
    "one.",
    at_least(1),
)
SHARE_STATE_TOPIC_MIN_ISR = ConfigKey[int](
    "share.coordinator.state.topic.min.isr",
    SHORT,
    2,
    "min.insync.replicas of __share_group_state, when it is created; not more than it has replicas.",
    at_least(1),
)
SHARE_STATE_TOPIC_SEGMENT_BYTES = ConfigKey[int](
    "share.coordinator.state.topic.segment.bytes",
    INT,
    100 * 1024**2,
    "Segment size of __share_group_state, when it is created.",
    at_least(1),
)
SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS = ConfigKey[int](
    "share.coordinator.state.topic.prune.interval.ms",
    INT,
    300_000,
    "How often records of __share_group_state are deleted that newer snapshots have replaced. Share partitions whose "
    "snapshot is older than that are written anew, so that they do not keep the records of others.",
    at_least(1),
)
SHARE_SNAPSHOT_UPDATE_RECORDS = ConfigKey[int](
    "share.coordinator.snapshot.update.records.per.snapshot",
    INT,
    500,
    "After how many changes the state of a share partition is written as a whole again.",
    between(0, 500),
)
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = ConfigKey[int](
    "share.coordinator.write.timeout.ms",
    INT,
    5_000,
    "How long a share coordinator waits until the in-sync replicas have its record; then it answers "
    "COORDINATOR_NOT_AVAILABLE.",
    at_least(1),
)


def reset_strategy() -> Allowed:
    """The allowed values of share.auto.offset.reset, which `parse_reset` parses."""

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
