"""The log of one partition: what is let in, given out, kept and promised; the bytes are `LocalLog`'s.

Offsets: log_start_offset <= high watermark <= log_end_offset, the next one to be assigned. The high watermark is
replication's business; it comes in as `upper_bound`. Below the recovery point everything is synced.

What it is to readers, also when it is offline (E26), is `ReadableLog`'s.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.flush import FlushesUnderWay, PendingFlush
from oncelog_broker.log.header_fields import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    HeaderFields,
)
from oncelog_broker.log.internal_batches import assign_offsets, check_offsets, checked_batches, stamp_append_time
from oncelog_broker.log.log_content import LogContent
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.producers.state import DuplicateBatch
from oncelog_broker.log.readable_log import ReadableLog
from oncelog_broker.log.record_validation import records_check, refuse_timestamps
from oncelog_broker.log.segments.lost_segments import LogCorrupt
from oncelog_broker.log.segments.recovery import LastKnown
from oncelog_broker.log.segments.retention import SegmentFacts, deletable_segments
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.log.validation import (
    AppendOrigin,
    ValidationLimits,
    check_batch,
    check_client_batch,
)
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import Disk, is_out_of_space
from oncelog_broker.runtime.steps import Steps, run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import (
    BASE_OFFSET,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    CorruptBatch,
    RecordBatch,
)
from oncelog_protocol.records.control import EndTransactionMarker, marker_batch

logger = logging.getLogger(__name__)

CLOSED: Final = "closed"
"""The reason why a log that was closed in order is offline."""
NO_APPEND_TIME: Final = -1
"""Stands for "the records carry the producer's timestamps" in a produce response."""


class PartitionLog(ReadableLog):
    """Made by `open`. Not thread-safe. Public methods raise KafkaError only, with the codes that they name."""

    __slots__ = (
        "_append_limits",
        "_clock",
        "_disk",
        "_flushes",
        "_last_flush_ms",
        "_recovery_point",
        "_untouched_state",
        "before_truncation",
        "cleaner_checkpoint",
        "walks_records",
    )

    def __init__(
        self,
        content: LogContent,
        *,
        topic: str,
        partition: int,
        config: LogConfig,
        directory: str,
        disk: Disk,
        clock: Clock,
        recovery_point: int,
        log_start_offset: int,
        cleaner_checkpoint: int | None,
    ) -> None:
        """Internal: use `open`."""
        super().__init__(
            content, topic=topic, partition=partition, directory=directory, log_start_offset=log_start_offset
        )
        self.before_truncation: Callable[[PartitionLog], None] | None = None
        """Called when `recovery_point` or `cleaner_checkpoint` went back, before bytes are cut: whoever keeps them on
        disk must lower them there now, since after a crash a log that ends below its recovery point counts as damaged,
        and what is below the cleaner checkpoint counts as compacted. May raise OSError."""
        self.cleaner_checkpoint = cleaner_checkpoint
        """Up to where the log was compacted, as last noted; None if no compaction of it was ever begun."""
        self._disk = disk
        self._clock = clock
        self._flushes = FlushesUnderWay()
        self._untouched_state: tuple[int, int, int, int] | None = None
        self._last_flush_ms = clock.now_ms()
        self._recovery_point = recovery_point
        self.update_config(config)

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        topic: str,
        partition: int,
        config: LogConfig,
        disk: Disk,
        clock: Clock,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        cleaner_checkpoint: int | None = None,
    ) -> PartitionLog:
        """Open or make the log in `directory`, verifying what lies behind `recovery_point` after a crash.

        Raises KAFKA_STORAGE_ERROR if the disk fails, or if records that were synced are damaged: the message says
        which file and why, and nothing has been changed.
        """
        path, name = os.fspath(directory), f"{topic}-{partition}"
        known = LastKnown(recovery_point, log_start_offset, clean_shutdown, cleaner_checkpoint)
        try:
            content = LogContent.open(disk, path, name=name, config=config, clock=clock, known=known)
        except (OSError, LogCorrupt, CorruptBatch) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} cannot be opened: {error}") from error
        first, end = content.local.first.base_offset, content.local.log_end_offset
        log = cls(
            content,
            topic=topic,
            partition=partition,
            config=config,
            directory=path,
            disk=disk,
            clock=clock,
            recovery_point=end if clean_shutdown else max(recovery_point, first),
            log_start_offset=max(log_start_offset, first),
            cleaner_checkpoint=None if cleaner_checkpoint is None else min(cleaner_checkpoint, end),
        )
        if clean_shutdown and log.producers.is_saved(end):
            log._untouched_state = log._state()
        return log

    @property
    def recovery_point(self) -> int:
        """Every record below this offset is synced."""
        return self._recovery_point

    @property
    def unflushed_records(self) -> int:
        return self.log_end_offset - self._recovery_point

    @property
    def last_flush_ms(self) -> int:
        """Wall time of the last flush, or of the opening."""
        return self._last_flush_ms

    def update_config(self, config: LogConfig) -> None:
        """Takes effect from the next call on."""
        self.config = config
        self._append_limits = ValidationLimits.of(config)
        self.walks_records = self._append_limits.walks_records or self._append_limits.requires_keys
        self._local.update_config(config)
        self.producer_state.update_config(config)

    # --- appending -----------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview | bytearray,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        records_checked: bool = False,
    ) -> tuple[int, int]:
        """Append, giving out offsets; returns (offset of the first record, log append time or -1).

        `records` is writable memory: offsets and leader epoch (and for LogAppendTime the timestamp and a new CRC) are
        written into it, and it goes to the file as it is. From a client it must be one batch. `transaction_version` is
        what the producer works by (KIP-890). `records_checked`: the steps of `records_check` have run; else they run
        here, however long they take.

        One of its producer's last batches, sent again, is answered with what was answered then, and nothing changes
        (S8). Nothing changes either where this raises CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP,
        MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, RECORD_LIST_TOO_LARGE, or one of the errors of
        `ProducerState.prepare_append`; after KAFKA_STORAGE_ERROR nothing but that the log is offline.
        """
        if self._offline is not None:
            raise self._offline_error()
        batch = memoryview(records)
        size = len(batch)
        if size < HEADER_SIZE:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes of records are not even a batch header")
        header = HEADER.unpack_from(batch)
        limits = self._append_limits
        now_ms = self._clock.now_ms()
        check_batch(batch, header, limits)
        if origin is AppendOrigin.CLIENT:
            if self.walks_records and not records_checked:
                run_steps(records_check(batch, limits, now_ms))
                header = HEADER.unpack_from(batch)  # the maximum timestamp may have been put right
            check_client_batch(batch, header, walks_frames=limits.walks_frames)
            if not limits.stamps_append_time and (
                header[MAX_TIMESTAMP] - now_ms > limits.timestamp_after_max_ms
                or now_ms - header[BASE_TIMESTAMP] > limits.timestamp_before_max_ms
            ):
                refuse_timestamps(batch, header, limits, now_ms)
        elif header[BATCH_LENGTH] + LOG_OVERHEAD != size:
            return self._append_several_as_leader(batch, leader_epoch, now_ms)
        elif header[ATTRIBUTES] & CONTROL_BIT:
            marker = self.producers.read_marker(batch)
            return self._append_marker(batch, header, marker, leader_epoch, transaction_version, now_ms)
        if size > limits.max_segment_size:
            raise self._larger_than_a_segment(size)
        base_offset = self._local.log_end_offset
        max_timestamp, append_time = header[MAX_TIMESTAMP], NO_APPEND_TIME
        if limits.stamps_append_time:
            max_timestamp = append_time = now_ms
        entry = None
        if header[PRODUCER_ID] >= 0:
            # The check of KIP-890 whether the coordinator knows of the transaction belongs before this: ask it where
            # `has_open_transaction` says no, and be sure that no marker came in between (E2, E3).
            prepared = self.producer_state.prepare_append(header, base_offset, max_timestamp, transaction_version)
            if isinstance(prepared, DuplicateBatch):
                return prepared.base_offset, prepared.timestamp if limits.stamps_append_time else NO_APPEND_TIME
            entry = prepared
        self._write(batch, header, base_offset, leader_epoch, max_timestamp, now_ms)
        if entry is not None:
            self.producer_state.adopt(entry, header, base_offset, max_timestamp)
        return base_offset, append_time

    def records_check(self, records: memoryview) -> Steps[None]:
        """The walk through its records that a producer's batch needs before `append_as_leader`, where `walks_records`.

        It may put the maximum timestamp of the header right. Its steps raise KafkaError, RecordsRefused among them.
        """
        return records_check(records, self._append_limits, self._clock.now_ms())

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        transaction_version: int = 0,
    ) -> int:
        """End the producer's transaction, if one is open, with a marker of the coordinator; returns its offset (S39).

        Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: nothing has changed. KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        now_ms = self._clock.now_ms()
        batch = memoryview(
            marker_batch(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=now_ms)
        )
        header = HEADER.unpack_from(batch)
        return self._append_marker(batch, header, marker, leader_epoch, transaction_version, now_ms)[0]

    def _append_marker(
        self,
        batch: memoryview,
        header: HeaderFields,
        marker: EndTransactionMarker,
        leader_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> tuple[int, int]:
        """`append_as_leader` of `marker`, which `batch` holds."""
        stamped = self._append_limits.stamps_append_time
        timestamp = now_ms if stamped else header[MAX_TIMESTAMP]
        entry = self.producer_state.prepare_marker(
            header[PRODUCER_ID], header[PRODUCER_EPOCH], marker, timestamp, transaction_version
        )
        base_offset = self._local.log_end_offset
        self._write(batch, header, base_offset, leader_epoch, timestamp, now_ms)
        try:
            self.producers.complete(header[PRODUCER_ID], entry, marker, base_offset, self._local.active.base_offset)
        except OSError as error:
            raise self._append_failed(error, base_offset) from error
        return base_offset, now_ms if stamped else NO_APPEND_TIME

    def _write(
        self,
        batch: memoryview,
        header: HeaderFields,
        base_offset: int,
        leader_epoch: int,
        max_timestamp: int,
        now_ms: int,
    ) -> None:
        """Append one batch, all of which is checked. Raises KAFKA_STORAGE_ERROR."""
        if self._append_limits.stamps_append_time:
            stamp_append_time(batch, header[ATTRIBUTES], now_ms)
        BASE_OFFSET.pack_into(batch, 0, base_offset)
        LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)
        if leader_epoch != self._epochs.latest_epoch:
            self.assign_leader_epoch(leader_epoch, base_offset)
        try:
            self._local.append(batch, base_offset + header[LAST_OFFSET_DELTA], max_timestamp, now_ms)
        except OSError as error:
            raise self._append_failed(error, base_offset) from error

    def append_as_follower(self, records: memoryview | bytearray | bytes) -> None:
        """Append what a leader sent, with its offsets and epochs.

        Raises CORRUPT_MESSAGE (a batch is not whole or its CRC is wrong), OFFSET_OUT_OF_RANGE (it does not come after
        the log's end), KAFKA_STORAGE_ERROR. Of several segments' worth, those before a failed write stay.
        """
        self._check_online()
        whole = checked_batches(records)
        check_offsets(whole, self.log_end_offset)
        self._append_all(memoryview(records), whole, self._clock.now_ms())

    def assign_leader_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """`epoch` begins at `start_offset`, by default at the log's end: as soon as its leader is known."""
        self._check_online()
        try:
            self._epochs.assign(epoch, self.log_end_offset if start_offset is None else start_offset)
        except OSError as error:
            raise self._fail_unless_refused("write the leader epochs of", error) from error

    def _append_several_as_leader(self, records: memoryview, leader_epoch: int, now_ms: int) -> tuple[int, int]:
        """Several batches of an internal producer, all or nothing."""
        limits = self._append_limits
        if len(records) > limits.max_segment_size:
            raise self._larger_than_a_segment(len(records))
        base_offset = self.log_end_offset
        whole = assign_offsets(records, limits, base_offset=base_offset, leader_epoch=leader_epoch, now_ms=now_ms)
        self._append_all(records, whole, now_ms)
        return base_offset, now_ms if limits.stamps_append_time else NO_APPEND_TIME

    def _append_all(self, records: memoryview, whole: list[RecordBatch], now_ms: int) -> None:
        for batch in whole:
            if batch.partition_leader_epoch > self._epochs.latest_epoch:
                self.assign_leader_epoch(batch.partition_leader_epoch, batch.base_offset)
        before = self.log_end_offset
        try:
            self._local.append_all(records, whole, now_ms, self.producers.follow)
        except (OSError, CorruptBatch) as error:
            raise self._append_failed(error, before) from error

    # --- rolling -------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Close the active segment and begin a new one; nothing happens if it is empty. Raises KAFKA_STORAGE_ERROR."""
        self._check_online()
        try:
            self._local.roll()
        except OSError as error:
            raise self._append_failed(error, self.log_end_offset) from error

    # --- letting go ----------------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Move the log start up to `offset` (DeleteRecords); returns where it is now.

        Segments wholly below go, at the latest with the next flush. Until the log start is checkpointed, a crash brings
        back what their files still held.
        Raises OFFSET_OUT_OF_RANGE beyond the log's end, KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        if offset > self._log_start_offset:
            self._advance_log_start(offset)
            self._delete_below_start()
        return self._log_start_offset

    def apply_retention(self, now_ms: int, *, upper_bound: int | None = None) -> list[int]:
        """Let go of old segments by time, size and log start; returns their base offsets.

        Those that only a flush can set free stay until then: `is_flush_due`.
        `upper_bound` is the high watermark, by default the log's end: nothing beyond it goes.
        Raises KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        self._check_online()
        bound = self.log_end_offset if upper_bound is None else upper_bound
        try:
            facts = [
                SegmentFacts(s.base_offset, s.next_offset, s.size, s.retention_timestamp_ms())
                for s in self._local.segments
            ]
        except (OSError, CorruptBatch) as error:
            raise self._read_error(error) from error
        count = deletable_segments(
            facts, self.config, now_ms=now_ms, log_start_offset=self._log_start_offset, upper_bound=bound
        )
        if count == len(facts):
            self.roll()
        return self._delete_first(count)

    def take_deleted(self, now_ms: int) -> list[str]:
        """The files of segments that were let go `file.delete.delay.ms` ago, for the caller to remove."""
        return self._local.take_marked(now_ms)

    def _delete_below_start(self) -> None:
        start = self._log_start_offset
        self._delete_first(sum(1 for segment in self._local.segments[:-1] if segment.next_offset <= start))

    def _delete_first(self, count: int) -> list[int]:
        """Let go of the oldest `count` segments, or as many of them as may go now."""
        count = self._content.removable(count)
        if count == 0:
            return []
        try:
            gone = self._content.remove_first(count)
        except OSError as error:
            raise self._fail("delete segments of", error) from error
        first = self._local.first.base_offset
        self._advance_log_start(first)
        return gone

    def _advance_log_start(self, offset: int) -> None:
        if offset > self._log_start_offset:
            self._log_start_offset = offset
            try:
                self._epochs.truncate_from_start(offset)
            except OSError as error:
                if not is_out_of_space(error):  # what the file has too many is dropped when it is next read
                    raise self._fail("write the leader epochs of", error) from error

    # --- compaction ----------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Grows with each truncation: what was learned of the content before says nothing after it."""
        return self._content.generation

    @property
    def closed_segments(self) -> list[Segment]:
        """All but the active one. They never change, but for truncation; they may leave the log at any time."""
        return self._local.segments[:-1]

    def replace_segments(
        self,
        old: Sequence[Segment],
        cleaned: Segment,
        aborted: Sequence[EndedTransaction],
        *,
        suffix: str,
        generation: int,
    ) -> bool:
        """Put `cleaned`, complete and synced under names with `suffix`, in the place of the neighbours `old`.

        `cleaned` holds no record that they do not hold, and its transaction index holds `aborted`: at least all those
        of `old` of which it still has records. False, and nothing is done, if the log is
        not what it was at `generation` or has let go of one of them. Raises KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        if generation != self.generation or not self._local.holds(old):
            return False
        try:
            self._content.replace(old, cleaned, aborted, suffix=suffix)
        except OSError as error:
            raise self._fail("replace compacted segments of", error) from error
        return True

    # --- truncating (a follower gives up what its leader does not have) ----------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove the record at `offset` and all after it, the whole batch that contains it included.

        `log_end_offset` is then the end of the last batch that is left, perhaps below `offset`; the log start goes back
        with it if need be. Views that `read` gave of what is removed must not be touched. Raises KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        if offset >= self.log_end_offset:
            return
        if offset <= self._log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            self._lower_checkpoints(self._local.end_before(offset))
            self._content.truncate_to(offset)
        except (OSError, CorruptBatch) as error:
            raise self._fail("truncate", error) from error
        self._log_start_offset = min(self._log_start_offset, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is empty then, and both start and end are `offset`. Raises KAFKA_STORAGE_ERROR."""
        self._check_online()
        try:
            self._lower_checkpoints(min(offset, self._local.first.base_offset))
            self._content.truncate_fully_and_start_at(offset)
        except OSError as error:
            raise self._fail("truncate", error) from error
        self._log_start_offset = self._recovery_point = offset

    def _lower_checkpoints(self, offset: int) -> None:
        was_compacted = self.cleaner_checkpoint is not None and offset < self.cleaner_checkpoint
        if was_compacted:
            self.cleaner_checkpoint = offset
        if offset < self._recovery_point or was_compacted:
            self._recovery_point = min(offset, self._recovery_point)
            if self.before_truncation is not None:
                self.before_truncation(self)

    # --- flushing and closing ---------------------------------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> None:
        """fsync all records below `up_to` (default: all), with the indexes; the recovery point moves there.

        Raises KAFKA_STORAGE_ERROR; the recovery point has then not moved, and the log is offline.
        """
        pending = self.prepare_flush(up_to)
        if pending is None:
            return
        try:
            pending.sync()
        except OSError as error:
            raise self.flush_failed(error) from error
        self.finish_flush(pending)

    @property
    def is_flush_due(self) -> bool:
        """Whether a closed segment, or what is known of producers as of its end, is not on the disk yet."""
        closed_up_to = self._local.active.base_offset
        return closed_up_to > self._recovery_point or bool(self.producers.pending_snapshots(closed_up_to))

    def prepare_flush(self, up_to: int | None = None) -> PendingFlush | None:
        """Write the indexes and say what is to be synced; None if that is nothing. Raises KAFKA_STORAGE_ERROR.

        `PendingFlush.sync` may then run in another thread, and `finish_flush` or `flush_failed` must follow here.
        """
        self._check_online()
        end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        snapshots = self.producers.pending_snapshots(end)
        is_dirty = self._local.directory_dirty or self.producers.aborted.has_new_files or self._flushes.sync_directory
        is_dirty |= self._epochs.is_unsynced
        if end <= self._recovery_point and not is_dirty and not snapshots:
            return None
        try:
            self._local.write_indexes(self._recovery_point, end)
            self.producers.aborted.write(end)
        except OSError as error:
            raise self._fail_unless_refused("write the indexes of", error) from error
        try:
            logs, indexes = self._local.files_to_sync(self._recovery_point, end)
            indexes += self.producers.aborted.files_to_sync(end) + self._epochs.files_to_sync()
            directory = self.directory if is_dirty else None
            pending = self._flushes.begin(self._disk, directory, logs, indexes, snapshots, end, self.generation)
        except OSError as error:
            raise self._fail("flush", error) from error
        self._local.directory_dirty = self.producers.aborted.has_new_files = self._epochs.is_unsynced = False
        return pending

    def finish_flush(self, pending: PendingFlush) -> None:
        """`pending` is synced: the recovery point moves, and segments that waited for it go. KAFKA_STORAGE_ERROR."""
        self._last_flush_ms = self._clock.now_ms()
        self._flushes.finish(pending)
        if pending.generation == self.generation:
            self._recovery_point = max(self._recovery_point, pending.up_to)
        self.producers.note_saved()
        if self._offline is None:
            self._delete_below_start()

    def flush_failed(self, error: OSError) -> KafkaError:
        """`PendingFlush.sync` raised: the log goes offline. Returns what is to be raised."""
        return self._fail("flush", error)

    def close(self) -> None:
        """Flush, write all indexes, let go of the files. An offline log only lets go. Raises KAFKA_STORAGE_ERROR.

        A log that is as it was when it was opened has nothing to write: a broker with very many stops quickly.
        """
        try:
            if self._offline is None and self._state() == self._untouched_state:
                self._offline = CLOSED
            if self._offline is None:
                self._local.active.index_max_timestamp()
                self.producers.take_snapshot(self.log_end_offset)
                self._local.directory_dirty = True
                self.flush()
                self._offline = CLOSED
        finally:
            self._local.close()

    def _state(self) -> tuple[int, int, int, int]:
        """Differs whenever anything that lies on disk has changed."""
        return self._log_start_offset, self.log_end_offset, self._local.active.base_offset, self.generation

    def abandon(self) -> None:
        """Let go of the files without writing anything: for a log that is being deleted."""
        self._offline = "deleted"
        self._local.close()

    @property
    def is_cleanly_closed(self) -> bool:
        return self._offline is CLOSED

    # --- faults --------------------------------------------------------------------------------------------------

    def _append_failed(self, error: Exception, log_end_offset: int) -> KafkaError:
        """`log_end_offset` is what it was before. What was appended in part can be neither kept nor undone."""
        if self._local.log_end_offset != log_end_offset:
            return self._fail("append to", error)
        return self._fail_unless_refused("append to", error)

    def _larger_than_a_segment(self, size: int) -> KafkaError:
        return KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{size} bytes: segment.bytes of {self.topic} is {self.config.segment_bytes}",
        )
