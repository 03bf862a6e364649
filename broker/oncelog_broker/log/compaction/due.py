"""Decides which log is compacted next, which part of that log, and which groups of segments are merged.

A log has three parts: a clean part, which was compacted before; a dirty part after it, up to `end`; and an undecided
part, which must not be compacted yet. The undecided part has the active segment, the segments with records at or above
the high watermark (or last stable offset), and the segments with records younger than min.compaction.lag.ms. Each
segment belongs to exactly one of these three parts. Kafka's counterparts are LogCleanerManager and
Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from oncelog_broker.log.config import LONG_MAX, LogConfig
from oncelog_broker.log.segments.roll import MAX_RELATIVE_OFFSET
from oncelog_protocol.light_classes import NamedTuple


class SegmentSummary(NamedTuple):
    """The fields of a closed segment that the cleaner needs: offsets, size and timestamps. `next_offset` is the first
    offset after the segment.
    """

    base_offset: int
    next_offset: int
    size: int
    first_timestamp_ms: int
    """Timestamp of the segment's first batch, in ms; below 0 if there is no batch or no timestamp."""
    largest_timestamp_ms: int


class CleanableRange(NamedTuple):
    """The cleanable range of a log: the offsets from `first_dirty` to before `end` may be compacted. `clean_bytes` and
    `dirty_bytes` are sums of the sizes of entire segments.
    """

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether a dirty record (not compacted yet) is older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether a dirty record (not compacted yet) is older than max.compaction.lag.ms, or the dirty ratio exceeds
        min.cleanable.dirty.ratio.
        """
        if self.dirty_bytes == 0:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Return the offset where the dirty part begins, according to the cleaner checkpoint. A checkpoint offset outside
    the log is ignored.
    """
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        return log_start_offset
    return checkpoint


def cleanable_range(
    closed: Sequence[SegmentSummary], config: LogConfig, *, first_dirty: int, upper_bound: int, now_ms: int
) -> CleanableRange:
    """Return the part of a log that may be compacted. `closed` lists all segments of the log except the active segment.

    `upper_bound` is the last stable offset: records above it must not replace other records, because a transaction may
    still abort them, or a leader change may remove them.
    """
    youngest_ms = now_ms - config.min_compaction_lag_ms if config.min_compaction_lag_ms > 0 else LONG_MAX
    end = first_dirty
    clean_bytes = dirty_bytes = 0
    first_timestamps = []
    for segment in closed:
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size
            continue
        if segment.next_offset > upper_bound or segment.largest_timestamp_ms > youngest_ms:
            break
        dirty_bytes += segment.size
        end = segment.next_offset
        if segment.first_timestamp_ms >= 0:
            first_timestamps.append(segment.first_timestamp_ms)
    oldest_allowed_ms = now_ms - config.max_compaction_lag_ms
    is_overdue = bool(first_timestamps) and min(first_timestamps) < oldest_allowed_ms
    return CleanableRange(first_dirty, end, clean_bytes, dirty_bytes, is_overdue)


Name = TypeVar("Name")


def dirtiest(logs: Iterable[tuple[Name, CleanableRange, LogConfig]]) -> Name | None:
    """Return the name of the log that is due for compaction and has the largest dirty ratio; None if no log is due."""
    due = [(cleanable.dirty_ratio, name) for name, cleanable, config in logs if cleanable.is_due(config)]
    return max(due, key=lambda entry: entry[0])[1] if due else None


class OffsetRange(Protocol):
    """The offsets and size of a segment: a `Segment` or a `SegmentSummary`."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class GroupLimits(NamedTuple):
    """Limits of one compacted segment: its maximum bytes, and the maximum number of segments merged into it."""

    max_bytes: int
    max_segments: int


def group_segments(segments: Sequence[OffsetRange], limits: GroupLimits) -> list[int]:
    """Return, for each new segment, how many neighbouring segments are merged into it. The size of a merged segment
    does not exceed `limits.max_bytes`, unless a single old segment is already larger.

    Each returned number is at least 1, and the sum of all returned numbers is the number of `segments`.
    """
    groups: list[int] = []
    size, base_offset = 0, 0
    for segment in segments:
        fits = (
            groups
            and groups[-1] < limits.max_segments
            and size + segment.size <= limits.max_bytes
            and segment.next_offset - 1 - base_offset <= MAX_RELATIVE_OFFSET
        )
        if fits:
            groups[-1] += 1
            size += segment.size
        else:
            groups.append(1)
            size, base_offset = segment.size, segment.base_offset
    return groups
