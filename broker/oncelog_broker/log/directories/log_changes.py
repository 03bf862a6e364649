"""The operations on logs that wait for the disk: creating logs, renaming their directories, and freeing their files.

`LogManager` has the methods that begin and finish an operation; these methods must run in the manager's thread. The
step between the two methods, `run`, may be called in any thread, because it uses no shared state. Many logs are changed
in one operation, so that a data directory is synced once for all these logs. Creating a log waits for the disk only if
the log's directory existed already; a new directory is synced later (`new_directory.py`).
"""

from __future__ import annotations

import errno
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.data_directory import DataDirectory
from oncelog_broker.log.directories.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadataCorrupt,
    PartitionMetadataTorn,
    partition_metadata,
    read_topic_id,
    write_topic_ids,
)
from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)


class WantedLog(NamedTuple):
    """A log that must exist after the operation, with the settings for creating the log."""

    topic: str
    partition: int
    topic_id: bytes | None
    config: LogConfig

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReturningLog(NamedTuple):
    """A log whose disk failed, and its last known offsets."""

    wanted: WantedLog
    home: DataDirectory
    recovery_point: int
    log_start_offset: int
    cleaner_checkpoint: int | None
    high_watermark: int
    discarded_path: str = ""
    """Not "" if the sync of the directory's name failed. Then no file in the directory was synced either, so the
    directory is renamed to this path and removed, and the log is created again. Each attempt has another path.
    """
    renamed_path: str = ""
    """The path to which an earlier attempt has renamed the directory; "" if no attempt has."""

    @property
    def path(self) -> str:
        return self.home.join(self.wanted.name)

    @property
    def must_begin_anew(self) -> bool:
        """Whether all records of the log must be discarded, because the log is or was compacted."""
        return self.wanted.config.is_compacted or self.cleaner_checkpoint is not None


