"""Syncs a log to disk in three steps (`pending_flush.py`), and tracks which data is not on the disk yet.

A *flush* syncs log files, indexes and producer snapshots, and moves the recovery point. A *sync of the records* syncs
only log files and their names, for group commit (`replication/group_commit.py`). Indexes and snapshots need no sync for
an acknowledgement, because recovery rebuilds them from the records above the recovery point.
"""

from __future__ import annotations

from threading import Lock

from oncelog_broker.log.log_content import LogContent
from oncelog_broker.log.log_state import LogState
from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.pending_flush import FlushesUnderWay, PendingFlush
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.log.trimmer import LogTrimmer
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.errors import KafkaError


class LogFlusher:
    """Syncs one log to disk. Not thread-safe. Methods raise only KafkaError, with the codes that their docstrings
    name.
    """

    __slots__ = (
        "_clock",
        "_content",
        "_disk",
        "_flushes",
        "_last_flush_at",
        "_local",
        "_named",
        "_producers",
        "_state",
        "_trimmer",
        "new_directory",
    )

    def __init__(self, content: LogContent, state: LogState, trimmer: LogTrimmer, *, disk: Disk, clock: Clock) -> None:
        self._content = content
        self._local = content.local
        self._producers = content.producers
        self._state = state
        self._trimmer = trimmer
        self._disk = disk
        self._clock = clock
        self._flushes = FlushesUnderWay()
        self._last_flush_at = clock.monotonic()
        self._named: Segment | None = None
        """The active segment at the last sync of the records. The file names of this segment and of all older segments
        are on the disk.
        """
        self.new_directory: NewDirectory | None = None
        """The log's directory, until it is known to be synced; then None. If the code that creates the log has not
        synced the directory, the first flush syncs the directory.
        """

    # --- properties that tell which data is not on the disk yet -------------------------------------------------------

    @property
    def unflushed_records(self) -> int:
        """The number of offsets at or above the recovery point."""
        return self._local.log_end_offset - self._state.recovery_point

    @property
    def last_flush_at(self) -> float:
        """Monotonic seconds when the log was last flushed or opened."""
        return self._last_flush_at

    @property
    def is_flush_due(self) -> bool:
        """Whether a closed segment, or the producer snapshot at the end of that segment, is not on the disk yet."""
        closed_up_to = self._local.active.base_offset
        return closed_up_to > self._state.recovery_point or bool(self._producers.pending_snapshots(closed_up_to))

    @property
    def has_unsynced_names(self) -> bool:
        """Whether a power cut may undo deletions of segments, so that the deleted files reappear."""
        return self._local.directory_dirty or self._producers.aborted.has_new_files or self._flushes.sync_directory

    @property
    def start_to_checkpoint(self) -> int | None:
        """The log start offset that must be checkpointed; None if the names of the segment files prove that offset even
        after a power cut. Any thread may read this property.
        """
        state = self._state
        first = self._local.first.base_offset  # read before the other fields: another thread may delete segments
        start = state.log_start_offset
        is_told = start == first and not self.has_unsynced_names and start <= state.durable_start_offset
        return start if start > 0 and not is_told else None

    # --- methods for replacing the log by a copy ----------------------------------------------------------------------

    @property
    def guard(self) -> Lock:
        """The lock that each sync of this log takes; while another thread holds the lock, no sync runs."""
        return self._flushes.guard

    def note_moved(self) -> None:
        """Record that a synced copy has replaced the log. Flushes that are running then no longer need the files of
        this log. The
        caller must hold `guard`.
        """
        self._flushes.is_moved = True

    # --- methods that flush the log or sync its records ---------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> None:
        """Sync the indexes and all records below `up_to` (None: all records), then move the recovery point to `up_to`.

        Raises KAFKA_STORAGE_ERROR; then the recovery point has not moved, and the log is offline.
        """
        pending = self.prepare_flush(up_to)
        if pending is None:
            return
        try:
            pending.sync()
        except OSError as error:
            raise self.flush_failed(error) from error
        self.finish_flush(pending)

    def prepare_flush(self, up_to: int | None = None) -> PendingFlush | None:
        """Write the indexes and collect the files to sync; returns None if nothing needs a sync, or if the log is being
        truncated. Raises KAFKA_STORAGE_ERROR.

        Another thread may then call `PendingFlush.sync`; afterwards the log's own thread must call `finish_flush` or
        `flush_failed`.
        """
        state, local, producers = self._state, self._local, self._producers
        state.check_online()
        if state.is_truncating:
            return None  # a worker thread is truncating the log, so its end is unknown
        end = local.log_end_offset if up_to is None else min(up_to, local.log_end_offset)
        snapshots = producers.pending_snapshots(end)
        is_dirty = self.has_unsynced_names or self._content.epochs.is_unsynced
        if self.new_directory is not None and self.new_directory.is_synced:
            self.new_directory = None
        is_dirty |= self.new_directory is not None
        if end <= state.recovery_point and not is_dirty and not snapshots:
            return None
        try:
            local.write_indexes(state.recovery_point, end)
            producers.aborted.write(end)
        except OSError as error:
            raise state.fail_unless_refused("write the indexes of", error) from error
        try:
            logs, indexes = local.files_to_sync(state.recovery_point, end)
            indexes += producers.aborted.paths_to_sync(end) + self._content.epochs.paths_to_sync()
            directory = state.directory if is_dirty else None
            generation = self._content.generation
            pending = self._flushes.begin(self._disk, directory, logs, indexes, snapshots, end, generation)
            pending.new_directory = self.new_directory
            pending.first_offset = local.first.base_offset
        except OSError as error:
            raise state.fail("flush", error) from error
        local.directory_dirty = producers.aborted.has_new_files = self._content.epochs.is_unsynced = False
        return pending

    def finish_flush(self, pending: PendingFlush) -> None:
        """Move the recovery point after `pending` was synced, and delete the segments that waited for that sync. Raises
        KAFKA_STORAGE_ERROR.

        During a truncation, this method changes neither the recovery point nor the segments, and leaves these changes
        to the next flush. The truncation has lowered the recovery point, which must not be above the new log end. A log
        that went offline during the sync is not changed: reopening such a log keeps only the records that were known to
        be synced while it was online.
        """
        state = self._state
        self._last_flush_at = self._clock.monotonic()
        self._flushes.finish(pending)
        if not state.may_be_changed:
            return
        if pending.generation == self._content.generation:
            state.recovery_point = max(state.recovery_point, pending.up_to)
            state.synced_offset = max(state.synced_offset, state.recovery_point)
            if pending.syncs_directory:
                state.note_synced_names(pending.first_offset)
        self._producers.note_saved(segment.base_offset for segment in self._local.segments)
        self._trimmer.delete_below_start()

    def prepare_sync(self) -> PendingFlush | None:
        """Collect the log files with unsynced records; returns None if all records are synced, or if the log is being
        truncated. Another thread may then call `PendingFlush.sync`; afterwards the log's own thread must call
        `finish_sync` or `flush_failed`. Raises KAFKA_STORAGE_ERROR.
        """
        state, local = self._state, self._local
        state.check_online()
        end = local.log_end_offset
        if state.is_truncating or end <= state.synced_offset:
            return None
        if self.new_directory is not None and self.new_directory.is_synced:
            self.new_directory = None
        must_sync_names = local.active is not self._named or self.new_directory is not None
        try:
            logs = local.logs_to_sync(state.synced_offset)
        except OSError as error:
            raise state.fail("flush", error) from error
        pending = self._flushes.only_records(
            self._disk, state.directory if must_sync_names else None, logs, end, self._content.generation
        )
        pending.new_directory = self.new_directory
        pending.active = local.active
        return pending

    def finish_sync(self, pending: PendingFlush) -> None:
        """Move `synced_offset` after `pending` was synced, unless the log was truncated meanwhile. Raises
        KAFKA_STORAGE_ERROR if the log went offline meanwhile: `PendingFlush.sync` skips files that were closed then.
        """
        state = self._state
        state.check_online()
        if state.is_truncating or pending.generation != self._content.generation:
            return
        state.synced_offset = max(state.synced_offset, pending.up_to)
        self._named = pending.active

    def flush_failed(self, error: OSError) -> KafkaError:
        """Take the log offline after `PendingFlush.sync` has raised `error`. Returns the error that the caller must
        raise.
        """
        state = self._state
        return state.offline_error() if state.offline_reason is not None else state.fail("flush", error)

    def note_failed_flush(self) -> None:
        """Take the log offline if a flush failed after its caller was cancelled."""
        if self._flushes.failure is not None:
            self.flush_failed(self._flushes.failure)
