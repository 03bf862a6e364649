"""Logs that are being made, moved out of the way, or freed: the part that waits for the disk.

`LogManager` begins and finishes such a change, in its own thread; `run` comes between and may be in any other, since it
touches nothing that anybody else looks at. Many logs are changed at a time: a data directory is synced once for all.

A log that is made waits for the disk only if something of it was there already: see `new_directory`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

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

logger = logging.getLogger(__name__)


class WantedLog(NamedTuple):
    """A log that is to be there, and the settings that a new one begins with."""

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
    """A log whose disk failed, and what was known of it then: offsets."""

    wanted: WantedLog
    home: DataDirectory
    recovery_point: int
    log_start_offset: int
    cleaner_checkpoint: int | None
    is_name_lost: bool = False
    """Whether the directory's name could not be synced: then nothing in it was, and it is made anew."""

    @property
    def path(self) -> str:
        return self.home.join(self.wanted.name)

    @property
    def must_begin_anew(self) -> bool:
        """Whether all of it is given up: it is compacted, or was."""
        return self.wanted.config.is_compacted or self.cleaner_checkpoint is not None


class LogOpening:
    """Creates logs, gives logs their missing topic ids, and opens logs again after a fault of their disk."""

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
        """The log, or the error, of each partition. Before `run`: only partitions for which nothing has to be done."""
        self.left: set[TopicPartition] = set()
        """After `run`: partitions whose log could not be created, but whose directory exists."""

    def run(self) -> None:
        """Create and open the logs. Errors are stored in `results`, not raised."""
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
        """Remove the offsets that earlier logs of these names left in the checkpoints of all directories.

        Otherwise, if a new log is lost before it is on disk, the next start would report its records as lost.

        Errors of other directories, whose disks may have failed, are logged. Raises OSError for `home`.
        """
        home.drop_from_checkpoints(keys)
        for other in self._directories:
            try:
                if any(other.noted_offset(key) for key in keys):  # else its disk, which may hang, is left alone
                    other.drop_from_checkpoints(keys)
            except OSError as error:
                logger.error("%s: its checkpoints speak of logs that are not there any more: %s", other.path, error)

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
        """Leave nothing of a log that could not be made, as the next attempt may be made in another data directory."""
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
        """What was not synced when the disk failed is given up: the page cache may show what never got to the disk, and
        a later fsync would not tell (E26). So its identity is written again, and the log synced before it is used.

        Of a log that is compacted, or was, all is given up: what was not synced may be what takes back records that
        were (S56), and the others may have compacted it away since, as this replica had it when it was in sync.

        Where the name of its directory could not be synced, nothing of it is known to be on the disk: it is made anew,
        as a later fsync of the data directory would prove nothing of that name."""
        wanted, recovery_point = returning.wanted, returning.recovery_point
        try:
            if returning.is_name_lost:
                return self._make_anew(returning)
            topic_id = self._identity_of(returning)
            if topic_id not in (None, wanted.topic_id):
                return KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{returning.path} belongs to another topic")
            if returning.must_begin_anew:
                # Before anything is cut: if that ends halfway, by another fault or a kill, a log that ends below its
                # recovery point counts as damaged, and would never be opened again.
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
            )
        except KafkaError as error:
            return error.as_value()
        except (OSError, PartitionMetadataCorrupt) as error:
            return _storage_error(wanted.name, error)
        log.state.checkpointed_start = 0  # what of its start was on the disk is not known here: it is noted again
        try:
            # Nor does it begin before its start again: by what is checkpointed, a later start would empty it.
            kept = log.log_start_offset if returning.must_begin_anew else log.recovery_point
            log.trimmer.truncate_to(max(kept, log.log_start_offset))
            self._identify([(wanted, log)])
            returning.home.names.sync()
        except (KafkaError, OSError) as error:
            log.abandon()
            return error.as_value() if isinstance(error, KafkaError) else _storage_error(wanted.name, error)
        return log

    def _make_anew(self, returning: ReturningLog) -> PartitionLog | KafkaError:
        """Raises OSError."""
        if self._disk.exists(returning.path):
            self._disk.remove_tree(returning.path)
        made = self._make(returning.home, returning.wanted)
        if isinstance(made, PartitionLog) and made.flusher.new_directory is not None:
            try:
                made.flusher.new_directory.sync()
            except OSError:
                made.abandon()
                raise
        return made

    def _identity_of(self, returning: ReturningLog) -> bytes | None:
        """None where there is none, or none that was ever synced: nor was a record, then. OSError,
        PartitionMetadataCorrupt."""
        try:
            return read_topic_id(self._disk, returning.path)
        except PartitionMetadataTorn:
            if returning.recovery_point > returning.log_start_offset:
                raise
            return None

    def _identify(self, logs: Sequence[tuple[WantedLog, PartitionLog]]) -> None:
        """Raises OSError."""
        topic_ids = {log.directory: wanted.topic_id for wanted, log in logs if wanted.topic_id is not None}
        write_topic_ids(self._disk, topic_ids)


class LogMove(NamedTuple):
    """A directory that gets another name, if it is there."""

    key: TopicPartition
    home: DataDirectory
    source: str
    target: str


class LogMoves:
    """Logs whose directories are to get names under which nobody finds them."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.moves: list[LogMove] = []
        self.targets: dict[TopicPartition, str | KafkaError | None] = {}
        """After `run`: where each log is now, None if it had no directory."""

    def run(self) -> None:
        """What fails is in the targets."""
        changed: defaultdict[DataDirectory, list[TopicPartition]] = defaultdict(list)
        for key, home, source, target in self.moves:
            self.targets[key] = None
            try:
                if self._disk.exists(source):
                    self._disk.rename(source, target)
                    self.targets[key] = target
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
    """Files and directories to be freed: of a large file, the file system takes its time."""

    def __init__(self, disk: Disk, files: Sequence[str], directories: Sequence[str]) -> None:
        self._disk = disk
        self._files = files
        self._directories = directories

    def run(self) -> int:
        """How many went."""
        removed = [self._try(self._disk.remove, path) for path in self._files]
        removed += [self._try(self._disk.remove_tree, path) for path in self._directories]
        return sum(removed)

    def _try(self, remove: Callable[[str], None], path: str) -> bool:
        try:
            remove(path)
        except OSError as error:
            logger.error("%s: could not be freed, tried again at the next start: %s", path, error)
            return False
        return True


def _storage_error(name: str, error: Exception) -> KafkaError:
    failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}: {error}")
    failure.__cause__ = error
    return failure
