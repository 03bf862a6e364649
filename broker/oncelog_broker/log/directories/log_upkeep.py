"""Finds the logs of a broker that have work for its periodic tasks: flushes, deleted files, failures.

The methods visit only the logs in the register of periodic work (`log/periodic_work.py`), so that an idle broker with
very many logs does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.periodic_work import PeriodicWork
from oncelog_broker.runtime.clock import Clock


class LogUpkeep:
    """The periodic work of one `LogManager`, which owns the mapping of logs. Use this class only in the thread that
    uses the logs.
    """

    def __init__(self, logs: Mapping[TopicPartition, PartitionLog], clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self.work = PeriodicWork()
        """The register, which every log of the manager gets."""

    def register(self, log: PartitionLog) -> None:
        """Register the periodic work that this log has now, and in the future."""
        log.state.periodic_work = self.work
        if log.is_offline:
            self.work.failed[log.topic, log.partition] = None
        if log.local.has_marked:
            log.state.note_files_to_free()
        if _may_reach_limit(log) or log.flusher.is_flush_due:
            log.state.note_flush_due()

    def logs_due_for_flush(self) -> list[PartitionLog]:
        """Return the logs that the caller must flush: logs that have reached `flush.messages` or `flush.ms`, and logs
        whose directory could not be synced. The flush takes a log whose directory could not be synced offline.
        """
        now = self._clock.monotonic()
        return [
            log
            for log in self._logs_with(self.work.to_flush)
            if log.state.may_be_changed
            and (
                (log.flusher.new_directory is not None and log.flusher.new_directory.is_lost)
                or (
                    log.flusher.unflushed_records > 0
                    and (
                        log.flusher.unflushed_records >= log.config.flush_messages
                        or now - log.flusher.last_flush_at >= log.config.flush_ms / 1000
                    )
                )
            )
        ]

    def logs_with_closed_segments(self) -> list[PartitionLog]:
        """Return the logs with a closed segment, or a producer snapshot at the end of that segment, that is not on the
        disk yet. Logs without further work for the periodic flush are removed from the register.
        """
        due = []
        for log in self._logs_with(self.work.to_flush):
            new_directory = log.flusher.new_directory
            if log.state.may_be_changed and log.flusher.is_flush_due:
                due.append(log)
            elif not (
                log.state.is_truncating
                or log.is_paused
                or _may_reach_limit(log)
                or (new_directory is not None and new_directory.is_lost)
            ):
                self.work.to_flush.pop((log.topic, log.partition), None)
        return due

    def failed(self) -> Iterator[TopicPartition]:
        """Yield the partitions whose log went offline after it was opened, and has not been opened again."""
        for log in self._logs_with(self.work.failed):
            if log.is_offline:
                yield log.topic, log.partition
            else:
                self.work.failed.pop((log.topic, log.partition), None)

    def take_deleted(self, now: float) -> list[str]:
        """Return the paths of the files of deleted segments whose delay has expired at `now` (monotonic seconds)."""
        files: list[str] = []
        for log in self._logs_with(self.work.to_free):
            # Remove the entry before looking at the log: a worker thread that truncates the log may add the entry again
            # at any moment, and that new entry must stay.
            self.work.to_free.pop((log.topic, log.partition), None)
            files += log.trimmer.take_deleted(now)
            if log.local.has_marked:
                log.state.note_files_to_free()
        return files

    def _logs_with(self, keys: dict[TopicPartition, None]) -> Iterator[PartitionLog]:
        """Yield the logs of the partitions in `keys`, which is one of the dictionaries of the register. Partitions
        without a log are removed from it.
        """
        for key in tuple(keys):
            log = self._logs.get(key)
            if log is None:
                keys.pop(key, None)
            else:
                yield log


def _may_reach_limit(log: PartitionLog) -> bool:
    """Whether the log has unflushed records, and settings that limit their number or the time until their flush. A log
    without unflushed records registers itself again at its next append.
    """
    return log.config.limits_unflushed and log.flusher.unflushed_records > 0 and not log.is_offline
