"""Closes all logs of a stopping broker. Thousands of logs may have unsynced data, with several files each, so the syncs
do not run one after another.

1. Write the indexes of each log, and prepare its flush.
2. Sync: the whole file system if `MANY_LOGS` logs of a data directory have unsynced data, otherwise the files of each
   log, in several threads. The file system is synced twice, because a snapshot of producers must not reach the disk
   before the records that it describes. If a sync of the file system fails, the files of each log are synced, which
   shows whose data was lost.
3. Move the recovery point of each log, and close its files.
4. Write the checkpoints, the states of the closed logs (`closed_logs`), and the mark of a clean shutdown.

A log whose sync failed goes offline, and does not count as cleanly closed; the other logs are not affected.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.closed_logs import write_closed_logs
from oncelog_broker.log.directories.data_directory import DataDirectory
from oncelog_broker.log.directories.log_checkpoints import LogCheckpoints, raise_first
from oncelog_broker.log.new_directory import sync_together
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.pending_flush import PendingFlush
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.errors import KafkaError

logger = logging.getLogger(__name__)


class LogClosing:
    """Closes the logs of one broker."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[DataDirectory],
        checkpoints: LogCheckpoints,
        homes: Mapping[TopicPartition, DataDirectory],
        topic_ids: Mapping[TopicPartition, bytes | None],
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._checkpoints = checkpoints
        self._homes = homes
        self._topic_ids = topic_ids
        self._errors: dict[PendingFlush, OSError] = {}

    def close(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        failures: Iterable[TopicPartition],
        broker_epoch: int,
        *,
        is_clean: bool,
    ) -> None:
        """Close these logs, write the checkpoints, and unlock the directories; an error does not stop the remaining
        steps. `failures` are the logs that could not be opened. If `is_clean` is False, no directory gets the mark of a
        clean shutdown. Raises OSError.
        """
        try:
            self._close_all(logs.values())
            failed = self._checkpoints.write_at_the_end()
        except BaseException:
            for home in self._directories:
                home.close(clean=False)
            raise
        unclean = {id(self._homes[key]) for key in failures}
        unclean |= {id(self._homes[key]) for key, log in logs.items() if not log.is_cleanly_closed}
        for home in self._directories:
            try:
                self._save_states(home, logs)
                is_whole = is_clean and home not in failed and id(home) not in unclean
                home.close(clean=is_whole, broker_epoch=broker_epoch)
            except OSError as error:
                failed.setdefault(home, error)
        raise_first(failed)

    def _save_states(self, home: DataDirectory, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Save the states of the closed logs in this directory. An error is only logged, because the next start can
        also open the logs from their files.
        """
        if home.file_system is None or home.directory_id is None:
            return
        here = [(log, self._topic_ids.get(key)) for key, log in logs.items() if self._homes.get(key) is home]
        try:
            write_closed_logs(self._disk, home.path, home.directory_id, here)
        except OSError as error:
            logger.warning("%s: the next start will read all logs: %s", home.path, error)

    def _close_all(self, logs: Iterable[PartitionLog]) -> None:
        """Close these logs. Errors of single logs are logged; such a log is not `is_cleanly_closed` afterwards."""
        begun: dict[PartitionLog, PendingFlush | None] = {}
        try:
            for log in logs:
                try:
                    begun[log] = log.begin_close()
                except KafkaError as error:
                    logger.error("closing %s: %s", log.name, error)
                    log.local.close()
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
            by_home[self._homes[log.topic, log.partition]].append(flush)
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
