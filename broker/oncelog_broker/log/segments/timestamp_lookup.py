"""Lookups by time for ListOffsets: finds the first record at or after a timestamp, and the record with the largest
timestamp (T12).

Batch headers are enough to find the batch. The records of that batch are then checked one by one, in slices of work,
because a batch may have a million records. The CRC of such a batch is checked first: with a flipped bit in a
timestamp, the lookup could return an offset that is too high, and the consumer would skip records.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog_broker.log.segments.batch_scan import BatchLocation
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.log.unpacking import check_crc, unpacked
from oncelog_broker.runtime.steps import Steps, results_dropped
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.records.batch import HEADER, HEADER_SIZE, NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, RecordBatch
from oncelog_protocol.records.compression import RecordsTooLarge
from oncelog_protocol.records.record_scan import RecordFacts, scan_facts


class TimestampedOffset(NamedTuple):
    """A record found by its timestamp. `leader_epoch` is None if the record's batch has no leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int | None


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, *, log_start_offset: int, upper_bound: int, max_unpacked: int
) -> Steps[TimestampedOffset | None]:
    """Return the first record from `log_start_offset` to before `upper_bound` whose timestamp is at least `timestamp`;
    None if there is none.

    If the records of the batch exceed `max_unpacked` bytes, the batch is not decompressed, and its first offset is
    returned. A consumer that starts at this earlier offset misses no requested record. The steps (a generator) raise
    CorruptBatch, OSError.
    """
    for segment in segments:
        if segment.next_offset <= log_start_offset or segment.max_timestamp < timestamp:
            continue
        for location in segment.batches_from_timestamp(timestamp):
            if location.base_offset >= upper_bound:
                return None
            found = yield from _in_batch(segment, location, timestamp, log_start_offset, max_unpacked)
            if found is not None:
                return found if found.offset < upper_bound else None
            yield results_dropped
    return None


def with_largest(
    segments: Sequence[Segment], *, log_start_offset: int, upper_bound: int, max_unpacked: int
) -> Steps[TimestampedOffset | None]:
    """Return the first record from `log_start_offset` to before `upper_bound` with the largest timestamp; None if no
    record has a timestamp.
    """
    largest, holder = NO_TIMESTAMP, None
    for segment in segments:
        if segment.next_offset <= log_start_offset or segment.base_offset >= upper_bound:
            continue
        if segment.size > 0 and segment.max_timestamp > largest:
            timestamp = yield from _largest_of(segment, log_start_offset, upper_bound, max_unpacked)
            if timestamp > largest:
                largest, holder = timestamp, segment
    if holder is None:
        return None
    found = yield from first_at_or_after(
        [holder], largest, log_start_offset=log_start_offset, upper_bound=upper_bound, max_unpacked=max_unpacked
    )
    return found


def _largest_of(segment: Segment, start: int, end: int, max_unpacked: int) -> Steps[int]:
    """Return the largest timestamp of the segment's records from `start` to before `end`; NO_TIMESTAMP if no record has
    a timestamp.
    """
    if start <= segment.base_offset and segment.next_offset <= end:
        return segment.max_timestamp
    largest, known_up_to = NO_TIMESTAMP, start
    if start <= segment.base_offset:
        largest, known_up_to = segment.largest_before(end)
    for location in segment.batches_from(known_up_to):
        if location.base_offset >= end:
            break
        if location.max_timestamp > largest:
            in_batch = yield from _largest_in_batch(segment, location, start, end, max_unpacked)
            largest = max(largest, in_batch)
        yield None
    return largest


def _largest_in_batch(segment: Segment, location: BatchLocation, start: int, end: int, max_unpacked: int) -> Steps[int]:
    """Return the largest timestamp of the batch's records from `start` to before `end`. The result is the timestamp in
    the batch header, unless the header's timestamp may belong to a record outside that range, or to a record that
    compaction removed.
    """
    if start <= location.base_offset and location.last_offset < end:
        header = HEADER.unpack_from(segment.file.read(location.position, HEADER_SIZE))
        return location.max_timestamp if header[-1] > 0 else NO_TIMESTAMP
    largest = NO_TIMESTAMP
    batch = RecordBatch(segment.file.read(location.position, location.size))
    yield from check_crc(batch)
    try:
        data = yield from unpacked(batch, max_unpacked)
    except RecordsTooLarge:
        return location.max_timestamp
    for facts in scan_facts(batch, data):
        for delta, timestamp in zip(facts.offset_deltas, _timestamps(batch, facts), strict=True):
            if timestamp > largest and start <= batch.base_offset + delta < end:
                largest = timestamp
        yield None
    return largest


def _in_batch(
    segment: Segment, location: BatchLocation, timestamp: int, start_offset: int, max_unpacked: int
) -> Steps[TimestampedOffset | None]:
    batch = RecordBatch(segment.file.read(location.position, location.size))
    yield from check_crc(batch)
    epoch = location.leader_epoch if location.leader_epoch > NO_PARTITION_LEADER_EPOCH else None
    try:
        data = yield from unpacked(batch, max_unpacked)
    except RecordsTooLarge:
        return TimestampedOffset(max(start_offset, batch.base_offset), location.max_timestamp, epoch)
    for facts in scan_facts(batch, data):
        timestamps = _timestamps(batch, facts)
        if max(timestamps) >= timestamp:
            for delta, found in zip(facts.offset_deltas, timestamps, strict=True):
                if found >= timestamp and batch.base_offset + delta >= start_offset:
                    return TimestampedOffset(batch.base_offset + delta, found, epoch)
        yield None
    return None


def _timestamps(batch: RecordBatch, facts: RecordFacts) -> list[int]:
    if batch.is_log_append_time:
        return [batch.max_timestamp] * len(facts.offset_deltas)
    return [batch.base_timestamp + delta for delta in facts.timestamp_deltas]
