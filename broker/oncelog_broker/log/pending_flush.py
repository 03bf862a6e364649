"""A flush in three steps: prepare, sync, finish. Only the sync waits for the disk, and may run in a worker thread.

`LogFlusher.prepare_flush` and `finish_flush` belong to the thread of the log; any thread may call `PendingFlush.sync`.
`LogFlusher.flush` runs all three steps in one call. Several flushes of one log may run simultaneously;
`FlushesUnderWay` tracks these flushes.

The kernel reports a lost write only once, to the first fsync after that write. The error of a failed flush is therefore
stored until the log is closed, and every later flush of the log fails with the same error. The error is also stored if
the caller of the failed flush was cancelled.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from threading import Lock

from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.producers.snapshot import PendingSnapshot
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.runtime.disk import Disk, File, FileClosed, is_out_of_space, sync_path
from oncelog_broker.runtime.disk_troubles import DISK_TROUBLES

logger = logging.getLogger(__name__)


class PendingFlush:
    """One prepared flush: the files with unsynced bytes, and the state of the log that is durable after the sync."""

    __slots__ = (
        "_directory",
        "_disk",
        "_logs",
        "_of_this_log",
        "_snapshots",
        "active",
        "first_offset",
        "generation",
        "index_paths",
        "new_directory",
        "up_to",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str | None,
        logs: list[File],
        index_paths: list[str],
        snapshots: list[PendingSnapshot],
        up_to: int,
        generation: int,
        of_this_log: FlushesUnderWay,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._logs = logs
        self._snapshots = snapshots
        self._of_this_log = of_this_log
        self.index_paths = index_paths
        """The files other than log files to sync, which are opened only for the sync, so that prepared flushes of very
        many logs need no file descriptors.
        """
        self.up_to = up_to
        """After `sync`, every record below this offset is durable."""
        self.generation = generation
        """The generation of the log's content; after a truncation, `up_to` is no longer valid."""
        self.first_offset = 0
        """The base offset of the log's first segment when the flush was prepared. After a `sync` that
        `syncs_directory`, segments below this offset cannot reappear.
        """
        self.new_directory: NewDirectory | None = None
        """The log's new directory, which this flush syncs first; None if the directory is known to be synced."""
        self.active: Segment | None = None
        """The active segment when a sync of the records was prepared; None for a flush."""

    @property
    def syncs_directory(self) -> bool:
        return self._directory is not None

    def sync(self) -> None:
        """Sync all files of this flush. Raises OSError. After an error, the content of the disk is unknown, and a
        successful retry would not prove that the data is on the disk. A later flush of the same log raises the same
        error without accessing any file.
        """
        with self._of_this_log.guard:
            try:
                if not self._of_this_log.is_moved:
                    self._of_this_log.raise_failure()
                    self._sync()
            except OSError as error:
                self._of_this_log.failure = self._of_this_log.failure or error
                raise

    # --- a sync together with many other logs (`directories/log_closing.py`) ----------------------------------------

    @property
    def may_be_synced_with_others(self) -> bool:
        """Whether a sync of the entire file system may take the place of `sync`. If a sync of the log, of its directory
        or of the directory's name has failed before, only `sync` reports that failure.
        """
        flushes, new = self._of_this_log, self.new_directory
        return not flushes.is_moved and flushes.failure is None and (new is None or new.may_be_synced)

    def write_windows(self) -> None:
        """Write the windows of the snapshots without syncing them, before the first sync of the file system. Raises
        OSError.
        """
        for snapshot in self._snapshots:
            snapshot.write_window(is_durable=False)

    def write_snapshots(self) -> None:
        """Write the snapshots without syncing them. The file system was synced, and must be synced again, because a
        snapshot must not reach the disk before the records that it describes. Raises OSError.
        """
        for snapshot in self._snapshots:
            snapshot.write_snapshot(is_durable=False)

    def note_synced_with_others(self) -> None:
        """Record that everything was synced by syncs of the entire file system."""
        if self.new_directory is not None:
            self.new_directory.is_synced = True
        for snapshot in self._snapshots:
            snapshot.is_written = True

    # --- the sync of one log ----------------------------------------------------------------------------------------

    def _sync(self) -> None:
        if self.new_directory is not None:
            self.new_directory.sync()
        for file in self._logs:
            with suppress(FileClosed):  # the segment of this file was deleted meanwhile and need not be durable
                file.sync()
        for path in self.index_paths:
            with suppress(FileNotFoundError):  # the segment of this index was deleted meanwhile
                sync_path(self._disk, path)
        for snapshot in self._snapshots:  # snapshots are written after the records that they describe
            try:
                snapshot.write()
            except OSError as error:
                if not is_out_of_space(error):
                    raise
                home = os.path.dirname(os.path.dirname(error.filename or ""))
                if DISK_TROUBLES.note_failure(home, "write snapshots of producers", error):
                    logger.error(
                        "disk full: a producer snapshot was not written, so old segments are not deleted yet: %s",
                        error,
                    )
        if self._directory is not None:
            self._disk.sync_directory(self._directory)


class FlushesUnderWay:
    """The flushes of one log that are prepared but not finished. The files of an unfinished flush do not count as
    synced until that flush finishes.

    Each flush therefore also syncs the files of earlier unfinished flushes, even of flushes that will never finish.
    """

    __slots__ = ("_flushes", "failure", "guard", "is_moved")

    def __init__(self) -> None:
        self._flushes: list[PendingFlush] = []
        self.guard = Lock()
        """A lock that allows only one sync at a time: two concurrent syncs would write the same snapshot, and only one
        of them would get the error of a failed fsync.
        """
        self.failure: OSError | None = None
        """The error of the first flush that failed; None if no flush has failed."""
        self.is_moved = False
        """Whether a synced copy in another data directory has replaced the log, so that a flush does nothing."""

    def begin(
        self,
        disk: Disk,
        directory: str | None,
        logs: list[File],
        index_paths: list[str],
        snapshots: list[PendingSnapshot],
        up_to: int,
        generation: int,
    ) -> PendingFlush:
        """Prepare a flush of all unsynced data, including the files that unfinished flushes must sync."""
        unsynced = dict.fromkeys((*index_paths, *(path for flush in self._flushes for path in flush.index_paths)))
        flush = PendingFlush(disk, directory, logs, list(unsynced), snapshots, up_to, generation, self)
        self._flushes.append(flush)
        return flush

    def only_records(
        self, disk: Disk, directory: str | None, logs: list[File], up_to: int, generation: int
    ) -> PendingFlush:
        """Prepare a sync of log files and, if given, of the log's directory. This sync is not added to the unfinished
        flushes, because it does not save a later flush any work.
        """
        return PendingFlush(disk, directory, logs, [], [], up_to, generation, self)

    def raise_failure(self) -> None:
        """Raise the error of the first failed flush, if any failed."""
        if self.failure is not None:
            raise OSError(self.failure.errno, self.failure.strerror, self.failure.filename)

    def finish(self, flush: PendingFlush) -> None:
        """Remove `flush` and all earlier flushes from the list, because their files are synced now."""
        if flush in self._flushes:
            del self._flushes[: self._flushes.index(flush) + 1]

    @property
    def sync_directory(self) -> bool:
        """Whether any unfinished flush must sync the log's directory."""
        return any(flush.syncs_directory for flush in self._flushes)
