"""The log of one partition: appends records, and provides the log's reader, trimmer and flusher.

The log, reader, trimmer and flusher share one `LogContent` (segments, leader epochs, producers) and one `LogState`
(offline flag, log start, recovery point):

- `PartitionLog` appends: it checks a batch, assigns offsets and writes the batch.
- `LogReader` reads records, finds offsets by timestamp, and computes the last stable offset.
- `LogTrimmer` shortens the log: retention, DeleteRecords, compaction, truncation.
- `LogFlusher` syncs the log and moves the recovery point.

The offsets are ordered: log start <= high watermark <= log end, where the log end is the next offset to be assigned.
The log does not store the high watermark: replication computes it, and passes it to the methods of the log as
`upper_bound`. Every record below the recovery point is
synced.
"""

from __future__ import annotations

import logging
import os
from itertools import takewhile
from typing import Final

from oncelog_broker.log.closed_log import ClosedLog, Growth
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.flusher import LogFlusher
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
from oncelog_broker.log.log_state import CLOSED, MOVING, NOT_REFUSED, LogState
from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.pending_flush import PendingFlush
from oncelog_broker.log.producers.state import DuplicateBatch
from oncelog_broker.log.reader import LogReader
from oncelog_broker.log.record_validation import records_check, refuse_timestamps
from oncelog_broker.log.segments.lost_segments import LogCorrupt
from oncelog_broker.log.segments.recovery import LastKnown
from oncelog_broker.log.trimmer import LogTrimmer
from oncelog_broker.log.validation import (
    AppendOrigin,
    ValidationLimits,
    check_batch,
    check_client_batch,
)
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import Disk
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

NO_APPEND_TIME: Final = -1
"""The log append time in a Produce response if the records keep the producer's timestamps."""


