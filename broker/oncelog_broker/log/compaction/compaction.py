"""Compacts the dirty part of a log: keeps only the last record of each key (cleanup.policy=compact, S56, KIP-534).

1. Read the headers of the clean part and the keys of the dirty part, to find the last record of each key and the last
batch of each producer.
2. Rewrite the segments from the log's start to the end of the dirty part, in groups, with the records that
remain.

A batch that keeps all records is copied unchanged. A batch that loses all its records is not decoded: either the batch
is dropped, or only its header is kept. Tombstones remain for delete.retention.ms after the first compaction that met
them, so that
readers see the deletions. A transaction marker also remains for delete.retention.ms after the transaction's data was
removed. Tombstones and markers are also kept while a replica is not in sync. An out-of-sync replica may still have the
deleted or aborted records, and would return them to consumers if it became leader. Compaction does not change batches
at or above offset `end`.

If the offset map is full, the dirty part ends at the first record that did not fit, which may be in the middle of a
segment.
Records after the end of the dirty part are copied unchanged, with their entries in the transaction index; the next
cleaning compacts them.

Kafka's counterpart is Cleaner.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from oncelog_broker.log.compaction.batch_reader import BatchReader
from oncelog_broker.log.compaction.batch_retention import ProducerBatches, TransactionScan
from oncelog_broker.log.compaction.cleaned_segment import CleanedSegment
from oncelog_broker.log.compaction.due import GroupLimits, group_segments
from oncelog_broker.log.compaction.live_batches import LiveBatches
from oncelog_broker.log.compaction.offset_map import OffsetMap
from oncelog_broker.log.config import LONG_MAX
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.segments.recovery import SWAP_SUFFIX
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.log.unpacking import check_crc
from oncelog_broker.runtime.disk import Disk
from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.light_classes import dataclass
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.columns import MAX_DECOMPRESSED_BYTES, records_data
from oncelog_protocol.records.control import ControlType, parse_control_key
from oncelog_protocol.records.record_scan import RecordSpan, scan_keys, scan_spans
from oncelog_protocol.records.rewrite import empty_batch, rewrite_batch

logger = logging.getLogger(__name__)

INLINE_BATCH_BYTES: Final = 64 * 1024
"""A batch of up to this many bytes is decompressed in the calling thread, because a job in another thread costs more.
Exception: a batch whose decompressed records exceed INLINE_RECORDS_BYTES.
"""
INLINE_RECORDS_BYTES: Final = 512 * 1024
INLINE_COMPRESS_BYTES: Final = 32 * 1024
"""Records of up to this many bytes are compressed in the calling thread; this limit is lower than the limit for
decompressing, because compressing is slower than decompressing.
"""
MAX_SEGMENTS_PER_GROUP: Final = 16
"""The maximum number of segments that are replaced in one step. Each replaced segment needs a few renames: the renames
for 64 segments took 8 ms, and 57 ms on a busy disk. The next cleaning merges the remaining segments.
"""

Kept = RecordBatch | None
"""The retained part of a batch: the unchanged batch, a smaller batch, or None if the batch is dropped."""


@dataclass(slots=True)
class CompactionStats:
    """Counters of one cleaning, for its log line."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_dropped: int = 0
    keyless_records: int = 0
    kept_for_replicas: int = 0
    """The number of batches whose tombstones or markers were kept after their delete horizon, because a replica is not
    in sync.
    """


