"""Writes the checkpoints of all logs of a data directory. A checkpoint contains an offset of a log only if that log is
on the disk.

Any thread may write checkpoints; the lock `checkpoint_guard` allows only one writer. Before a new log gets an entry,
the log and its directory are synced. Before high watermarks are written, this sync runs without the lock, so that other
writers do not wait for it.

The checkpoints of each data directory are written separately, so that a failed disk does not affect the checkpoints on
other disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from oncelog_broker.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from oncelog_broker.log.directories.data_directory import DataDirectory
from oncelog_broker.log.log_state import LogState
from oncelog_broker.log.new_directory import sync_together
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.disk import Disk


class LogCheckpoints:
    """Writes the checkpoints of one `LogManager`; the manager owns and changes the dictionaries that it passes to the
    constructor. Methods raise OSError.
    """

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[DataDirectory],
        logs: Mapping[TopicPartition, PartitionLog],
        homes: Mapping[TopicPartition, DataDirectory],
        failures: Mapping[TopicPartition, str],
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._logs = logs
        self._homes = homes
        self._failures = failures
        self._written_high_watermarks: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, PartitionLog]] | None
        self._written_high_watermarks = None
        """The high watermarks of the last complete write, and the logs that they belong to; None after a failed
        write.
        """

    def write_recovery_points(self) -> None:
        """Write the recovery points of all logs."""
        raise_first(self._in_each(self._write_recovery_points_of))

    def write_log_start_offsets(self) -> None:
        """Write the log start offsets that cannot be derived from the names of the segment files. Afterwards,
        `checkpointed_start` of each log has the offset that the checkpoint has for that log.
        """
        raise_first(self._in_each(self._write_log_start_offsets_of))

    def write_before_compaction(self, log: PartitionLog) -> None:
        """Write the recovery point, log start and cleaner checkpoint of `log`; after the log was compacted, a startup
        after a crash needs all three. Only the data directory of `log` is written, because the disk of another
        directory
        may have failed.
        """
        home = self._homes.get((log.topic, log.partition))
        if home is not None:  # `home` is None if the log was deleted meanwhile
            self._write_recovery_points_of(home)
            self._write_log_start_offsets_of(home)
            self._write_cleaner_offsets_of(home)

    def write_after_compaction(self, log: PartitionLog) -> None:
        """Write the cleaner checkpoint of the data directory of `log`, which has an entry for each compacted log in
        it.
        """
        home = self._homes.get((log.topic, log.partition))
        if home is not None:
            self._write_cleaner_offsets_of(home)

    def write_at_the_end(self) -> dict[DataDirectory, OSError]:
        """Write the checkpoints for the next startup, after all logs were closed. Returns the directories whose write
        failed."""
        failed = self._in_each(self._write_recovery_points_of)
        return failed | self._in_each(self._write_log_start_offsets_of)

    def write_high_watermarks(
        self, high_watermarks: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, PartitionLog]
    ) -> None:
        """Write high watermarks to the checkpoints. `logs` are the logs that these high watermarks belong to. If a log
        was deleted and re-created under the same name meanwhile, the entry of the new log is not changed.

        If neither the high watermarks nor the logs have changed since the last write, nothing is written.
        """
        if self._written_high_watermarks == (high_watermarks, logs):
            return
        self._written_high_watermarks = None
        unsynced = self.sync_new(key for key, offset in high_watermarks.items() if offset)

        def write(home: DataDirectory) -> None:
            with home.checkpoint_guard:
                here = {key: offset for key, offset in high_watermarks.items() if self._homes.get(key) is home}
                for key in [key for key in here if self._logs.get(key) is not logs.get(key)]:
                    here[key] = home.noted(HIGH_WATERMARK_CHECKPOINT, key) or 0
                self._write(home, HIGH_WATERMARK_CHECKPOINT, here)

        raise_first(self._in_each(write))
        if not unsynced:
            self._written_high_watermarks = high_watermarks, logs

    def lower_for_truncation(self, state: LogState) -> None:
        """Lower the recovery point and the cleaner checkpoint on the disk, before a truncation (the callback
        `LogTrimmer.before_truncation`).
        """
        home = self._homes[state.topic, state.partition]
        self._write_recovery_points_of(home)
        self._write_cleaner_offsets_of(home)

    def lower_after_truncation(self, state: LogState) -> None:
        """Lower the log start on the disk, after a truncation (the callback `LogTrimmer.after_truncation`)."""
        self._write_log_start_offsets_of(self._homes[state.topic, state.partition])

    def sync_new(self, keys: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Sync the new logs among `keys`; returns the keys of the logs that could not be synced."""
        logs = ((key, self._logs.get(key)) for key in keys)
        new = {
            key: found
            for key, log in logs
            if log is not None and (found := log.flusher.new_directory) is not None and not found.is_synced
        }
        for home in self._directories:
            here = [found for found in new.values() if found.names is home.names and found.may_be_synced]
            if home.sync_file_system(len(here)):
                for found in here:
                    found.is_synced = True
        sync_together(new.values(), self._disk.run_syncs)
        failed = {key for key, directory in new.items() if directory.failure is not None}
        for key in failed:
            if (log := self._logs.get(key)) is not None:
                log.state.note_flush_due()  # the flush will fail, and take the log offline
        return failed

    def _write_recovery_points_of(self, home: DataDirectory) -> None:
        with home.checkpoint_guard:
            offsets = {key: log.recovery_point for key, log in self._logs_in(home)}
            self._write(home, RECOVERY_POINT_CHECKPOINT, offsets)

    def _write_log_start_offsets_of(self, home: DataDirectory) -> None:
        with home.checkpoint_guard:
            logs = dict(self._logs_in(home))
            starts = {key: log.flusher.start_to_checkpoint for key, log in logs.items()}
            offsets = {key: start for key, start in starts.items() if start is not None}
            written = self._write(home, LOG_START_OFFSET_CHECKPOINT, offsets)
            for key in offsets.keys() & written.keys():
                logs[key].state.checkpointed_start = written[key]

    def _write_cleaner_offsets_of(self, home: DataDirectory) -> None:
        with home.checkpoint_guard:
            noted = {key: log.state.cleaner_checkpoint for key, log in self._logs_in(home)}
            offsets = {key: offset for key, offset in noted.items() if offset is not None}
            self._write(home, CLEANER_OFFSET_CHECKPOINT, offsets)

    def _write(self, home: DataDirectory, name: str, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Write a checkpoint, and return its entries. Logs that could not be opened keep their old entries, which are
        used after a repair of the log. New logs that are not synced yet get no entry.
        """
        lost = self.sync_new(key for key, offset in offsets.items() if offset)
        if lost:
            offsets = {key: offset for key, offset in offsets.items() if key not in lost}
        failed = [key for key in list(self._failures) if self._homes.get(key) is home]
        if failed:
            old = home.read_checkpoint(name)
            offsets = {key: old[key] for key in failed if key in old} | offsets
        home.write_checkpoint(name, offsets)
        return offsets

    def _in_each(self, write: Callable[[DataDirectory], None]) -> dict[DataDirectory, OSError]:
        """Call `write` for each data directory; returns the error of each directory whose write failed."""
        failed: dict[DataDirectory, OSError] = {}
        for home in self._directories:
            try:
                write(home)
            except OSError as error:
                failed[home] = error
        return failed

    def _logs_in(self, home: DataDirectory) -> list[tuple[TopicPartition, PartitionLog]]:
        return [(key, log) for key, log in list(self._logs.items()) if self._homes.get(key) is home]


def raise_first(failed: Mapping[DataDirectory, OSError]) -> None:
    """Raise the first error; one error is enough, and each error names its file."""
    for error in failed.values():
        raise error
