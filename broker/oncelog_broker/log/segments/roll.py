"""Decides when the active segment is closed and a new segment is created. Kafka's counterparts are RollParams and
LogSegment.shouldRoll.
"""

from __future__ import annotations

from enum import Enum
from typing import Final
from zlib import crc32

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.segments.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from oncelog_broker.log.segments.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from oncelog_protocol.light_classes import dataclass

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""The largest relative offset: index entries store offsets relative to the segment's base offset as int32."""


class RollReason(Enum):
    """The reason why an active segment was closed, for the log line and for tests."""

    SIZE = "segment.bytes is reached"
    TIME = "segment.ms is reached"
    INDEX_FULL = "an index is full"
    OFFSET_RANGE = "the offset is too far from the segment's base offset"


@dataclass(frozen=True, slots=True)
class RollParams:
    """The limits of one active segment, computed when that segment becomes active."""

    max_size: int
    max_age_ms: int
    max_offset_entries: int
    max_time_entries: int
    max_offset: int

    @property
    def max_offset_index_bytes(self) -> int:
        return self.max_offset_entries * OFFSET_ENTRY_SIZE

    @property
    def max_time_index_bytes(self) -> int:
        return self.max_time_entries * TIME_ENTRY_SIZE

    @classmethod
    def of(cls, config: LogConfig, base_offset: int, salt: str) -> RollParams:
        """Return the limits. `salt` gives each partition a different jitter, so that logs created at the same time do
        not roll at the same time. The jitter is computed from the salt and the base offset, and is not random, so that
        a simulation
        can be repeated.
        """
        # Limit the age by max.compaction.lag.ms, because records in the active segment cannot be compacted.
        segment_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms
        jitter_range = min(config.segment_jitter_ms, segment_ms)
        jitter = crc32(f"{salt}-{base_offset}".encode()) % jitter_range if jitter_range > 0 else 0
        return cls(
            max_size=config.segment_bytes,
            max_age_ms=segment_ms - jitter,
            max_offset_entries=config.segment_index_bytes // OFFSET_ENTRY_SIZE,
            # One entry is reserved for the segment's largest timestamp, which is written when the segment is closed.
            max_time_entries=config.segment_index_bytes // TIME_ENTRY_SIZE - 1,
            max_offset=base_offset + MAX_RELATIVE_OFFSET,
        )


def roll_reason(
    params: RollParams,
    *,
    segment_size: int,
    offset_entries: int,
    time_entries: int,
    age_ms: int,
    batch_size: int,
    last_offset: int,
) -> RollReason | None:
    """Return why the segment must be rolled before a batch of `batch_size` bytes that ends at `last_offset` is
    appended; None if the batch fits.

    `age_ms` is the timestamp of the new batch minus the timestamp of the segment's first batch. If the first batch has
    no timestamp, `age_ms` is the wall time in ms since the segment was created. An empty segment is never too old.
    """
    if segment_size + batch_size > params.max_size and segment_size > 0:
        return RollReason.SIZE
    if age_ms > params.max_age_ms and segment_size > 0:
        return RollReason.TIME
    if offset_entries >= params.max_offset_entries or time_entries >= params.max_time_entries:
        return RollReason.INDEX_FULL
    if last_offset > params.max_offset:
        return RollReason.OFFSET_RANGE
    return None