class PartitionLog:
    """The log of one partition, created by `open`. Not thread-safe. Methods raise only KafkaError, with the codes that
    their docstrings name.
    """

    __slots__ = (
        "_append_limits",
        "_clock",
        "_content",
        "_limits_unflushed",
        "_untouched",
        "flusher",
        "leader_epochs",
        "local",
        "partition",
        "producer_state",
        "producers",
        "reader",
        "state",
        "topic",
        "trimmer",
        "walks_records",
        "was_cut",
    )

    def __init__(self, content: LogContent, state: LogState, *, disk: Disk, clock: Clock) -> None:
        """The constructor is internal: call `open` instead."""
        self.topic = state.topic
        self.partition = state.partition
        self.state = state
        self.reader = LogReader(content, state)
        self.trimmer = LogTrimmer(content, state)
        self.flusher = LogFlusher(content, state, self.trimmer, disk=disk, clock=clock)
        self.producers = content.producers
        self.producer_state = content.producers.state
        self.leader_epochs = content.epochs
        content.producers.on_snapshot = state.note_flush_due
        content.local.on_marked = state.note_files_to_free
        self._content = content
        self.local = content.local
        """The segments of this log. Hot code reads `local.log_end_offset` instead of the property `log_end_offset`,
        because this saves a call.
        """
        self.was_cut = content.was_cut
        """Whether the recovery at the opening has removed an incomplete or damaged end of the log, so that records may
        be missing that the log had before.
        """
        self._clock = clock
        self._untouched: tuple[int, int, int, int] | None = None
        """The result of `_fingerprint` (offsets and generation of the log) at the end of `open`; None if the log was
        not closed cleanly before, or if its producer state is not on the disk.
        """
        self._adopt_config(state.config)

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
        high_watermark: int = 0,
        new_directory: NewDirectory | None = None,
    ) -> PartitionLog:
        """Open or create the log in `directory`. After a crash, also verify the records at or above `recovery_point`.
        The last stable offset does not pass a transaction whose marker is at or above the checkpointed
        `high_watermark`.

        A new log uses the directory in `new_directory`; that directory is not synced yet when this method returns.
        Raises KAFKA_STORAGE_ERROR if the disk fails, or if synced records are damaged. The message names the file and
        the reason. After this error, no file has been changed.
        """
        path, name = os.fspath(directory), f"{topic}-{partition}"
        known = LastKnown(recovery_point, log_start_offset, clean_shutdown, cleaner_checkpoint, high_watermark)
        try:
            content = LogContent.open(
                disk, path, name=name, config=config, clock=clock, known=known, new_directory=new_directory
            )
        except (OSError, LogCorrupt, CorruptBatch) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} cannot be opened: {error}") from error
        first, end = content.local.first.base_offset, content.local.log_end_offset
        state = LogState(
            topic=topic,
            partition=partition,
            directory=path,
            config=config,
            # Do not raise the recovery point to `first`: after a power cut, deleted segments below `first` may
            # reappear, and these segments may never have been synced.
            recovery_point=end if clean_shutdown else recovery_point,
            log_start_offset=max(log_start_offset, first),
            cleaner_checkpoint=None if cleaner_checkpoint is None else min(cleaner_checkpoint, end),
        )
        if not clean_shutdown:
            # Do not treat `first` as the checkpointed log start: segments below `first` may have been deleted just
            # before a kill, and may reappear after a power cut.
            state.checkpointed_start = log_start_offset
        log = cls(content, state, disk=disk, clock=clock)
        if new_directory is not None and new_directory.is_begun:
            log.flusher.new_directory = new_directory
        if clean_shutdown and log.producers.is_saved(end):
            log._untouched = log._fingerprint()
        return log

    @classmethod
    def reopen(
        cls,
        directory: str,
        *,
        topic: str,
        partition: int,
        config: LogConfig,
        disk: Disk,
        clock: Clock,
        closed: ClosedLog,
        growth: Growth | None = None,
        checkpointed_start: int = 0,
        cleaner_checkpoint: int | None = None,
    ) -> PartitionLog:
        """Open a log that was closed cleanly, without reading its files. The files have not changed since, or only
        `growth` was appended, which is not synced. The indexes of the active segment are read at the first append.
        """
        end = closed.log_end_offset
        content = LogContent.reopen(
            disk, directory, name=f"{topic}-{partition}", config=config, clock=clock, closed=closed, growth=growth
        )
        state = LogState(
            topic=topic,
            partition=partition,
            directory=directory,
            config=config,
            recovery_point=end,
            log_start_offset=closed.log_start_offset,
            cleaner_checkpoint=None if cleaner_checkpoint is None else min(cleaner_checkpoint, end),
        )
        log = cls(content, state, disk=disk, clock=clock)
        if growth is None:
            log._untouched = log._fingerprint()
        else:
            state.checkpointed_start = checkpointed_start  # as in `open`, after a crash
        return log

    def closed_log(self) -> ClosedLog | None:
        """Return the state from which `reopen` can open this log; None if the log is not cleanly closed, or if its
        files must be looked at when it is opened again.
        """
        if not self.is_cleanly_closed or self.local.has_marked or not self.producers.is_saved(self.log_end_offset):
            return None
        return self._content.closed_log(self.log_start_offset)

    def __repr__(self) -> str:
        reason = self.state.offline_reason
        offline = "" if reason is None else f", offline: {reason}"
        return f"{type(self).__name__}({self.name}, {self.log_start_offset} to {self.log_end_offset}{offline})"

    # --- properties of the log ----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def directory(self) -> str:
        return self.state.directory

    @property
    def config(self) -> LogConfig:
        return self.state.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.local.log_end_offset

    @property
    def recovery_point(self) -> int:
        """Every record below this offset is synced."""
        return self.state.recovery_point

    @property
    def is_offline(self) -> bool:
        return self.state.offline_reason not in (None, MOVING)

    @property
    def is_paused(self) -> bool:
        """Whether the log is paused until its copy in another data directory replaces it."""
        return self.state.offline_reason is MOVING

    @property
    def is_cleanly_closed(self) -> bool:
        return self.state.offline_reason is CLOSED

    @property
    def refuses_appends(self) -> bool:
        """Whether the last append was refused, for example by a full disk, while the log is online."""
        return self.state.refused_append_at == self.local.log_end_offset

    @property
    def size_bytes(self) -> int:
        return self.local.size_bytes

    @property
    def segment_base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self.local.segments]

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch; -1 if no epoch is known."""
        return self.leader_epochs.latest_epoch

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has an open transaction of exactly this epoch in this log, so that the transaction need
        not be verified with the coordinator again (KIP-890).
        """
        return self.producer_state.has_open_transaction(producer_id, producer_epoch)

    def takes_any_sequence(self, producer_id: int) -> bool:
        """Whether the producer's next batch may have any sequence, because the log has no known batch of that producer
        (S9, E16).
        """
        return self.producer_state.takes_any_sequence(producer_id)

    def forget_refusal(self) -> None:
        """Clear the flag `refuses_appends`, so that the next append is tried although the last one was refused."""
        self.state.refused_append_at = NOT_REFUSED

    # --- methods that change the settings, and methods that close, pause or continue the log --------------------------

    def update_config(self, config: LogConfig) -> None:
        """Apply changed settings, from the next call on."""
        if config is self.state.config:
            return
        self.state.config = config
        self._adopt_config(config)
        if self._limits_unflushed:
            self.state.note_flush_due()
        self.local.update_config(config)
        self.producer_state.update_config(config)

    def _adopt_config(self, config: LogConfig) -> None:
        self._append_limits = ValidationLimits.of(config)
        self._limits_unflushed = config.limits_unflushed
        self.walks_records = self._append_limits.walks_records or self._append_limits.requires_keys

    def close(self) -> None:
        """Flush the log, write all indexes, and close the files. For an offline log, this method only closes the files.
        Raises KAFKA_STORAGE_ERROR.
        """
        try:
            flush = self.begin_close()
        except BaseException:
            self.local.close()
            raise
        failure: OSError | None = None
        if flush is not None:
            try:
                flush.sync()
            except OSError as error:
                failure = error
        self.finish_close(flush, failure)

    def begin_close(self) -> PendingFlush | None:
        """Write all indexes and take a snapshot of the producers; returns the flush that the caller must sync before it
        calls `finish_close`, or None if nothing must be synced. Raises KAFKA_STORAGE_ERROR.

        If the log has not changed since it was opened, no file is written, so that a broker with very many logs stops
        quickly. After a failed flush the log does not count as cleanly closed, even if no caller has seen the failure.
        """
        self.flusher.note_failed_flush()
        if not self.state.may_be_changed or self._fingerprint() == self._untouched:
            return None
        self.local.complete_indexes()
        self.producers.take_snapshot(self.local.log_end_offset)
        self.local.directory_dirty = True
        return self.flusher.prepare_flush()

    def finish_close(self, flush: PendingFlush | None, failure: OSError | None = None) -> None:
        """Finish `begin_close` after `flush` was synced, or after its sync has raised `failure`; closes the files.
        Raises KAFKA_STORAGE_ERROR.
        """
        try:
            if failure is not None:
                raise self.flusher.flush_failed(failure) from failure
            if flush is not None:
                self.flusher.finish_flush(flush)
            if self.state.may_be_changed:
                self.state.offline_reason = CLOSED
        finally:
            self.local.close()

    def pause(self) -> None:
        """Refuse all calls with NOT_LEADER_OR_FOLLOWER, while a copy in another data directory replaces this log."""
        self.state.offline_reason = MOVING

    def resume(self) -> None:
        """Accept calls again after `pause`, because the copy has not replaced this log."""
        if self.is_paused:
            self.state.offline_reason = None

    def abandon(self) -> None:
        """Close the files of a log that is being deleted or reopened, without writing anything, and cancel the
        snapshots of running flushes. No file may be written later, because another log may soon be created in the same
        directory.
        """
        self.state.offline_reason = "deleted"
        self.producers.cancel_snapshots()
        self.local.close()

    def _fingerprint(self) -> tuple[int, int, int, int]:
        """Return the offsets and generation of the log. If the files of the log change, at least one of these values
        changes.
        """
        content, local = self._content, self.local
        return self.state.log_start_offset, local.log_end_offset, local.active.base_offset, content.generation

    # --- methods that append batches ----------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview | bytearray,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        records_checked: bool = False,
    ) -> tuple[int, int]:
        """Append one batch and assign its offsets; returns (offset of the first record, log append time or -1).

        `records` is writable memory: offsets and leader epoch (and for LogAppendTime the timestamp and a new CRC) are
        written into this memory, which is then written to the file without a copy. A client may append only one batch
        in each call. `transaction_version` is the version of the transaction protocol that the producer uses (KIP-890).
        `records_checked`
        means that the steps of `records_check` have run; otherwise this method runs the steps, which may take long.

        If a producer sends one of its last five batches again, the log does not change, and this method returns the
        offset of the first append (S8). The log is unchanged if this method raises CORRUPT_MESSAGE, INVALID_RECORD,
        INVALID_TIMESTAMP,
        MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, RECORD_LIST_TOO_LARGE, or one of the errors of
        `ProducerState.prepare_append`. After KAFKA_STORAGE_ERROR, the only change is that the log may be offline.
        """
        if self.state.offline_reason is not None:
            raise self.state.offline_error()
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
                header = HEADER.unpack_from(batch)  # read again: the check may have corrected the timestamp
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
        base_offset = self.local.log_end_offset
        max_timestamp, append_time = header[MAX_TIMESTAMP], NO_APPEND_TIME
        if limits.stamps_append_time:
            max_timestamp = append_time = now_ms
        entry = None
        if header[PRODUCER_ID] >= 0:
            # KIP-890: if `has_open_transaction` is False, the caller has verified the transaction with the coordinator,
            # and no marker was written since (E2, E3).
            prepared = self.producer_state.prepare_append(header, base_offset, max_timestamp, transaction_version)
            if isinstance(prepared, DuplicateBatch):
                return prepared.base_offset, prepared.timestamp if limits.stamps_append_time else NO_APPEND_TIME
            entry = prepared
        self._write(batch, header, base_offset, leader_epoch, max_timestamp, now_ms)
        if entry is not None:
            self.producer_state.adopt(entry, header, base_offset, max_timestamp)
        return base_offset, append_time

    def records_check(self, records: memoryview) -> Steps[None]:
        """Check each record of a producer's batch. If `walks_records` is True, the caller must run this check before
        `append_as_leader`.

        The check may correct the maximum timestamp in the header. Running the returned steps raises KafkaError, for
        example RecordsRefused.
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
        """Append the coordinator's marker, which ends the producer's transaction if one is open; returns the offset of
        the marker (S39).

        Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; after these errors the log is unchanged. Raises
        KAFKA_STORAGE_ERROR.
        """
        if self.state.offline_reason is not None:
            raise self.state.offline_error()
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
        """Append `batch`, which contains `marker`. Returns (offset of the first record, log append time or -1)."""
        stamped = self._append_limits.stamps_append_time
        timestamp = now_ms if stamped else header[MAX_TIMESTAMP]
        entry = self.producer_state.prepare_marker(
            header[PRODUCER_ID], header[PRODUCER_EPOCH], marker, timestamp, transaction_version
        )
        base_offset = self.local.log_end_offset
        self._write(batch, header, base_offset, leader_epoch, timestamp, now_ms)
        try:
            aborted = self.producer_state.complete(header[PRODUCER_ID], entry, marker, base_offset)
            if aborted is not None:
                self.producers.aborted.append(self.local.active.base_offset, aborted)
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
        """Append one batch after all its checks. Raises KAFKA_STORAGE_ERROR."""
        if self._append_limits.stamps_append_time:
            stamp_append_time(batch, header[ATTRIBUTES], now_ms)
        BASE_OFFSET.pack_into(batch, 0, base_offset)
        LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)
        if leader_epoch != self.leader_epochs.latest_epoch:
            self.assign_leader_epoch(leader_epoch, base_offset)
        try:
            self.local.append(batch, base_offset + header[LAST_OFFSET_DELTA], max_timestamp, now_ms)
        except OSError as error:
            raise self._append_failed(error, base_offset) from error
        if self._limits_unflushed:
            self.state.note_flush_due()

    def append_as_follower(self, records: memoryview | bytearray | bytes, *, leader_epoch: int | None = None) -> None:
        """Append batches fetched from a leader, keeping their offsets and leader epochs.

        `leader_epoch` is the epoch in which the records were fetched. Batches with a later epoch, and all batches after
        them, are skipped, because this log was not compared with the log of that later leader (KAFKA-18723). Raises
        CORRUPT_MESSAGE (a batch is incomplete or its CRC is wrong), OFFSET_OUT_OF_RANGE (a batch begins below the log
        end), KAFKA_STORAGE_ERROR. If the batches fill several segments, the segments before a failed write are kept.
        """
        self.state.check_online()
        whole = checked_batches(records)
        if leader_epoch is not None:
            whole = list(takewhile(lambda batch: batch.partition_leader_epoch <= leader_epoch, whole))
        if whole:
            check_offsets(whole, self.local.log_end_offset)
            self._append_all(memoryview(records), whole, self._clock.now_ms())

    def assign_leader_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Record that `epoch` begins at `start_offset`, by default at the log end. Call this as soon as the leader of
        the epoch is known.
        """
        self.state.check_online()
        try:
            self.leader_epochs.assign(epoch, self.local.log_end_offset if start_offset is None else start_offset)
        except OSError as error:
            raise self.state.fail_unless_refused("write the leader epochs of", error) from error

    def _append_several_as_leader(self, records: memoryview, leader_epoch: int, now_ms: int) -> tuple[int, int]:
        """Append batches of an internal producer (such as a coordinator); either all batches are appended, or none."""
        limits = self._append_limits
        if len(records) > limits.max_segment_size:
            raise self._larger_than_a_segment(len(records))
        base_offset = self.local.log_end_offset
        whole = assign_offsets(records, limits, base_offset=base_offset, leader_epoch=leader_epoch, now_ms=now_ms)
        self._append_all(records, whole, now_ms)
        return base_offset, now_ms if limits.stamps_append_time else NO_APPEND_TIME

    def _append_all(self, records: memoryview, whole: list[RecordBatch], now_ms: int) -> None:
        for batch in whole:
            if batch.partition_leader_epoch > self.leader_epochs.latest_epoch:
                self.assign_leader_epoch(batch.partition_leader_epoch, batch.base_offset)
        before = self.local.log_end_offset
        if self._limits_unflushed:
            self.state.note_flush_due()
        try:
            self.local.append_all(records, whole, now_ms, self.producers.follow)
        except (OSError, CorruptBatch) as error:
            raise self._append_failed(error, before) from error

    # --- errors of the disk, as the errors that callers get -----------------------------------------------------------

    def _append_failed(self, error: Exception, end_before: int) -> KafkaError:
        """Return the error that the caller must raise after a failed append. `end_before` is the log end offset before
        the append.
        """
        return self.state.append_failed(error, end_before=end_before, end=self.local.log_end_offset)

    def _larger_than_a_segment(self, size: int) -> KafkaError:
        return KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{size} bytes: segment.bytes of {self.topic} is {self.state.config.segment_bytes}",
        )
