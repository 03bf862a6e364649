"""Opens the logs of one data directory when a broker starts: unchanged and grown logs from their saved states
(`closed_logs`), all other logs from their files, with recovery.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping

from oncelog_broker.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from oncelog_broker.log.closed_log import Growth
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.closed_logs import Entry, read_closed_logs
from oncelog_broker.log.directories.data_directory import (
    STRAY_DIRECTORY_SUFFIX,
    DataDirectory,
    marked_directory_name,
    parse_directory_name,
)
from oncelog_broker.log.directories.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadataCorrupt,
    PartitionMetadataTorn,
    read_topic_id,
)
from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.descriptors import descriptor_limit, is_descriptor_limit
from oncelog_broker.runtime.disk import Disk
from oncelog_broker.runtime.entropy import Entropy, random_uuid
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    """A log that a start has found."""

    key: TopicPartition
    topic_id: bytes | None
    log: PartitionLog | None
    failure: str
    """The reason why the log could not be opened; empty if `log` is not None."""


class LogLoader:
    """Opens the logs of one data directory. Methods raise OSError."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        home: DataDirectory,
        config_of: Callable[[str], LogConfig],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._home = home
        self._config_of = config_of
        self._configs: dict[str, LogConfig] = {}
        self._recovery_points = home.read_checkpoint(RECOVERY_POINT_CHECKPOINT)
        self._start_offsets = home.read_checkpoint(LOG_START_OFFSET_CHECKPOINT)
        self._cleaner_offsets = home.read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
        self.high_watermarks: Mapping[TopicPartition, int] = home.read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
        self._saved: dict[TopicPartition, tuple[Entry, Growth | None]] = {}
        """The logs that are opened from their saved states, with the records that were appended since."""
        self.found: list[TopicPartition] = []
        """The partitions with a log in the directory, after `find`."""
        self.deleted: list[str] = []
        """The paths of deleted logs that are not freed yet, after `find`."""
        self.cut: list[str] = []
        """The paths of the logs that may lack records they had before, after `load`: recovery has removed an incomplete
        or damaged end, or the log was set aside because its topic is unknown. The path of the data directory stands for
        logs that earlier starts have cut.
        """

    def find(self) -> None:
        """Find the logs in the directory, and decide which of them are unchanged since they were closed."""
        home = self._home
        if home.has_cut_log:
            self.cut.append(home.path)
        closed: Mapping[str, Entry] = {}
        if home.file_system is not None:
            closed = read_closed_logs(self._disk, home.path, home.directory_id)
        for name in self._disk.list_directory(home.path):
            entry = closed.get(name)
            if entry is None or not self._find_saved(name, entry):
                home.classify(name, self.found, self.deleted)

    def _find_saved(self, name: str, entry: Entry) -> bool:
        """Whether the log may be opened from its saved state; see `closed_logs` for the rules. If so, add the log to
        `found`.
        """
        key, end = (entry.topic, entry.partition), entry.closed.log_end_offset
        start = max(self._start_offsets.get(key, 0), entry.closed.segments[0].base_offset)
        if (
            self._recovery_points.get(key) != end
            or self.high_watermarks.get(key, 0) < end
            or start != entry.closed.log_start_offset
            or parse_directory_name(name) != key
        ):
            return False
        path, growth = self._home.join(name), None
        try:
            if not entry.is_unchanged(self._disk, path):
                # If `end` is 0, a recovery must find out whether the names of the files are synced.
                growth = None if self._home.clean_shutdown or not end else entry.growth(self._disk, path)
                if growth is None:
                    return False
        except OSError:
            return False  # the log is opened from its files, which reports the error
        self._saved[key] = entry, growth
        self.found.append(key)
        return True

    def load(self) -> Iterator[LoadedLog]:
        """Open the logs that `find` has found."""
        for key in self.found:
            saved = self._saved.get(key)
            if saved is not None:
                yield LoadedLog(key, saved[0].topic_id, self._reopen(*saved), "")
            else:
                loaded = self._open(key)
                if loaded is not None:
                    yield loaded

    def _config(self, topic: str) -> LogConfig:
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = self._config_of(topic)
        return config

    def _reopen(self, entry: Entry, growth: Growth | None) -> PartitionLog:
        key = entry.topic, entry.partition
        return PartitionLog.reopen(
            self._home.join(f"{entry.topic}-{entry.partition}"),
            topic=entry.topic,
            partition=entry.partition,
            config=self._config(entry.topic),
            disk=self._disk,
            clock=self._clock,
            closed=entry.closed,
            growth=growth,
            checkpointed_start=self._start_offsets.get(key, 0),
            cleaner_checkpoint=self._cleaner_offsets.get(key),
        )

    def _open(self, key: TopicPartition) -> LoadedLog | None:
        """Open a log from its files. Returns None if the topic id of a log with records was not synced; the directory
        is then renamed.
        """
        home, (topic, partition) = self._home, key
        path = home.join(f"{topic}-{partition}")
        topic_id = None
        try:
            was_identified, topic_id = self._identity_of(key)
            log = PartitionLog.open(
                path,
                topic=topic,
                partition=partition,
                config=self._config(topic),
                disk=self._disk,
                clock=self._clock,
                recovery_point=self._recovery_points.get(key, 0),
                log_start_offset=self._start_offsets.get(key, 0),
                clean_shutdown=home.clean_shutdown,
                cleaner_checkpoint=self._cleaner_offsets.get(key),
                high_watermark=self.high_watermarks.get(key, 0),
            )
            if log.was_cut:
                self.cut.append(path)
            if not was_identified and log.log_end_offset > 0:
                self._set_aside_unsynced(key, log)
                return None
            if not home.clean_shutdown and home.noted_offset(key) == 0:
                identity = () if topic_id is None else (PARTITION_METADATA_FILE,)
                log.flusher.new_directory = NewDirectory.found(self._disk, path, identity, home.names)
        except (KafkaError, OSError, PartitionMetadataCorrupt) as error:
            if is_descriptor_limit(error) or is_descriptor_limit(error.__cause__):
                message = f"{path} cannot be opened: the limit of open files, {descriptor_limit()}, is too low"
                raise OSError(errno.EMFILE, f"{message} for {len(self.found)} logs: raise it (ulimit -n)") from error
            logger.error("%s: offline: %s", path, error)
            return LoadedLog(key, topic_id, None, f"{path}: {error}")
        return LoadedLog(key, topic_id, log, "")

    def _identity_of(self, key: TopicPartition) -> tuple[bool, bytes | None]:
        """Return (whether the file with the topic id is complete, the topic id). Raises OSError,
        PartitionMetadataCorrupt.
        """
        try:
            return True, read_topic_id(self._disk, self._home.join(f"{key[0]}-{key[1]}"))
        except PartitionMetadataTorn:
            if self._home.noted_offset(key) > 0:
                raise  # the log was synced, so its incomplete topic id file was damaged later
            return False, None

    def _set_aside_unsynced(self, key: TopicPartition, log: PartitionLog) -> None:
        """Rename the directory of a log if a power cut destroyed its unsynced topic id. The topic of the log's records
        is then unknown, and the records were not synced either.
        """
        log.abandon()
        self.cut.append(log.directory)
        target = marked_directory_name(*key, random_uuid(self._entropy).hex(), STRAY_DIRECTORY_SUFFIX)
        self._disk.rename(log.directory, self._home.join(target))
        self._disk.sync_directory(self._home.path)
        logger.warning(
            "%s: topic id file was not synced, owner unknown; directory renamed to %s", log.directory, target
        )