class LogOpening:
    """Creates logs, writes the missing topic ids of logs, and reopens logs after their disk failed."""

    def __init__(
        self, disk: Disk, clock: Clock, directories: Sequence[DataDirectory], wanted: Sequence[WantedLog]
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._directories = directories
        self.wanted = wanted
        self.to_make: defaultdict[DataDirectory, list[WantedLog]] = defaultdict(list)
        self.to_identify: list[tuple[WantedLog, PartitionLog]] = []
        self.to_return: list[ReturningLog] = []
        self.results: dict[TopicPartition, PartitionLog | KafkaError] = {}
        """The opened log of each partition, or the error that prevented its opening. Before `run`, `results` has only
        the partitions that need no disk access.
        """
        self.left: set[TopicPartition] = set()
        """After `run`: partitions whose log could not be created, but whose directory exists."""
        self.renamed: dict[TopicPartition, str] = {}
        """After `run`: the paths to which the directories of discarded logs were renamed."""

    def run(self) -> None:
        """Create and open the logs, and write missing topic ids. Errors are stored in `results`, not raised."""
        for wanted, log in self.to_identify:
            self.results[wanted.key] = log
            try:
                self._identify([(wanted, log)])
            except OSError as error:
                self.results[wanted.key] = _storage_error(wanted.name, error)
        for returning in self.to_return:
            self.results[returning.wanted.key] = self._open_again(returning)
        for home, all_wanted in self.to_make.items():
            try:
                self._drop_from_checkpoints(home, [wanted.key for wanted in all_wanted])
                made = [(wanted, self._make(home, wanted)) for wanted in all_wanted]
                self.results.update({wanted.key: log for wanted, log in made})
                was_there = [
                    (wanted, log)
                    for wanted, log in made
                    if isinstance(log, PartitionLog) and log.flusher.new_directory is None
                ]
                if was_there:
                    self._identify(was_there)
                    home.names.sync()
            except OSError as error:
                for wanted in all_wanted:
                    result = self.results.get(wanted.key)
                    if isinstance(result, PartitionLog):
                        result.abandon()
                        self._clear_away(home, wanted, was_there=result.flusher.new_directory is None)
                    self.results[wanted.key] = _storage_error(wanted.name, error)

    def _drop_from_checkpoints(self, home: DataDirectory, keys: Collection[TopicPartition]) -> None:
        """Remove the offsets of earlier logs with the same names from the checkpoints of all directories.

        If the offsets remained, and a power cut removed a new log before its sync, the next startup would report the
        old log's records as lost. Errors in directories other than `home`, whose disks may have failed, are only
        logged. Raises OSError for `home`.
        """
        home.drop_from_checkpoints(keys)
        for other in self._directories:
            try:
                if any(other.noted_offset(key) for key in keys):  # leave other disks alone, because they may hang
                    other.drop_from_checkpoints(keys)
            except OSError as error:
                logger.error(
                    "%s: offsets of deleted logs could not be removed from the checkpoints: %s", other.path, error
                )

    def _make(self, home: DataDirectory, wanted: WantedLog) -> PartitionLog | KafkaError:
        path = home.join(wanted.name)
        was_there = self._disk.exists(path)
        identity = {} if wanted.topic_id is None else {PARTITION_METADATA_FILE: partition_metadata(wanted.topic_id)}
        try:
            return PartitionLog.open(
                path,
                topic=wanted.topic,
                partition=wanted.partition,
                config=wanted.config,
                disk=self._disk,
                clock=self._clock,
                new_directory=NewDirectory(self._disk, path, identity, home.names),
            )
        except KafkaError as error:
            self._clear_away(home, wanted, was_there=was_there)
            return error.as_value()

    def _clear_away(self, home: DataDirectory, wanted: WantedLog, *, was_there: bool) -> None:
        """Remove the remains of a log that could not be created, because the next attempt may use another data
        directory.
        """
        path = home.join(wanted.name)
        try:
            if not was_there and self._disk.exists(path):
                self._disk.remove_tree(path)
        except OSError as error:
            logger.error("%s: could not be removed: %s", path, error)
            was_there = True
        if was_there:
            self.left.add(wanted.key)

    def _open_again(self, returning: ReturningLog) -> PartitionLog | KafkaError:
        """Reopen a log after its disk failed, without the records that were not synced: the page cache may show data
        that never reached the disk, and a later fsync would not report the loss (E26). Before the reopened log is used,
        the file with the topic id is therefore written again, and the log is synced.

        All records of a log that is, or was, compacted are discarded. The lost unsynced records may include tombstones
        of synced records (S56). Other replicas may already have compacted these tombstones away, because this in-sync
        replica had acknowledged them.

        If the name of the log's directory could not be synced, none of the log's records is certainly on the disk. The
        log is then created again, because a later fsync of the data directory does not prove that the name is on the
        disk.
        """
        wanted, recovery_point = returning.wanted, returning.recovery_point
        try:
            if returning.discarded_path:
                return self._make_anew(returning)
            topic_id = self._identity_of(returning)
            if topic_id not in (None, wanted.topic_id):
                return KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{returning.path} belongs to another topic")
            if returning.must_begin_anew:
                if not self._disk.exists(returning.path):  # perhaps the disk is not mounted
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), returning.path)
                # Remove the recovery point before the log is cut. If a fault or a kill interrupted the cut, the log
                # could end below its recovery point; such a log counts as damaged, and would never be opened again.
                returning.home.forget_recovery_point(wanted.key)
                recovery_point = min(recovery_point, returning.log_start_offset)
            log = PartitionLog.open(
                returning.path,
                topic=wanted.topic,
                partition=wanted.partition,
                config=wanted.config,
                disk=self._disk,
                clock=self._clock,
                recovery_point=recovery_point,
                log_start_offset=returning.log_start_offset,
                cleaner_checkpoint=returning.cleaner_checkpoint,
                high_watermark=returning.high_watermark,
            )
        except KafkaError as error:
            return error.as_value()
        except (OSError, PartitionMetadataCorrupt) as error:
            return _storage_error(wanted.name, error)
        log.state.checkpointed_start = 0  # assume that no log start is checkpointed, so that it is written again
        try:
            # Keep the log end at or above the log start, because a later startup removes all records of a log that ends
            # below its checkpointed log start.
            kept = log.log_start_offset if returning.must_begin_anew else log.recovery_point
            log.trimmer.truncate_to(max(kept, log.log_start_offset))
            self._identify([(wanted, log)])
            returning.home.names.sync()
        except (KafkaError, OSError) as error:
            log.abandon()
            return error.as_value() if isinstance(error, KafkaError) else _storage_error(wanted.name, error)
        return log

    def _make_anew(self, returning: ReturningLog) -> PartitionLog | KafkaError:
        """Replace the log with an empty one. Raises OSError.

        The directory is renamed before its files are removed. If it kept its name, and the process was killed in
        between, the next start would open the remaining segments as a log with a gap or with a later start.
        """
        self._discard(returning)
        made = self._make(returning.home, returning.wanted)
        if isinstance(made, PartitionLog) and made.flusher.new_directory is not None:
            try:
                made.flusher.new_directory.sync()
            except OSError:
                made.abandon()
                raise
        return made

    def _discard(self, returning: ReturningLog) -> None:
        """Rename the log's directory, sync the new name, and remove the directory. A directory that an earlier attempt
        has renamed is renamed again: if the sync of its name failed then, the next sync does not prove that its name is
        on the disk (E46). Raises OSError.
        """
        disk, discarded = self._disk, returning.discarded_path
        for path in (returning.renamed_path, returning.path):
            if path and disk.exists(path):
                disk.rename(path, discarded)
                self.renamed[returning.wanted.key] = discarded
                returning.home.names.sync()
                disk.remove_tree(discarded)

    def _identity_of(self, returning: ReturningLog) -> bytes | None:
        """Return the topic id of the log; None if the log has no topic id, or if the topic id was not synced. If the
        topic id of a log was not synced, no record of the log was synced either. Raises OSError,
        PartitionMetadataCorrupt.
        """
        try:
            return read_topic_id(self._disk, returning.path)
        except PartitionMetadataTorn:
            if returning.recovery_point > returning.log_start_offset:
                raise
            return None

    def _identify(self, logs: Sequence[tuple[WantedLog, PartitionLog]]) -> None:
        """Write the topic ids of these logs. Raises OSError."""
        topic_ids = {log.directory: wanted.topic_id for wanted, log in logs if wanted.topic_id is not None}
        write_topic_ids(self._disk, topic_ids)


