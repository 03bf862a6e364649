"""Decides which segments of a log may be deleted. Kafka's counterpart is UnifiedLog.deleteOldSegments."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog_broker.log.config import LogConfig
from oncelog_protocol.light_classes import NamedTuple


class SegmentFacts(NamedTuple):
    """The fields of a segment that retention needs: offsets, size and timestamp. `next_offset` is the first offset
    after the segment.
    """

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp_ms: int


def deletable_segments(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, log_start_offset: int, upper_bound: int
) -> int:
    """Return how many of `segments`, counted from the oldest, may be deleted; a segment may be deleted only together
    with all older segments.

    A segment is deleted if its records are too old, if the rest of the log still reaches the size limit, or if all its
    records are below the log start. A segment that extends above `upper_bound` (the high watermark) is not deleted,
    because followers may
    still need it. The last segment may be deleted unless it is empty; the log then creates a new segment.
    """
    by_retention = config.deletes_by_retention
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if segment.next_offset > upper_bound or (segment is segments[-1] and segment.size == 0):
            break
        below_start = segment.next_offset <= log_start_offset
        too_old = by_retention and 0 <= config.retention_ms < now_ms - segment.largest_timestamp_ms
        too_large = by_retention and config.retention_bytes >= 0 and excess >= segment.size
        if not (below_start or too_old or too_large):
            break
        excess -= segment.size
        count += 1
    return count
