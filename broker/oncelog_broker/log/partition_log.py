"""The log of one partition: what is let in; the bytes are `LocalLog`'s.

Offsets: log_start_offset <= high watermark <= log_end_offset, the next one to be assigned. The high watermark is
replication's business; it comes in as `upper_bound`. Below the recovery point everything is synced.

What it is to readers, also when it is offline (E26), is `ReadableLog`'s; how it gets shorter `TrimmedLog`'s, and how it
becomes durable `FlushedLog`'s.
"""

from __future__ import annotations

import logging
import os
from itertools import takewhile
from typing import Final

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.flushed_log import FlushedLog
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
from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.producers.state import DuplicateBatch
from oncelog_broker.log.record_validation import records_check, refuse_timestamps
from oncelog_broker.log.segments.lost_segments import LogCorrupt
from oncelog_broker.log.segments.recovery import LastKnown
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
"""Stands for "the records carry the producer's timestamps" in a produce response."""


class PartitionLog(FlushedLog):
    """Made by `open`. Not thread-safe. Public methods raise KafkaError only, with the codes that they name."""

    __slots__ = ("_append_limits", "walks_records")

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
            content,
            topic=topic,
            partition=partition,
            directory=directory,
            log_start_offset=log_start_offset,
            disk=disk,
            clock=clock,
            recovery_point=recovery_point,
            cleaner_checkpoint=cleaner_checkpoint,
        )
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
        new_directory: NewDirectory | None = None,
    ) -> PartitionLog:
        """Open or make the log in `directory`, verifying what lies behind `recovery_point` after a crash. One that is
        made begins with what `new_directory` says, which is not synced then.

        Raises KAFKA_STORAGE_ERROR if the disk fails, or if records that were synced are damaged: the message says
        which file and why, and nothing has been changed.
        """
        path, name = os.fspath(directory), f"{topic}-{partition}"
        known = LastKnown(recovery_point, log_start_offset, clean_shutdown, cleaner_checkpoint)
        try:
            content = LogContent.open(
                disk, path, name=name, config=config, clock=clock, known=known, new_directory=new_directory
            )
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
            # Not `first`: what was deleted before may come back with a power cut, and was perhaps never synced.
            recovery_point=end if clean_shutdown else recovery_point,
            log_start_offset=max(log_start_offset, first),
            cleaner_checkpoint=None if cleaner_checkpoint is None else min(cleaner_checkpoint, end),
        )
        if not clean_shutdown:
            # Nor `first` here, for the same reason: the segments before it may have gone just before a kill.
            log.note_start(log_start_offset)
        if new_directory is not None and new_directory.is_begun:
            log.new_directory = new_directory
        if clean_shutdown and log.producers.is_saved(end):
            log._untouched_state = log._state()
        return log

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

    def append_as_follower(self, records: memoryview | bytearray | bytes, *, leader_epoch: int | None = None) -> None:
        """Append what a leader sent, with its offsets and epochs.

        With `leader_epoch`, the one that the records were asked for in, batches of a later epoch are left out, with all
        behind them: whether this log agrees with that later leader's up to there was not asked (KAFKA-18723).
        Raises CORRUPT_MESSAGE (a batch is not whole or its CRC is wrong), OFFSET_OUT_OF_RANGE (it does not come after
        the log's end), KAFKA_STORAGE_ERROR. Of several segments' worth, those before a failed write stay.
        """
        self._check_online()
        whole = checked_batches(records)
        if leader_epoch is not None:
            whole = list(takewhile(lambda batch: batch.partition_leader_epoch <= leader_epoch, whole))
        if whole:
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

    # --- faults --------------------------------------------------------------------------------------------------

    def _larger_than_a_segment(self, size: int) -> KafkaError:
        return KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{size} bytes: segment.bytes of {self.topic} is {self.config.segment_bytes}",
        )