class Compaction:
    """One run of the cleaner on one log. The run compacts from offset `first_dirty` up to `end`, which is the end of a
    segment. An instance is
    used only once.
    """

    def __init__(
        self,
        log: PartitionLog,
        *,
        disk: Disk,
        first_dirty: int,
        end: int,
        now_ms: int,
        offset_map_bytes: int,
        producer_id_expiration_ms: int,
        all_replicas_have_it: bool,
    ) -> None:
        """`all_replicas_have_it` (function): returns whether all replicas of the partition are in sync. If a replica is
        not in sync, no tombstone and no marker is dropped.
        """
        self._log = log
        self._disk = disk
        self._config = log.config
        self._generation = log.trimmer.generation
        self._segments = [segment for segment in log.trimmer.closed_segments if segment.next_offset <= end]
        self._first_dirty = first_dirty
        self._end = end
        self._now_ms = now_ms
        self._aborted: Sequence[EndedTransaction] = log.producers.aborted.all()
        self._map = OffsetMap(offset_map_bytes)
        self._live = LiveBatches()
        self._all_replicas_have_it = all_replicas_have_it
        self._producers = ProducerBatches(now_ms, producer_id_expiration_ms)
        self._transactions = TransactionScan(self._aborted)
        self.stats = CompactionStats()

    @property
    def bytes_done(self) -> int:
        """The number of bytes read and written so far; log.cleaner.io.max.bytes.per.second limits how fast this number
        grows.
        """
        return self.stats.bytes_read + self.stats.bytes_written

    def steps(self) -> Steps[int | None]:
        """Compact the log in slices of work. Returns the first offset that is still dirty (not compacted yet), or None
        if the log was truncated or deleted during the compaction. Raises CorruptBatch, OSError, KafkaError
        (KAFKA_STORAGE_ERROR).
        """
        self._end = yield from self._fill_map()
        for offsets in self._map.offsets():
            self._live.count(offsets)
            yield None
        segments = [segment for segment in self._segments if segment.base_offset < self._end]
        limits = GroupLimits(self._config.segment_bytes, MAX_SEGMENTS_PER_GROUP)
        at = 0
        for count in group_segments(segments, limits):
            if not (yield from self._clean_group(segments[at : at + count])):
                return None
            at += count
        return self._end

    # --- pass 1: find the last offset of each key ---------------------------------------------------------------------

    def _fill_map(self) -> Steps[int]:
        """Read all batch headers, and the keys of the dirty part; returns the first offset whose key is not in the
        map.
        """
        dirty = [transaction for transaction in self._aborted if transaction.last_offset >= self._first_dirty]
        transactions = TransactionScan(dirty)
        for segment in self._segments:
            reader = BatchReader(self._disk, segment)
            try:
                while not reader.at_end():
                    chunk = yield reader.read
                    self.stats.bytes_read += len(chunk)
                    for batch in reader.batches(chunk):
                        self._producers.note(batch)
                        if batch.last_offset >= self._first_dirty:
                            full_at = yield from self._put_batch(batch, transactions)
                            if full_at is not None:
                                return full_at
                        yield None
            finally:
                reader.close()
        return self._end

    def _put_batch(self, batch: RecordBatch, transactions: TransactionScan) -> Steps[int | None]:
        """Put the keys of `batch` into the map. Returns the first offset whose key did not fit into the map; None if
        all keys fitted.
        """
        if batch.is_control:
            transactions.ends_empty_transaction(batch, (yield from self._control_type(batch)))
            return None
        if not transactions.is_aborted(batch):
            data = yield from self._records(batch)
            base_offset = batch.base_offset
            for deltas, keys in scan_keys(batch, data):
                offsets = [base_offset + delta for delta in deltas]
                if offsets[0] < self._first_dirty:
                    clean = sum(offset < self._first_dirty for offset in offsets)
                    offsets, keys = offsets[clean:], keys[clean:]
                put = self._map.put_all(keys, offsets)
                if put < len(offsets):
                    return offsets[put]
                yield None
        if batch.base_offset >= self._first_dirty:
            self._live.track(batch)
        return None

    def _control_type(self, batch: RecordBatch) -> Steps[ControlType | None]:
        """Return the type of the control record in `batch`; None if the batch has no record, or a record of unknown
        type.
        """
        if batch.records_count == 0:
            return None
        data = yield from self._records(batch)
        for spans in scan_spans(batch, data):
            return parse_control_key(spans[0].key)
        return None

    def _records(self, batch: RecordBatch) -> Steps[bytes]:
        """Return the decompressed records of `batch`, after checking the CRC."""
        if batch.size <= INLINE_BATCH_BYTES:
            try:
                return _checked_records(batch, INLINE_RECORDS_BYTES)
            except CorruptBatch:
                pass  # the records are too large for this thread: decompress them in a job below
        data: bytes = yield partial(_checked_records, batch, MAX_DECOMPRESSED_BYTES)
        return data

    # --- pass 2: write the batches that remain ------------------------------------------------------------------------

    def _clean_group(self, group: Sequence[Segment]) -> Steps[bool]:
        """Write the remaining batches of `group` as one segment, and replace the group by that segment. Returns False
        if the log has changed during the write.

        After a crash, recovery compares the last offset in the cleaned segment with the old segments, to find which old
        segments the cleaned segment replaces. Segments at the end of the group that lose all their records have no
        offset in the cleaned segment, so each of them is replaced by an empty segment of its own. Segments that were
        already empty are replaced together with the group, because otherwise a log whose records are all rewritten
        would gain an empty segment at each cleaning.
        """
        cleaned = self._new_segment(group[0])
        replaced = False
        try:
            is_changed, count = len(group) > 1, 1
            for number, segment in enumerate(group, 1):
                size = cleaned.size
                is_changed |= yield from self._clean_segment(segment, cleaned)
                if cleaned.size > size or (segment.size == 0 and number == count + 1):
                    count = number
            if is_changed:
                replaced = yield from self._put_in_place(cleaned, group[:count])
            if not replaced:
                yield cleaned.discard  # a job in a thread, because removing a large file takes long
                if is_changed:
                    return False
        finally:
            if not replaced:
                cleaned.discard()
        for segment in group[count:]:
            if segment.size > 0 and not (yield from self._empty(segment)):
                return False
        return True

    def _empty(self, segment: Segment) -> Steps[bool]:
        cleaned = self._new_segment(segment)
        replaced = False
        try:
            replaced = yield from self._put_in_place(cleaned, [segment])
        finally:
            if not replaced:
                cleaned.discard()
        return replaced

    def _new_segment(self, first: Segment) -> CleanedSegment:
        return CleanedSegment(
            self._disk,
            self._log.directory,
            first.base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            now_ms=self._now_ms,
            is_wanted=lambda: not self._log.is_offline,
        )

    def _put_in_place(self, cleaned: CleanedSegment, old: Sequence[Segment]) -> Steps[bool]:
        cleaned.aborted = self._still_aborted(old)
        if not (yield cleaned.finish):
            return False
        self.stats.bytes_written += cleaned.size
        try:
            return self._log.trimmer.replace_segments(
                old, cleaned.segment, cleaned.aborted, suffix=SWAP_SUFFIX, generation=self._generation
            )
        except KafkaError:
            cleaned.hand_over()
            raise

    def _still_aborted(self, old: Sequence[Segment]) -> list[EndedTransaction]:
        """Return the aborted transactions that have their marker in one of the `old` segments, and that may still have
        records.

        If the marker of a transaction is below `end`, all records of the transaction are below `end`, too, and
        compaction has removed them. A transaction
        whose marker is at or after `end` keeps the marker and all records from `end` on. (If the offset map was full,
        `end` is in the middle of a segment.)
        """
        start, end = max(old[0].base_offset, self._end), old[-1].next_offset
        return [transaction for transaction in self._aborted if start <= transaction.last_offset < end]

    def _clean_segment(self, segment: Segment, cleaned: CleanedSegment) -> Steps[bool]:
        """Add the remaining batches of `segment` to `cleaned`. Returns whether any batch was dropped or changed."""
        is_changed = False
        reader = BatchReader(self._disk, segment)
        try:
            while not reader.at_end():
                chunk = yield reader.read
                self.stats.bytes_read += len(chunk)
                for batch in reader.batches(chunk):
                    kept = yield from self._kept_of(batch)
                    is_changed |= kept is not batch
                    left = 0
                    if kept is not None:
                        left = kept.records_count
                        cleaned.add(kept.view, left)
                    self.stats.records_dropped += batch.records_count - left
                    if cleaned.should_write:
                        yield cleaned.write
                    yield None
        finally:
            reader.close()
        return is_changed

    def _kept_of(self, batch: RecordBatch) -> Steps[Kept]:
        """Return the part of `batch` that the compacted segment keeps."""
        if batch.base_offset >= self._end:
            return batch
        if batch.is_control:
            control_type = yield from self._control_type(batch)
            if not self._transactions.ends_empty_transaction(batch, control_type):
                return batch
            return (yield from self._kept_of_useless_marker(batch))
        if self._transactions.is_aborted(batch) or batch.records_count == 0:
            # A flipped bit in the header can make a batch look aborted or empty (for example, another producer id). Its
            # records must stay, and the rewritten batch would get a valid CRC, which hides the damage.
            yield from check_crc(batch)
            return self._without_records(batch)
        if self._live.is_dead(batch):  # pass 1 has checked the CRC of each tracked batch
            return self._without_records(batch)
        return (yield from self._kept_of_data(batch))

    def _kept_of_useless_marker(self, batch: RecordBatch) -> Steps[Kept]:
        horizon_ms = batch.delete_horizon_ms
        if batch.records_count > 0 and horizon_ms is None:
            data = yield from self._records(batch)
            spans = [span for some in scan_spans(batch, data) for span in some]
            return RecordBatch(rewrite_batch(batch, data, spans, delete_horizon_ms=self._new_horizon_ms))
        if batch.records_count == 0 or self._has_passed(horizon_ms):
            yield from check_crc(batch)
            return self._without_records(batch)
        return batch

    def _kept_of_data(self, batch: RecordBatch) -> Steps[Kept]:
        data = yield from self._records(batch)
        horizon_ms = batch.delete_horizon_ms
        horizon_passed = self._has_passed(horizon_ms)
        kept: list[RecordSpan] = []
        for spans in scan_spans(batch, data):
            kept += [span for span in spans if self._stays(batch.base_offset + span.offset_delta, span, horizon_passed)]
            yield None
        if not kept:
            return self._without_records(batch)
        new_horizon_ms = None
        if horizon_ms is None and any(span.is_tombstone for span in kept):
            new_horizon_ms = self._new_horizon_ms
        if new_horizon_ms is None and len(kept) == batch.records_count:
            return batch
        rewrite = partial(rewrite_batch, batch, data, kept, delete_horizon_ms=new_horizon_ms)
        if len(data) <= INLINE_COMPRESS_BYTES:
            return RecordBatch(rewrite())
        return RecordBatch((yield rewrite))

    def _stays(self, offset: int, span: RecordSpan, horizon_passed: bool) -> bool:
        if offset >= self._end:
            return True
        if span.key is None:
            self.stats.keyless_records += 1  # Kafka also drops records without a key
            return False
        return self._map.get(span.key) <= offset and not (span.is_tombstone and horizon_passed)

    def _without_records(self, batch: RecordBatch) -> Kept:
        """Return a batch with the header of `batch` and no records if the state of the producer depends on that header;
        otherwise None.
        """
        if not self._producers.is_last(batch):
            return None
        return batch if batch.records_count == 0 else RecordBatch(empty_batch(batch))

    def _has_passed(self, horizon_ms: int | None) -> bool:
        """Whether the delete horizon has passed and all replicas are in sync, so that tombstones and markers may be
        dropped.
        """
        if horizon_ms is None or horizon_ms > self._now_ms:
            return False
        self.stats.kept_for_replicas += not self._all_replicas_have_it
        return self._all_replicas_have_it

    @property
    def _new_horizon_ms(self) -> int:
        return min(self._now_ms + self._config.delete_retention_ms, LONG_MAX)


def _checked_records(batch: RecordBatch, max_bytes: int) -> bytes:
    if not batch.crc_is_valid():
        raise CorruptBatch(f"the CRC of {batch!r} is wrong")
    return records_data(batch, max_bytes)
