"""A flush in three steps: prepare, sync, finish. Only sync waits for the disk, and may run in a worker thread.

`LogFlusher.prepare_flush` and `finish_flush` belong to the thread of the log; `PendingFlush.sync` may run anywhere.
`LogFlusher.flush` is all three in a row. Flushes of one log may overlap: `FlushesUnderWay`.

The kernel reports a lost write once, to whichever fsync comes first. So a failed flush is remembered as long as the log
is open, and every later flush of the log fails with the same error, even if the caller of the first one was cancelled.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from threading import Lock

from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.producers.snapshot import PendingSnapshot
from oncelog_broker.runtime.disk import Disk, File, FileClosed, is_out_of_space
from oncelog_broker.runtime.disk_troubles import DISK_TROUBLES

logger = logging.getLogger(__name__)


class PendingFlush:
    """Files with unsynced bytes, and the state that is durable after the sync."""

    __slots__ = (
        "_directory",
        "_disk",
        "_indexes",
        "_logs",
        "_of_this_log",
        "_snapshots",
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
        indexes: list[File],
        snapshots: list[PendingSnapshot],
        up_to: int,
        generation: int,
        of_this_log: FlushesUnderWay,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._logs = logs
        self._indexes = indexes
        """Opened for this flush, hence closed by it."""
        self._snapshots = snapshots
        self._of_this_log = of_this_log
        self.index_paths = [file.path for file in indexes]
        self.up_to = up_to
        """Every record below this offset is durable after `sync`."""
        self.generation = generation
        """The generation of the log's content; after a truncation `up_to` no longer holds."""
        self.first_offset = 0
        """Where the first segment begins. After `sync`, the earlier segments are permanently gone if it
        `syncs_directory`."""
        self.new_directory: NewDirectory | None = None
        """A new directory to sync first; None if it is known to be synced."""

    @property
    def syncs_directory(self) -> bool:
        return self._directory is not None

    def sync(self) -> None:
        """fsync all files. Raises OSError: the content of the files on the disk is then unknown, and a retry proves
        nothing. A later flush of the same log raises the same error and touches no file."""
        with self._of_this_log.guard:
            try:
                self._of_this_log.raise_failure()
                self._sync()
            except OSError as error:
                self._of_this_log.failure = self._of_this_log.failure or error
                raise
            finally:
                for file in self._indexes:
                    file.close()
                self._indexes = []

    def _sync(self) -> None:
        if self.new_directory is not None:
            self.new_directory.sync()
        for file in self._logs:
            with suppress(FileClosed):  # its segment was deleted in the meantime and need not be durable
                file.sync()
        for file in self._indexes:
            file.sync()
        for snapshot in self._snapshots:  # after the records that they describe
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
    """The flushes of one log that are prepared and not finished. Until they finish, their files do not count as synced.

    So each flush also syncs the files of unfinished earlier flushes, whether or not they ever finish.
    """

    __slots__ = ("_flushes", "failure", "guard")

    def __init__(self) -> None:
        self._flushes: list[PendingFlush] = []
        self.guard = Lock()
        """One sync at a time: two would write the same snapshot, and one of them would not see the other's failure."""
        self.failure: OSError | None = None
        """The error of the first flush that failed; None if none has."""

    def begin(
        self,
        disk: Disk,
        directory: str | None,
        logs: list[File],
        indexes: list[File],
        snapshots: list[PendingSnapshot],
        up_to: int,
        generation: int,
    ) -> PendingFlush:
        """Prepare a flush of everything new and of everything that unfinished flushes have to sync. Raises OSError."""
        unsynced = {path for flush in self._flushes for path in flush.index_paths}
        for path in unsynced.difference([file.path for file in indexes]):
            with suppress(FileNotFoundError):  # its segment was deleted meanwhile
                indexes.append(disk.open_briefly(path))
        flush = PendingFlush(disk, directory, logs, indexes, snapshots, up_to, generation, self)
        self._flushes.append(flush)
        return flush

    def raise_failure(self) -> None:
        """Raise the error of the first failed flush, if any failed."""
        if self.failure is not None:
            raise OSError(self.failure.errno, self.failure.strerror, self.failure.filename)

    def finish(self, flush: PendingFlush) -> None:
        """`flush` is synced, and with it the flushes before it."""
        if flush in self._flushes:
            del self._flushes[: self._flushes.index(flush) + 1]

    @property
    def sync_directory(self) -> bool:
        """Whether any unfinished flush has to sync the log's directory."""
        return any(flush.syncs_directory for flush in self._flushes)
