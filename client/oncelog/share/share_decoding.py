"""Reads the acquired records of one partition from a ShareFetch response. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from oncelog.cluster import TopicPartition
from oncelog.consumer.records import ConsumerRecord, decode_batch
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch, whole_batches_size

MAX_OFFSETS: Final = 1_000_000
"""Maximum number of offsets that are acquired from one partition in one response, so that a response cannot fill the
memory.
"""


class Decoded(NamedTuple):
    """`records` contains each record with the number of its deliveries. `gaps` are acquired offsets without a record;
    `unreadable` are offsets of batches that cannot be read because of `error`.
    """

    records: Sequence[tuple[ConsumerRecord, int]]
    gaps: Sequence[int] = ()
    unreadable: Sequence[int] = ()
    error: str | None = None


def decode(
    partition: TopicPartition,
    data: memoryview,
    acquired: Iterable[Any],
    *,
    check_crcs: bool,
    max_decompressed_bytes: int,
) -> Decoded:
    """Return the records that were acquired; `acquired` are AcquiredRecords, ascending. If more than MAX_OFFSETS
    offsets were acquired, the result has only an error, and the acquisition locks of the offsets expire.
    """
    acquired = list(acquired)
    if sum(max(0, batch.last_offset - batch.first_offset + 1) for batch in acquired) > MAX_OFFSETS:
        return Decoded([], error=f"more than {MAX_OFFSETS} offsets were acquired at once")
    counts = {
        offset: batch.delivery_count
        for batch in acquired
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
    records: list[tuple[ConsumerRecord, int]] = []
    unreadable: list[int] = []
    error: str | None = None
    position, size = 0, whole_batches_size(data)
    try:
        while position < size:
            batch = RecordBatch(data, position)
            position += batch.size
            if batch.is_control:
                continue
            try:
                if check_crcs and not batch.crc_is_valid():
                    raise CorruptBatch("the CRC does not match")
                found = decode_batch(batch, *partition, batch.base_offset, max_decompressed_bytes)
            except CorruptBatch as problem:
                error = str(problem)
                unreadable += [
                    offset for offset in range(batch.base_offset, batch.next_offset) if counts.pop(offset, None)
                ]
                continue
            for record in found:
                count = counts.pop(record.offset, None)
                if count is not None:
                    records.append((record, count))
    except CorruptBatch as problem:  # the header of this batch is unreadable, so the start of the next batch is unknown
        return Decoded(records, (), [*unreadable, *sorted(counts)], str(problem))
    return Decoded(records, sorted(counts), unreadable, error)
