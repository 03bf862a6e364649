"""The broker keys that topics inherit. Each of these keys sets the default of a topic key; the declaration of the topic
key in `topic_keys` explains the meaning.

Names and defaults are Kafka's. A dynamic change of such a key applies to the entire cluster.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.declared import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
    between,
    each_of,
    one_of,
)

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
HIGH = Importance.HIGH
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

CLEANUP_POLICIES: Final = ("delete", "compact")
COMPRESSION_TYPES: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")

LOG_SEGMENT_BYTES = ConfigKey[int](
    "log.segment.bytes",
    INT,
    1024**3,
    "Default of segment.bytes. Kafka 4 requires at least 1 MiB; ours requires 14 bytes, as older releases of Kafka do.",
    at_least(14),
    HIGH,
    CLUSTER_WIDE,
)
LOG_ROLL_MS = ConfigKey[int | None](
    "log.roll.ms",
    LONG,
    None,
    "Default of segment.ms. If not set, log.roll.hours applies.",
    at_least(1),
    HIGH,
    CLUSTER_WIDE,
)
LOG_ROLL_HOURS = ConfigKey[int](
    "log.roll.hours", INT, 168, "Default of segment.ms, in hours, used if log.roll.ms is not set.", at_least(1), HIGH
)
LOG_ROLL_JITTER_MS = ConfigKey[int | None](
    "log.roll.jitter.ms",
    LONG,
    None,
    "Default of segment.jitter.ms. If not set, log.roll.jitter.hours applies.",
    at_least(0),
    HIGH,
    CLUSTER_WIDE,
)
LOG_ROLL_JITTER_HOURS = ConfigKey[int](
    "log.roll.jitter.hours",
    INT,
    0,
    "Default of segment.jitter.ms, in hours, used if log.roll.jitter.ms is not set.",
    at_least(0),
    HIGH,
)
LOG_RETENTION_MS = ConfigKey[int | None](
    "log.retention.ms",
    LONG,
    None,
    "Default of retention.ms. If not set, log.retention.minutes applies. -1 means for ever.",
    at_least(-1),
    HIGH,
    CLUSTER_WIDE,
)
LOG_RETENTION_MINUTES = ConfigKey[int | None](
    "log.retention.minutes",
    INT,
    None,
    "Default of retention.ms, in minutes. If not set, log.retention.hours applies.",
    at_least(-1),
    HIGH,
)
LOG_RETENTION_HOURS = ConfigKey[int](
    "log.retention.hours",
    INT,
    168,
    "Default of retention.ms, in hours, used if log.retention.ms and log.retention.minutes are not set.",
    at_least(-1),
    HIGH,
)
LOG_RETENTION_BYTES = ConfigKey[int](
    "log.retention.bytes", LONG, -1, "Default of retention.bytes.", at_least(-1), HIGH, CLUSTER_WIDE
)
LOG_CLEANUP_POLICY = ConfigKey[tuple[str, ...]](
    "log.cleanup.policy",
    LIST,
    ("delete",),
    "Default of cleanup.policy.",
    each_of(*CLEANUP_POLICIES),
    update_mode=CLUSTER_WIDE,
)
LOG_SEGMENT_DELETE_DELAY_MS = ConfigKey[int](
    "log.segment.delete.delay.ms", LONG, 60_000, "Default of file.delete.delay.ms.", at_least(0), HIGH, CLUSTER_WIDE
)
LOG_INDEX_INTERVAL_BYTES = ConfigKey[int](
    "log.index.interval.bytes", INT, 4096, "Default of index.interval.bytes.", at_least(0), update_mode=CLUSTER_WIDE
)
LOG_INDEX_SIZE_MAX_BYTES = ConfigKey[int](
    "log.index.size.max.bytes",
    INT,
    10 * 1024**2,
    "Default of segment.index.bytes.",
    at_least(4),
    update_mode=CLUSTER_WIDE,
)
LOG_FLUSH_INTERVAL_MESSAGES = ConfigKey[int](
    "log.flush.interval.messages",
    LONG,
    LONG_MAX,
    "Default of flush.messages. With 1 on all brokers, acknowledged records survive a power cut of all of them.",
    at_least(1),
    HIGH,
    CLUSTER_WIDE,
)
LOG_FLUSH_INTERVAL_MS = ConfigKey[int | None](
    "log.flush.interval.ms",
    LONG,
    None,
    "Default of flush.ms. If not set, log.flush.scheduler.interval.ms applies.",
    at_least(0),
    HIGH,
    CLUSTER_WIDE,
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = ConfigKey[int](
    "log.flush.scheduler.interval.ms",
    LONG,
    LONG_MAX,
    "How often logs are checked for flush.ms. Also the default of flush.ms if log.flush.interval.ms is not set.",
    at_least(0),
    HIGH,
)
LOG_PREALLOCATE = ConfigKey[bool](
    "log.preallocate", BOOLEAN, False, "Default of preallocate.", update_mode=CLUSTER_WIDE
)
LOG_MESSAGE_TIMESTAMP_TYPE = ConfigKey[str](
    "log.message.timestamp.type",
    STRING,
    "CreateTime",
    "Default of message.timestamp.type.",
    one_of(*TIMESTAMP_TYPES),
    update_mode=CLUSTER_WIDE,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = ConfigKey[int](
    "log.message.timestamp.before.max.ms",
    LONG,
    LONG_MAX,
    "Default of message.timestamp.before.max.ms.",
    at_least(0),
    update_mode=CLUSTER_WIDE,
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = ConfigKey[int](
    "log.message.timestamp.after.max.ms",
    LONG,
    3_600_000,
    "Default of message.timestamp.after.max.ms.",
    at_least(0),
    update_mode=CLUSTER_WIDE,
)
MESSAGE_MAX_BYTES = ConfigKey[int](
    "message.max.bytes", INT, 1048588, "Default of max.message.bytes.", at_least(0), HIGH, CLUSTER_WIDE
)
LOG_RECORD_VALIDATION = ConfigKey[str](
    "log.record.validation",
    STRING,
    "frames",
    "Default of record.validation.",
    one_of("header", "frames", "full"),
    update_mode=CLUSTER_WIDE,
)
MIN_INSYNC_REPLICAS = ConfigKey[int](
    "min.insync.replicas", INT, 1, "Default of a topic's min.insync.replicas.", between(1, INT_MAX), HIGH, CLUSTER_WIDE
)
COMPRESSION_TYPE = ConfigKey[str](
    "compression.type",
    STRING,
    "producer",
    "Default of a topic's compression.type.",
    one_of(*COMPRESSION_TYPES),
    HIGH,
    CLUSTER_WIDE,
)
UNCLEAN_LEADER_ELECTION_ENABLE = ConfigKey[bool](
    "unclean.leader.election.enable",
    BOOLEAN,
    False,
    "Default of a topic's unclean.leader.election.enable.",
    importance=HIGH,
    update_mode=CLUSTER_WIDE,
)
LOG_CLEANER_DELETE_RETENTION_MS = ConfigKey[int](
    "log.cleaner.delete.retention.ms",
    LONG,
    86_400_000,
    "Default of delete.retention.ms.",
    at_least(0),
    update_mode=CLUSTER_WIDE,
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = ConfigKey[float](
    "log.cleaner.min.cleanable.ratio",
    DOUBLE,
    0.5,
    "Default of min.cleanable.dirty.ratio.",
    between(0, 1),
    update_mode=CLUSTER_WIDE,
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = ConfigKey[int](
    "log.cleaner.min.compaction.lag.ms",
    LONG,
    0,
    "Default of min.compaction.lag.ms.",
    at_least(0),
    update_mode=CLUSTER_WIDE,
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = ConfigKey[int](
    "log.cleaner.max.compaction.lag.ms",
    LONG,
    LONG_MAX,
    "Default of max.compaction.lag.ms.",
    at_least(1),
    update_mode=CLUSTER_WIDE,
)
