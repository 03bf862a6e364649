"""ListOffsets by time: the first record at or after a timestamp, and the one with the largest (T12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncelog_broker.log.segments.batch_scan import BatchLocation
from oncelog_broker.log.segments.segment import Segment
from oncelog_protocol.records.batch import HEADER, HEADER_SIZE, NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, RecordBatch
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
    """Of `log_start_offset..upper_bound-1`, the first record with the largest timestamp. CorruptBatch, OSError."""
    largest, holder = NO_TIMESTAMP, None
    for segment in segments:
        if segment.next_offset <= log_start_offset or segment.base_offset >= upper_bound:
            continue
        if segment.size > 0 and segment.max_timestamp > largest:
            timestamp = _largest_of(segment, log_start_offset, upper_bound)
            if timestamp > largest:
                largest, holder = timestamp, segment
    if holder is None:
        return None
    return first_at_or_after([holder], largest, log_start_offset=log_start_offset, upper_bound=upper_bound)


def _largest_of(segment: Segment, start: int, end: int) -> int:
    """The largest timestamp of the segment's records from `start` to before `end`; NO_TIMESTAMP if none has one."""
    if start <= segment.base_offset and segment.next_offset <= end:
        return segment.max_timestamp
    largest, known_up_to = NO_TIMESTAMP, start
    if start <= segment.base_offset:
        largest, known_up_to = segment.largest_before(end)
    for location in segment.batches_from(known_up_to):
        if location.base_offset >= end:
            break
        if location.max_timestamp > largest:
            largest = max(largest, _largest_in_batch(segment, location, start, end))
    return largest


def _largest_in_batch(segment: Segment, location: BatchLocation, start: int, end: int) -> int:
    """What its header says, unless that may be about a record outside, or one that compaction took away."""
    if start <= location.base_offset and location.last_offset < end:
        header = HEADER.unpack_from(segment.file.read(location.position, HEADER_SIZE))
        return location.max_timestamp if header[-1] > 0 else NO_TIMESTAMP
    records = read_records(RecordBatch(segment.file.read(location.position, location.size)))
    return max((record.timestamp for record in records if start <= record.offset < end), default=NO_TIMESTAMP)


def _in_batch(segment: Segment, location: BatchLocation, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    batch = RecordBatch(segment.file.read(location.position, location.size))
    for record in read_records(batch):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            epoch = location.leader_epoch if location.leader_epoch > NO_PARTITION_LEADER_EPOCH else None
            return TimestampedOffset(record.offset, record.timestamp, epoch)
    return None
