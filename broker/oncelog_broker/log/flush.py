"""A flush in three steps, so that the slow one can run in a worker thread: prepare, sync, finish.

`PartitionLog.prepare_flush` and `finish_flush` belong to the thread of the log; `PendingFlush.sync` may run anywhere.
`PartitionLog.flush` is all three in a row.
"""

from __future__ import annotations

from contextlib import suppress

from oncelog_broker.log.producers.snapshot import PendingSnapshot
from oncelog_broker.runtime.disk import Disk, File, FileClosed


class PendingFlush:
    """Files with unsynced bytes, and what is durable once they are synced."""

    __slots__ = ("_directory", "_disk", "_indexes", "_logs", "_snapshots", "generation", "up_to")

    def __init__(
        self,
        disk: Disk,
        directory: str | None,
        logs: list[File],
        indexes: list[File],
        snapshots: list[PendingSnapshot],
        up_to: int,
        generation: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._logs = logs
        self._indexes = indexes
        """Opened for this flush, hence closed by it."""
        self._snapshots = snapshots
        self.up_to = up_to
        """Every record below this offset is durable after `sync`."""
        self.generation = generation
        """Of the log's content: a truncation in between makes `up_to` say nothing."""

    def sync(self) -> None:
        """fsync all. Raises OSError, once: nothing is known of the files after that, and there is no trying again."""
        try:
            for file in self._logs:
                with suppress(FileClosed):  # its segment was deleted meanwhile: nothing of it is to be durable
                    file.sync()
            for file in self._indexes:
                file.sync()
            for snapshot in self._snapshots:  # after what they speak of
                snapshot.write()
            if self._directory is not None:
                self._disk.sync_directory(self._directory)
        finally:
            for file in self._indexes:
                file.close()
            self._indexes = []
