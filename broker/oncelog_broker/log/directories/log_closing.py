"""Closes all logs of a stopping broker. Thousands of logs may have unsynced data, with several files each, so the syncs
do not run one after another.

1. Write the indexes of each log, and prepare its flush.
2. Sync: the whole file system if `MANY_LOGS` logs of a data directory have unsynced data, otherwise the files of each
   log, in several threads. The file system is synced twice, because a snapshot of producers must not reach the disk
   before the records that it describes. If a sync of the file system fails, the files of each log are synced, which
   shows whose data was lost.
3. Move the recovery point of each log, and close its files.

A log whose sync failed goes offline, and does not count as cleanly closed; the other logs are not affected.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import partial

from oncelog_broker.log.directories.data_directory import DataDirectory
from oncelog_broker.log.new_directory import sync_together
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.pending_flush import PendingFlush
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.errors import KafkaError

logger = logging.getLogger(__name__)


class LogClosing:
    """Closes the logs of one broker."""

    def __init__(self, disk: Disk, home_of: Callable[[PartitionLog], DataDirectory]) -> None:
        """`home_of` returns the data directory of a log."""
        self._disk = disk
        self._home_of = home_of
        self._errors: dict[PendingFlush, OSError] = {}

    def close(self, logs: Iterable[PartitionLog]) -> None:
        """Close these logs. Errors of single logs are logged; such a log is not `is_cleanly_closed` afterwards."""
        begun: dict[PartitionLog, PendingFlush | None] = {}
        try:
            for log in logs:
                try:
                    begun[log] = log.begin_close()
                except KafkaError as error:
                    logger.error("closing %s: %s", log.name, error)
                    log.close_files()
            self._sync({log: flush for log, flush in begun.items() if flush is not None})
        finally:
            for log, flush in begun.items():
                self._finish(log, flush)

    def _finish(self, log: PartitionLog, flush: PendingFlush | None) -> None:
        try:
            log.finish_close(flush, None if flush is None else self._errors.get(flush))
        except KafkaError as error:
            logger.error("closing %s: %s", log.name, error)

    def _sync(self, flushes: dict[PartitionLog, PendingFlush]) -> None:
        by_home: dict[DataDirectory, list[PendingFlush]] = defaultdict(list)
        for log, flush in flushes.items():
            by_home[self._home_of(log)].append(flush)
        left = []
        for home, some in by_home.items():
            left += self._sync_together(home, some) if home.syncs_together(len(some)) else some
        new = [flush.new_directory for flush in left if flush.new_directory is not None]
        sync_together(new, self._disk.run_syncs)
        self._disk.run_syncs([partial(self._sync_one, flush) for flush in left])

    def _sync_one(self, flush: PendingFlush) -> None:
        try:
            flush.sync()
        except OSError as error:
            self._errors[flush] = error

    def _sync_together(self, home: DataDirectory, flushes: Collection[PendingFlush]) -> list[PendingFlush]:
        """Sync these flushes by syncing the file system; returns the flushes that must still be synced."""
        together = [flush for flush in flushes if flush.may_be_synced_with_others]
        try:
            for flush in together:
                flush.write_windows()
            if not home.sync_file_system(len(together)):
                return list(flushes)
            for flush in together:
                flush.write_snapshots()
            if not home.sync_file_system(len(together)):
                return list(flushes)
        except OSError as error:
            logger.warning("%s: snapshots of producers could not be written: %s", home.path, error)
            return list(flushes)
        for flush in together:
            flush.note_synced_with_others()
        return [flush for flush in flushes if not flush.may_be_synced_with_others]
