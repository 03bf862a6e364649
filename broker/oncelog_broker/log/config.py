"""The per-topic settings that storage needs, named as in Kafka with underscores for dots."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Final, cast

from oncelog_protocol.light_classes import dataclass

LONG_MAX: Final = 2**63 - 1
UNLIMITED: Final = -1
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
DELETE: Final = "delete"
COMPACT: Final = "compact"

STRICT: Final = "strict"
KAFKA: Final = "kafka"
"""The two values of `idempotence.duplicate.classification`: how a leader responds to a batch that is out of sequence.
"""
ACCEPT: Final = "accept"
LEGACY_2_0: Final = "legacy-2.0"
"""The two values of `idempotence.unknown.producer`: how a leader responds to a producer whose state is unknown."""

PRODUCER: Final = "producer"
ZSTD: Final = "zstd"
"""Two of the values of `compression.type`. The setting has no effect, because batches are stored as producers sent
them.
"""

HEADER: Final = "header"
FRAMES: Final = "frames"
FULL: Final = "full"
"""The values of `record.validation`: how much of a producer's batch the leader checks before it appends the batch."""

DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The storage settings of one topic. Sizes are in bytes, times in ms.

    An instance is immutable: to change a setting, pass a new LogConfig to `PartitionLog.update_config`. Types and
    ranges are not checked by this class; `config/` checks them when settings are read.
    """

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024**2
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    max_message_bytes: int = 1048588
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600_000
    cleanup_policy: frozenset[str] = frozenset({DELETE})
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    compression_type: str = PRODUCER
    message_max_decompressed_bytes: int = 64 * 1024**2
    record_validation: str = FRAMES
    min_insync_replicas: int = 1
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    follower_replication_throttled_replicas: frozenset[str] = frozenset()
    idempotence_duplicate_classification: str = STRICT
    idempotence_unknown_producer: str = ACCEPT
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> LogConfig:
        """Build the settings from typed values by Kafka key (such as `segment.bytes`); keys that storage does not use
        are ignored.

        `cleanup.policy` may be a string ("compact,delete") or a collection of strings.
        """
        known: dict[str, object] = {}
        for field in fields(cls):
            key = field.name.replace("_", ".")
            if key in values:
                known[field.name] = values[key]
        policy = known.get("cleanup_policy")
        if isinstance(policy, str):
            known["cleanup_policy"] = frozenset(name.strip() for name in policy.split(",") if name.strip())
        elif isinstance(policy, (list, tuple, set)):
            known["cleanup_policy"] = frozenset(policy)
        for name in ("leader_replication_throttled_replicas", "follower_replication_throttled_replicas"):
            known[name] = frozenset(cast(Collection[str], known.get(name, ())))
        return cls(**known)  # type: ignore[arg-type]

    @property
    def syncs_before_ack(self) -> bool:
        """Whether records must be on the disk before they are acknowledged (group commit)."""
        return self.flush_messages == 1

    @property
    def limits_unflushed(self) -> bool:
        """Whether the settings require a flush after a number of records, or after a time."""
        return self.flush_messages < LONG_MAX or self.flush_ms < LONG_MAX

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def deletes_by_retention(self) -> bool:
        return DELETE in self.cleanup_policy

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME
