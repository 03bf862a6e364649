"""ListOffsets by time: the first record at or after a timestamp, and the one with the largest (T12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncelog_broker.log.batch_scan import BatchLocation
from oncelog_broker.log.segment import Segment
from oncelog_protocol.records.batch import NO_PARTITION_LEADER_EPOCH, RecordBatch
from oncelog_protocol.records.record import read_records


class TimestampedOffset(NamedTuple):
    """A record found by time. `leader_epoch` is None where its batch has none."""

    offset: int
    timestamp: int
    leader_epoch: int | None


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, *, log_start_offset: int, upper_bound: int
) -> TimestampedOffset | None:
    """The first record of `log_start_offset..upper_bound-1` whose timestamp is at least `timestamp`.

    Reads the records of the batch that holds it, decompressed: batch headers are exact enough to find the batch only.
    Raises CorruptBatch, OSError.
    """
    for segment in segments:
        if segment.next_offset <= log_start_offset or segment.max_timestamp < timestamp:
            continue
        for location in segment.batches_from_timestamp(timestamp):
            if location.base_offset >= upper_bound:
                return None
            found = _in_batch(segment, location, timestamp, log_start_offset)
            if found is not None:
                return found if found.offset < upper_bound else None
    return None


def with_largest(segments: Sequence[Segment], *, log_start_offset: int, upper_bound: int) -> TimestampedOffset | None:
    """The first record with the largest timestamp of the log. Raises CorruptBatch, OSError."""
    live = [segment for segment in segments if segment.next_offset > log_start_offset and segment.size > 0]
    if not live:
        return None
    largest = max(segment.max_timestamp for segment in live)
    if largest < 0:
        return None
    return first_at_or_after(live, largest, log_start_offset=log_start_offset, upper_bound=upper_bound)


def _in_batch(segment: Segment, location: BatchLocation, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    batch = RecordBatch(segment.file.read(location.position, location.size))
    for record in read_records(batch):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            epoch = location.leader_epoch if location.leader_epoch > NO_PARTITION_LEADER_EPOCH else None
            return TimestampedOffset(record.offset, record.timestamp, epoch)
    return None
