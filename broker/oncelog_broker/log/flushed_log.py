"""A log as it becomes durable: fsync in three steps (`flush.py`), and the end of its use."""

from __future__ import annotations

from typing import Final

from oncelog_broker.log.flush import FlushesUnderWay, PendingFlush
from oncelog_broker.log.log_content import LogContent
from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.trimmed_log import TrimmedLog
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.errors import KafkaError

CLOSED: Final = "closed"
"""The reason why a log that was closed in order is offline."""


class FlushedLog(TrimmedLog):
    """Not thread-safe. Public methods raise KafkaError only, with the codes that they name."""

    __slots__ = ("_disk", "_flushes", "_last_flush_at", "_untouched_state", "new_directory")

    def __init__(
        self,
        content: LogContent,
        *,
        topic: str,
        partition: int,
        directory: str,
        log_start_offset: int,
        disk: Disk,
        clock: Clock,
        recovery_point: int,
        cleaner_checkpoint: int | None,
    ) -> None:
        super().__init__(
            content,
            topic=topic,
            partition=partition,
            directory=directory,
            log_start_offset=log_start_offset,
            clock=clock,
            recovery_point=recovery_point,
            cleaner_checkpoint=cleaner_checkpoint,
        )
        self._disk = disk
        self._flushes = FlushesUnderWay()
        self._untouched_state: tuple[int, int, int, int] | None = None
        self._last_flush_at = clock.monotonic()
        self.new_directory: NewDirectory | None = None
        """Where it may not be on the disk: whoever makes the log sees to it, and the first flush does at the latest."""

    @property
    def unflushed_records(self) -> int:
        return self.log_end_offset - self._recovery_point

    @property
    def last_flush_at(self) -> float:
        """When the log was flushed last, or opened, in monotonic seconds."""
        return self._last_flush_at

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

    @property
    def has_unsynced_names(self) -> bool:
        """Whether a power cut may undo which files it has: those of segments that were deleted may come back."""
        return self._local.directory_dirty or self.producers.aborted.has_new_files or self._flushes.sync_directory

    @property
    def start_to_note(self) -> int | None:
        """The log start, where the files do not tell it, or would not after a power cut. May be asked in any thread."""
        first = self._local.first.base_offset  # first: when segments go, the log start moves after them
        start = self._log_start_offset
        is_told = start == first and not self.has_unsynced_names and start <= self.noted_start_offset
        return start if start > 0 and not is_told else None

    def prepare_flush(self, up_to: int | None = None) -> PendingFlush | None:
        """Write the indexes and say what is to be synced; None if that is nothing, or if its end is being cut. Raises
        KAFKA_STORAGE_ERROR.

        `PendingFlush.sync` may then run in another thread, and `finish_flush` or `flush_failed` must follow here.
        """
        self._check_online()
        if self.is_truncating:
            return None  # where it ends is not known, and its files are another thread's
        end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        snapshots = self.producers.pending_snapshots(end)
        is_dirty = self.has_unsynced_names or self._epochs.is_unsynced
        if self.new_directory is not None and self.new_directory.is_synced:
            self.new_directory = None
        is_dirty |= self.new_directory is not None
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
            pending.new_directory = self.new_directory
            pending.first_offset = self._local.first.base_offset
        except OSError as error:
            raise self._fail("flush", error) from error
        self._local.directory_dirty = self.producers.aborted.has_new_files = self._epochs.is_unsynced = False
        return pending

    def finish_flush(self, pending: PendingFlush) -> None:
        """`pending` is synced: the recovery point moves, and segments that waited for it go. KAFKA_STORAGE_ERROR.

        Where the end is being cut meanwhile, they wait for the next flush: the recovery point was lowered for the cut,
        and is not to be above the log's end after it. Of a log that went offline meanwhile nothing changes: what it
        keeps when it is opened again is what was known to be synced while it was online.
        """
        self._last_flush_at = self._clock.monotonic()
        self._flushes.finish(pending)
        if self.is_truncating or self.is_offline:
            return
        if pending.generation == self.generation:
            self._recovery_point = max(self._recovery_point, pending.up_to)
            if pending.syncs_directory:
                self._synced_first = max(self._synced_first, pending.first_offset)
        self.producers.note_saved()
        self._delete_below_start()

    def flush_failed(self, error: OSError) -> KafkaError:
        """Take the log offline after `PendingFlush.sync` has raised. Returns the error that the caller must raise."""
        return self._offline_error() if self.is_offline else self._fail("flush", error)

    def note_failed_flush(self) -> None:
        """The log goes offline if a flush of it has failed that nobody waits for any more."""
        if self._flushes.failure is not None:
            self.flush_failed(self._flushes.failure)

    def close(self) -> None:
        """Flush, write all indexes, let go of the files. An offline log only lets go. Raises KAFKA_STORAGE_ERROR.

        A log that is as it was when it was opened has nothing to write: a broker with very many stops quickly. One of
        which a flush has failed is not closed in order, whoever has heard of the failure.
        """
        try:
            self.note_failed_flush()
            if self.may_be_changed and self._state() == self._untouched_state:
                self._offline = CLOSED
            if self.may_be_changed:
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
        """Let go of the files without writing anything, flushes under way included: for a log that is being deleted, or
        opened anew. Another one may be in its directory soon."""
        self._offline = "deleted"
        self.producers.cancel_snapshots()
        self._local.close()

    @property
    def is_cleanly_closed(self) -> bool:
        return self._offline is CLOSED
