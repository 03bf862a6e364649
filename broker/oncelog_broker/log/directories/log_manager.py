"""Opens, closes, creates and deletes all the logs of a broker, and does their periodic work.

A log that cannot be opened or has failed does not affect other logs: the reason is stored, and a lookup of the failed
log raises KAFKA_STORAGE_ERROR. This class starts no tasks: callers that have a timer call the methods for periodic
work.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from oncelog_broker.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.data_directory import (
    DELETE_DIRECTORY_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    UNKNOWN_BROKER_EPOCH,
    DataDirectory,
    lock_directories,
    marked_directory_name,
    note_sisters,
)
from oncelog_broker.log.directories.directory_choice import DirectoryChoice
from oncelog_broker.log.directories.future_log import FutureLog, settle_future_logs
from oncelog_broker.log.directories.log_changes import (
    LogMove,
    LogMoves,
    LogOpening,
    LogRemoval,
    ReturningLog,
    WantedLog,
)
from oncelog_broker.log.directories.log_checkpoints import LogCheckpoints
from oncelog_broker.log.directories.log_closing import LogClosing
from oncelog_broker.log.directories.log_loader import LogLoader
from oncelog_broker.log.directories.log_upkeep import LogUpkeep
from oncelog_broker.log.directories.missing_logs import offline_logs
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.descriptors import is_descriptor_limit
from oncelog_broker.runtime.disk import Disk
from oncelog_broker.runtime.entropy import Entropy, random_uuid, system_entropy
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

DEFAULT_CONFIG = LogConfig()


class LogManager:
    """Manages all logs of one broker; created by `open`. The manager and its logs belong to one thread. Methods raise
    KafkaError, unless their docstrings name other errors.
    """

    def __init__(self, disk: Disk, clock: Clock, entropy: Entropy, directories: Sequence[DataDirectory]) -> None:
        """The constructor is internal: call `open` instead."""
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._directories = directories
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._homes: dict[TopicPartition, DataDirectory] = {}
        """The data directory of each log, including failed logs."""
        self._topic_ids: dict[TopicPartition, bytes | None] = {}
        self._failures: dict[TopicPartition, str] = {}
        self._missing: set[TopicPartition] = set()
        """The failed logs that have no directory any more."""
        self._returning: dict[TopicPartition, ReturningLog] = {}
        """The failed logs that the next `begin_opening` opens again."""
        self._last_known: dict[TopicPartition, ReturningLog] = {}
        """The failed logs that could not be opened again, with their last known offsets."""
        self._renamed: dict[TopicPartition, str] = {}
        """The paths to which the directories of failed logs were renamed, if the new name may not be on the disk."""
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._checkpoints = LogCheckpoints(disk, directories, self._logs, self._homes, self._failures)
        self._choice = DirectoryChoice(directories, self._homes, clock)
        self._deleted: list[tuple[float, str]] = []
        """Deleted logs: (monotonic seconds from which the directory may be freed, path of the directory)."""
        self.upkeep = LogUpkeep(self._logs, clock)
        """Finds the logs with work for the periodic tasks."""
        self.cut_at_start: list[str] = []
        """The paths of the logs from whose ends this start has removed incomplete or damaged records, and of the data
        directories in which an earlier start has done so without registering afterwards.
        """
        self.cluster_id: str | None = None
        """The cluster id in the data directories; None if the directories are new and `open` got no cluster id."""

    @classmethod
    def open(
        cls,
        data_dirs: Sequence[str | os.PathLike[str]],
        *,
        node_id: int,
        cluster_id: str | None,
        disk: Disk,
        clock: Clock,
        config_of: Callable[[str], LogConfig] | None = None,
        entropy: Entropy = system_entropy,
    ) -> LogManager:
        """Lock the data directories and open every log in them. `config_of` returns the configuration of a topic;
        without `config_of`, all topics have Kafka's defaults.

        Raises LockHeld, MetaPropertiesError, OSError, all with a message for the operator; no directory then stays
        locked. Errors of single logs are stored in `failures`.
        """
        directories = lock_directories(data_dirs, node_id=node_id, cluster_id=cluster_id, disk=disk)
        return cls.open_locked(
            directories,
            node_id=node_id,
            cluster_id=cluster_id,
            disk=disk,
            clock=clock,
            config_of=config_of,
            entropy=entropy,
        )

    @classmethod
    def open_locked(
        cls,
        directories: Sequence[DataDirectory],
        *,
        node_id: int,
        cluster_id: str | None,
        disk: Disk,
        clock: Clock,
        config_of: Callable[[str], LogConfig] | None = None,
        entropy: Entropy = system_entropy,
    ) -> LogManager:
        """Open every log in directories that `lock_directories` has locked; if this method raises, the directories are
        unlocked. Raises MetaPropertiesError, OSError."""
        try:
            for directory in directories:
                directory.check_owner(node_id=node_id, cluster_id=cluster_id)
                cluster_id = cluster_id if cluster_id is not None else directory.cluster_id
            for directory in directories:
                directory.claim(node_id=node_id, cluster_id=cluster_id, entropy=entropy)
            note_sisters(directories)
            manager = cls(disk, clock, entropy, directories)
            manager.cluster_id = cluster_id
            settle_future_logs(disk, directories, entropy)
            for directory in directories:
                manager._open_logs(directory, config_of or (lambda _: DEFAULT_CONFIG))
        except BaseException:
            for directory in directories:
                directory.close(clean=False)
            raise
        return manager

    @property
    def was_closed_cleanly(self) -> bool:
        """Whether the previous broker had closed every log, in every data directory."""
        return all(directory.clean_shutdown for directory in self._directories)

    # --- methods for one log or some logs -----------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log of a partition; None if this broker has no such log. Raises KAFKA_STORAGE_ERROR if the log
        could not be opened.
        """
        key = topic, partition
        if key in self._failures:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failures[key])
        return self._logs.get(key)

    def find(self, wanted: WantedLog) -> PartitionLog | KafkaError | None:
        """Return the log of a partition, or the error that prevents its opening, without accessing the disk. Returns
        None if only a disk access can decide.
        """
        if wanted.key in self._returning:
            return None
        try:
            log = self.get(*wanted.key)
        except KafkaError as error:
            return error.as_value()
        if log is None or (wanted.topic_id is not None and self._topic_ids[wanted.key] is None):
            return None
        return self._of_the_topic(wanted, log)

    def begin_opening(self, wanted_logs: Sequence[WantedLog]) -> LogOpening:
        """Open these logs; a missing log is created in a data directory chosen by `DirectoryChoice`.

        A log without a topic id gets the topic id in `wanted_logs`. The caller must run `LogOpening.run` and
        `finish_opening` next, before another call opens or deletes any of these logs.
        """
        opening = LogOpening(self._disk, self._clock, self._directories, wanted_logs)
        counts = self._choice.counts()
        for wanted in wanted_logs:
            found = self.find(wanted)
            if found is not None:
                opening.results[wanted.key] = found
            elif (returning := self._returning.get(wanted.key)) is not None:
                opening.to_return.append(returning)
            elif wanted.key in self._logs:
                opening.to_identify.append((wanted, self._logs[wanted.key]))
            else:
                opening.to_make[self._choice.take(wanted.key, counts)].append(wanted)
        return opening

    def finish_opening(self, opening: LogOpening) -> list[PartitionLog | KafkaError]:
        """Return the logs, or their errors: KAFKA_STORAGE_ERROR, or INCONSISTENT_TOPIC_ID for a log that belongs to a
        deleted topic of the same name.
        """
        for home, made in opening.to_make.items():
            for wanted in made:
                log = opening.results[wanted.key]
                if isinstance(log, PartitionLog):
                    self._homes[wanted.key] = home
                    self._topic_ids[wanted.key] = wanted.topic_id
                    self._choice.note_made(wanted.key)
                    self._adopt(wanted.key, log)
                elif not is_descriptor_limit(log.__cause__):
                    self._choice.note_refusal(wanted.key, home, is_left=wanted.key in opening.left)
        for wanted, log in opening.to_identify:
            if opening.results[wanted.key] is log:
                self._topic_ids[wanted.key] = wanted.topic_id
        self._renamed.update(opening.renamed)
        for returning in opening.to_return:
            self._finish_return(returning, opening.results[returning.wanted.key])
        return [self._of_the_topic(wanted, opening.results[wanted.key]) for wanted in opening.wanted]

    def _of_the_topic(self, wanted: WantedLog, found: PartitionLog | KafkaError) -> PartitionLog | KafkaError:
        if isinstance(found, KafkaError) or wanted.topic_id in (None, self._topic_ids[wanted.key]):
            return found
        message = f"the log in {found.directory} belongs to another topic named {wanted.topic}"
        return KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, message)

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """Return the 16 bytes of the topic id in the log's `partition.metadata`; None if the log does not exist or has
        no topic id.
        """
        return self._topic_ids.get((topic, partition))

    def note_missing(
        self,
        partitions: Iterable[TopicPartition],
        lost: Collection[str] = (),
        *,
        replicated: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        """Search for missing logs after the startup (`missing_logs`). `partitions` are the partitions that this broker
        must host. `lost` has the paths of data directories that are lost. `replicated` (function) returns whether a
        partition also has replicas on other brokers.
        """
        deleted = {os.path.basename(path).rpartition(".")[0] for _, path in self._deleted}
        missing = [key for key in partitions if key not in self._homes]
        for key, home, failure in offline_logs(missing, self._directories, deleted, lost, replicated):
            self._homes[key] = home
            self._missing.add(key)
            self._failures[key] = failure

    def begin_anew(self, topic: str, partition: int) -> None:
        """Allow a missing log (`note_missing`) to be created again as an empty log, which then fetches its records from
        other replicas. Does nothing if the log exists, even if it has failed.
        """
        key = topic, partition
        if key in self._missing:
            logger.warning(
                "%s-%d: a new, empty log is created, and fetches its records from the leader", topic, partition
            )
            self._forget(key)

    def begin_return(self, wanted: WantedLog, high_watermark: int) -> bool:
        """Let the next `begin_opening` reopen a log that is offline or could not be opened. Call this only for a
        replica that is not in sync, because the log may lose records. The reopened log ends at its recovery point.
        Returns False, and changes nothing, if the log is online
        or has no files.
        """
        key = wanted.key
        log, home = self._logs.get(key), self._homes.get(key)
        if home is None or key in self._missing or key in self._returning:
            return False
        if log is None:
            known = self._last_known.get(key) or ReturningLog(
                wanted,
                home,
                home.noted(RECOVERY_POINT_CHECKPOINT, key) or 0,
                home.noted(LOG_START_OFFSET_CHECKPOINT, key) or 0,
                home.noted(CLEANER_OFFSET_CHECKPOINT, key),
                high_watermark,
            )
            # the known offsets, with new settings
            self._returning[key] = known._replace(
                wanted=wanted,
                discarded_path=self._marked_path(key, home, DELETE_DIRECTORY_SUFFIX) if known.discarded_path else "",
                renamed_path=self._renamed.get(key, ""),
            )
            return True
        if not log.is_offline or log.state.is_truncating:
            return False
        self._failures[key] = f"{home.join(wanted.name)}: its disk failed"
        self._high_watermarks[key] = high_watermark
        is_name_lost = log.flusher.new_directory is not None and log.flusher.new_directory.is_lost
        discarded = self._marked_path(key, home, DELETE_DIRECTORY_SUFFIX) if is_name_lost else ""
        self._returning[key] = ReturningLog(
            wanted,
            home,
            log.recovery_point,
            log.log_start_offset,
            log.state.cleaner_checkpoint,
            high_watermark,
            discarded,
        )
        del self._logs[key]
        log.abandon()
        return True

    def _finish_return(self, returning: ReturningLog, result: PartitionLog | KafkaError) -> None:
        wanted = returning.wanted
        del self._returning[wanted.key]
        if isinstance(result, KafkaError):
            self._last_known[wanted.key] = returning
            self._failures[wanted.key] = f"{returning.path}: {result}"
            return
        del self._failures[wanted.key]
        self._last_known.pop(wanted.key, None)
        self._topic_ids[wanted.key] = wanted.topic_id
        self._adopt(wanted.key, result)

    def is_unmade(self, key: TopicPartition) -> bool:
        """Whether a log for this partition may be created: the manager has no log of this partition, not even a failed
        or missing log.
        """
        return key not in self._homes

    def place_of(self, key: TopicPartition) -> str | None:
        """Return the path of the log's data directory; None if the log does not exist."""
        home = self._homes.get(key)
        return None if home is None else home.path

    def placing(self) -> Callable[[TopicPartition], str]:
        """Return a function that returns the data directory in which the log of a partition is or will be created. Use
        one function for many partitions, because its creation counts all logs.
        """
        counts = self._choice.counts()
        return lambda key: self._choice.place(key, counts).path

    def delete(self, topic: str, partition: int) -> None:
        """Delete one log in one call: `begin_deletion`, `run` and `finish_deletion` without interruption. Raises
        KAFKA_STORAGE_ERROR.
        """
        moves = self.begin_deletion([(topic, partition)])
        moves.run()
        for error in self.finish_deletion(moves).values():
            raise error

    def is_truncating(self, key: TopicPartition) -> bool:
        """Whether a worker thread is truncating the end of this log, or replacing the log by a copy in another data
        directory; while True, the log cannot be deleted.
        """
        log = self._logs.get(key)
        return log is not None and (log.state.is_truncating or log.is_paused)

    def begin_deletion(self, keys: Iterable[TopicPartition]) -> LogMoves:
        """Begin to delete these logs. After this call, the rest of the broker must not use these logs. The caller must
        run
        `LogMoves.run` and `finish_deletion` next, before any of these logs is created again.

        Failed logs can be deleted, too. Missing logs are ignored.
        """
        return self._begin_moving(keys, DELETE_DIRECTORY_SUFFIX)

    def finish_deletion(self, moves: LogMoves) -> dict[TopicPartition, KafkaError]:
        """Finish a deletion; returns a KAFKA_STORAGE_ERROR for each log that could not be deleted. `purge_deleted`
        frees the deleted logs after file.delete.delay.ms.
        """
        failed = {}
        self._renamed.update(moves.renamed)
        for key, target in moves.targets.items():
            log = self._logs.get(key)
            if isinstance(target, KafkaError):
                failed[key] = target
                if log is not None:
                    log.state.note_failed()  # `begin_deletion` took the log offline
                continue
            if target is not None:
                delay_ms = (log.config if log is not None else DEFAULT_CONFIG).file_delete_delay_ms
                self._deleted.append((self._clock.monotonic() + delay_ms / 1000, target))
            self._forget(key)
        return failed

    def forget_offsets(self, keys: Collection[TopicPartition]) -> None:
        """Remove these partitions from the checkpoints before renaming their directories; otherwise recovery would
        report missing logs. Raises KAFKA_STORAGE_ERROR."""
        for home in self._directories:
            here = [key for key in keys if self._homes.get(key) is home]
            try:
                home.drop_from_checkpoints(here)
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{home.path}: {error}") from error

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Rename the directory of a log that no topic owns, without freeing it; returns the new path, or None if the
        log had no directory. Raises KAFKA_STORAGE_ERROR.

        The broker does not use this log, but the log may be the only copy of its records, so the operator decides what
        to do with it.
        """
        moves = self._begin_moving([(topic, partition)], STRAY_DIRECTORY_SUFFIX)
        if (log := self._logs.get((topic, partition))) is not None:
            log.state.note_failed()  # the log is offline now, and stays offline if this method raises an error
        self.forget_offsets([(topic, partition)])
        moves.run()
        self._renamed.update(moves.renamed)
        target = moves.targets.get((topic, partition))
        if isinstance(target, KafkaError):
            raise target
        self._forget((topic, partition))
        return target

    def _begin_moving(self, keys: Iterable[TopicPartition], suffix: str) -> LogMoves:
        moves = LogMoves(self._disk)
        for key in keys:
            topic, partition = key
            home = self._homes.get(key)
            if home is None:
                continue
            if (log := self._logs.get(key)) is not None:
                log.abandon()
            source = home.join(f"{topic}-{partition}")
            target = self._marked_path(key, home, suffix)
            moves.moves.append(LogMove(key, home, source, target, self._renamed.get(key, "")))
        return moves

    def _marked_path(self, key: TopicPartition, home: DataDirectory, suffix: str) -> str:
        """Return a new path, in the same data directory, for a log that is not opened any more."""
        return home.join(marked_directory_name(*key, random_uuid(self._entropy).hex(), suffix))

    def _forget(self, key: TopicPartition) -> None:
        self._missing.discard(key)
        for by_partition in (
            self._logs, self._homes, self._topic_ids, self._failures, self._high_watermarks, self._returning,
            self._last_known, self._renamed,
        ):  # fmt: skip
            by_partition.pop(key, None)

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of all logs, including logs that could not be opened."""
        return list(self._homes)

    def data_directories(self) -> list[str]:
        """Return the absolute paths of the data directories, in the order of log.dirs."""
        return [directory.path for directory in self._directories]

    def places(self) -> list[tuple[TopicPartition, str]]:
        """Return each partition with the path of its log's data directory."""
        return [(key, home.path) for key, home in self._homes.items()]

    def room_in(self, directory: str) -> tuple[int, int]:
        """Return (total bytes of the file system that contains a data directory, bytes that this process may still
        write there). Raises
        OSError."""
        return self._disk.room(directory)

    def note_rooms(self) -> None:
        """Measure the free space of the data directories. The result is used to choose the directory of a new log. This
        method may be called in any thread.
        """
        # With a single directory there is nothing to choose, so nothing is measured.
        for directory in self._directories if len(self._directories) > 1 else ():
            with suppress(OSError):
                self._choice.note_room(directory, self._disk.room(directory.path)[1])

    def logs(self) -> Iterator[PartitionLog]:
        """Return all logs, including those that went offline after they were opened."""
        return iter(list(self._logs.values()))

    @property
    def failures(self) -> Mapping[TopicPartition, str]:
        """Partition -> the reason why its log is missing or could not be opened."""
        return self._failures

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """Return the high watermarks that were read from the checkpoints at the startup."""
        return self._high_watermarks

    # --- methods that move a log to another data directory ------------------------------------------------------------

    def directory_at(self, path: str) -> DataDirectory:
        """Return the data directory with this absolute path. Raises LOG_DIR_NOT_FOUND."""
        for home in self._directories:
            if home.path == path:
                return home
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")

    def prefer(self, key: TopicPartition, path: str) -> None:
        """Create the log of this partition in a data directory, if the log does not exist yet. Raises
        LOG_DIR_NOT_FOUND.
        """
        home = self.directory_at(path)
        if key not in self._homes:
            self._choice.prefer(key, home)

    def make_future(self, wanted: WantedLog, path: str, log: PartitionLog) -> Callable[[], FutureLog]:
        """Return a function for a worker thread to call: it creates a future log of `log` in the data directory at
        `path`, and raises KAFKA_STORAGE_ERROR. Raises LOG_DIR_NOT_FOUND.
        """
        home, start, directory = self.directory_at(path), log.local.first.base_offset, log.directory
        wanted = wanted._replace(topic_id=self._topic_ids.get(wanted.key))

        def make() -> FutureLog:
            future = FutureLog.make(self._disk, self._clock, home, wanted, start, self._entropy)
            try:
                future.adopt_producers(directory, start)
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}") from error
            return future

        return make

    def finish_replacement(self, future: FutureLog, log: PartitionLog | None) -> None:
        """Use `log`, the result of `FutureLog.replace`, as the log of the partition from now on. `log` is None if the
        replacement failed.
        """
        key = future.wanted.key
        if future.deleted_path is not None:
            self._homes[key] = future.home
        if log is not None and future.deleted_path is not None:
            delay_ms = log.config.file_delete_delay_ms
            self._deleted.append((self._clock.monotonic() + delay_ms / 1000, future.deleted_path))
            self._adopt(key, log)
        future.home.forget_arrival(key)

    # --- methods that background tasks call periodically --------------------------------------------------------------

    def purge_deleted(self, now: float) -> int:
        """Free deleted files in one call: `begin_purge` and `run` without interruption; returns the number of freed
        files and directories.
        """
        removal = self.begin_purge(now)
        return 0 if removal is None else removal.run()

    def begin_purge(self, now: float) -> LogRemoval | None:
        """Return the logs and segments whose delay after deletion has expired, for `LogRemoval.run` to free; None if
        there are none. `now` is in monotonic seconds, because setting back a wall clock would delay the removal.
        """
        files = self.upkeep.take_deleted(now)
        directories = [path for due, path in self._deleted if due <= now]
        self._deleted = [entry for entry in self._deleted if entry[0] > now]
        return LogRemoval(self._disk, files, directories) if files or directories else None

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points; a startup after a crash verifies the records above them. Raises OSError.

        A worker thread may call this method and the other methods whose names begin with `checkpoint_`.
        """
        self._checkpoints.write_recovery_points()

    def checkpoint_log_start_offsets(self) -> None:
        """Write the log start offsets that, after a power cut, could not be derived from the names of the segment
        files. Raises OSError.
        """
        self._checkpoints.write_log_start_offsets()

    def checkpoint_before_compaction(self, log: PartitionLog) -> None:
        """Write recovery point, log start and cleaner checkpoint of this log. Raises OSError."""
        self._checkpoints.write_before_compaction(log)

    def checkpoint_after_compaction(self, log: PartitionLog) -> None:
        """Write the cleaner checkpoint of this log. Raises OSError."""
        self._checkpoints.write_after_compaction(log)

    def begin_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """Return a function that writes the high watermarks, for a worker thread to call. The function raises
        OSError.
        """
        return partial(self._checkpoints.write_high_watermarks, high_watermarks, dict(self._logs))

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks. Raises OSError."""
        self.begin_high_watermarks(high_watermarks)()

    def forget_cut_logs(self) -> None:
        """Remove the notes of cut logs, after this broker has registered as unsure of its logs. Raises OSError."""
        for directory in self._directories:
            directory.forget_cut_log()

    def close(self, *, broker_epoch: int = UNKNOWN_BROKER_EPOCH, is_clean: bool = True) -> None:
        """Close every log, write the checkpoints, and unlock the directories; an error does not stop the remaining
        steps. Raises OSError.

        The next startup treats a data directory as cleanly closed only if every log in that directory was closed, and
        `is_clean` is True.
        """
        closing = LogClosing(self._disk, self._directories, self._checkpoints, self._homes, self._topic_ids)
        closing.close(dict(self._logs), self._failures, broker_epoch, is_clean=is_clean)

    # --- private helpers of this module -------------------------------------------------------------------------------

    def _open_logs(self, home: DataDirectory, config_of: Callable[[str], LogConfig]) -> None:
        loader = LogLoader(self._disk, self._clock, self._entropy, home, config_of)
        loader.find()
        for key in loader.found:
            if key in self._homes:
                name, other = f"{key[0]}-{key[1]}", self._homes[key].path
                raise OSError(f"{name} is in {home.path} and in {other}: remove the outdated directory")
        due = self._clock.monotonic() + DEFAULT_CONFIG.file_delete_delay_ms / 1000
        self._deleted += [(due, path) for path in loader.deleted]
        noted = loader.high_watermarks
        self._high_watermarks.update({key: noted[key] for key in loader.found if key in noted})
        for key, topic_id, log, failure in loader.load():
            self._homes[key] = home
            self._topic_ids[key] = topic_id
            if log is None:
                self._failures[key] = failure
            else:
                self._adopt(key, log)
        self.cut_at_start += loader.cut

    def _adopt(self, key: TopicPartition, log: PartitionLog) -> None:
        self._logs[key] = log
        log.trimmer.before_truncation = self._checkpoints.lower_for_truncation
        log.trimmer.after_truncation = self._checkpoints.lower_after_truncation
        self.upkeep.register(log)