class LogMove(NamedTuple):
    """The directory of a log that `LogMoves` renames, if the directory exists."""

    key: TopicPartition
    home: DataDirectory
    source: str
    target: str
    renamed_path: str = ""
    """The path to which a failed operation has renamed the directory; "" if no operation has. The directory is renamed
    again, because the sync of its name failed then (E46).
    """


class LogMoves:
    """Renames the directories of logs, so that the next startup does not open them."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.moves: list[LogMove] = []
        self.targets: dict[TopicPartition, str | KafkaError | None] = {}
        """After `run`: the new path of each log, None if the log had no directory, or the error."""
        self.renamed: dict[TopicPartition, str] = {}
        """After `run`: the new paths of the renamed directories, including those whose new name could not be synced."""

    def run(self) -> None:
        """Rename the directories. Errors are stored in `targets`, not raised."""
        changed: defaultdict[DataDirectory, list[TopicPartition]] = defaultdict(list)
        for key, home, source, target, renamed_path in self.moves:
            self.targets[key] = None
            try:
                found = next((path for path in (source, renamed_path) if path and self._disk.exists(path)), None)
                if found is not None:
                    self._disk.rename(found, target)
                    self.targets[key] = self.renamed[key] = target
                    changed[home].append(key)
            except OSError as error:
                self.targets[key] = _storage_error(f"{key[0]}-{key[1]}", error)
        for home, keys in changed.items():
            try:
                home.names.sync()
            except OSError as error:
                for key in keys:
                    self.targets[key] = _storage_error(f"{key[0]}-{key[1]}", error)


class LogRemoval:
    """Frees the disk space of deleted files and directories; freeing large files may take long."""

    def __init__(self, disk: Disk, files: Sequence[str], directories: Sequence[str]) -> None:
        self._disk = disk
        self._files = files
        self._directories = directories

    def run(self) -> int:
        """Free the disk space of the files and directories. Returns the number of removed files and directories."""
        removed = [self._try(self._disk.remove, path) for path in self._files]
        removed += [self._try(self._disk.remove_tree, path) for path in self._directories]
        return sum(removed)

    def _try(self, remove: Callable[[str], None], path: str) -> bool:
        try:
            remove(path)
        except OSError as error:
            logger.error("%s: the directory could not be freed, which is retried at the next start: %s", path, error)
            return False
        return True


def _storage_error(name: str, error: Exception) -> KafkaError:
    failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}: {error}")
    failure.__cause__ = error
    return failure
