"""Reads facts about a log's segments; `due` uses these facts to choose what is compacted."""

from __future__ import annotations

from oncelog_broker.log.compaction.due import CleanableRange, SegmentSummary, cleanable_range, first_dirty_offset
from oncelog_broker.log.config import LONG_MAX, LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.segments.batch_scan import parse_location
from oncelog_broker.log.segments.segment import Segment
from oncelog_protocol.records.batch import HEADER_SIZE, NO_TIMESTAMP


def cleanable_range_of(log: PartitionLog, *, upper_bound: int, now_ms: int) -> CleanableRange:
    """Return the part of `log` that may be compacted now. Raises CorruptBatch, OSError."""
    return cleanable_range(
        [summarize(segment, log.config) for segment in log.trimmer.closed_segments],
        log.config,
        first_dirty=first_dirty_offset(log.state.cleaner_checkpoint, log.log_start_offset, log.log_end_offset),
        upper_bound=upper_bound,
        now_ms=now_ms,
    )


def summarize(segment: Segment, config: LogConfig) -> SegmentSummary:
    """Return the facts about one segment. Timestamps are read only if the topic sets a compaction lag."""
    first_ms = largest_ms = NO_TIMESTAMP
    if config.max_compaction_lag_ms < LONG_MAX and segment.size > 0:
        first_ms = parse_location(segment.file.read(0, HEADER_SIZE), 0, 0, segment.size).max_timestamp
    if config.min_compaction_lag_ms > 0:
        largest_ms = segment.retention_timestamp_ms()
    return SegmentSummary(
        segment.base_offset,
        segment.next_offset,
        segment.size,
        first_ms,
        largest_ms,
    )
