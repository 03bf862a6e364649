"""Copies a log to another data directory of the same broker, and replaces the log by the copy (KIP-113).

The copy is a future log, `orders-0.2f0c...-future/`. The future log is written like the log of a follower: complete
batches are copied with their offsets and leader epochs. When the future log has nearly all records, the original log is
paused. `FutureLog.replace` then takes these steps in this order, so that a kill or a power cut at any point loses no
record:

1. Copy the last records, the leader epochs and the producer state, and sync these files.
2. Write the recovery point and the other offsets of the log into the checkpoints of the new data directory.
3. Write the file `complete` into the future log's directory: from this step on, the future log has every record of the
original.
4. Rename the original log's directory to `...-delete`, and sync the new name.
5. Rename the future log's directory to the original log's name, and sync the new name.
6. Remove the file `complete`, and open the replaced log.

If both the original and the future log exist at the next startup, `settle_future_logs` deletes the future log, because
the copy is not needed or not complete. If only a complete future log exists, the replacement was interrupted between
steps 4 and 5, and the startup takes steps 5 and 6. If only an incomplete future log exists, the startup renames it to a
stray log, because the copy may contain the only remaining records.

If a step before step 4 fails, or if a failed step 4 or 5 can be undone, the future log is deleted and the original log
stays in use. After any other failure the log is offline until the broker restarts.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from typing import Final

from oncelog_broker.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from oncelog_broker.log.directories.data_directory import (
    DELETE_DIRECTORY_SUFFIX,
    MAX_DIRECTORY_NAME,
    STRAY_DIRECTORY_SUFFIX,
    DataDirectory,
    marked_directory_name,
    parse_directory_name,
)
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.partition_metadata import PARTITION_METADATA_FILE, partition_metadata
from oncelog_broker.log.leader_epochs import LEADER_EPOCH_FILE, EpochEntry, LeaderEpochs
from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.producers.snapshot import ProducerSnapshots
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import SMALL_READ_SIZE, Disk
from oncelog_broker.runtime.entropy import Entropy, random_uuid
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.records.batch import (
    BATCH_LENGTH,
    BATCH_LENGTH_AT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    CorruptBatch,
    batches,
    whole_batches_size,
)

logger = logging.getLogger(__name__)

FUTURE_DIRECTORY_SUFFIX: Final = "-future"
MAX_BATCH_BYTES: Final = 2**31 - 1
COMPLETE_FILE: Final = "complete"
"""Name of a file that marks a future log as complete: the future log has every record of the original log."""
_FUTURE_DIRECTORY = re.compile(r"(?P<name>[a-zA-Z0-9._-]+-[0-9]+)\.[0-9a-f]{32}-future")


class CopyOutdated(Exception):
    """The copy cannot be continued, because records of the original log were truncated or its segments were
    replaced.
    """


class MoveFailed(KafkaError):
    """The log could not be replaced by its copy. `is_log_usable` says whether the original log stays in use in its old
    directory.
    """

    def __init__(self, error: Exception, *, is_log_usable: bool) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        self.__cause__ = error
        self.is_log_usable = is_log_usable


class SegmentPart(NamedTuple):
    """A range of bytes in a segment that must be copied: from position `start`, where a batch begins, to position
    `end`.
    """

    path: str
    start: int
    end: int


class LastState(NamedTuple):
    """The state of a paused log that must be copied in addition to its records."""

    directory: str
    end: int
    log_start_offset: int
    high_watermark: int
    cleaner_checkpoint: int | None
    epochs: Sequence[EpochEntry]
    producers: Sequence[bytes]
    """The entries of a producer snapshot."""


def future_directory_name(key: TopicPartition, unique: str) -> str | None:
    """Return Kafka's name for the directory of a future log; None if the directory name would be too long because of
    the topic's name.
    """
    name = f"{key[0]}-{key[1]}.{unique}{FUTURE_DIRECTORY_SUFFIX}"
    return None if len(name) > MAX_DIRECTORY_NAME else name


class FutureLog:
    """A future log, created by `make`. The methods run in worker threads, and only one method may run at any time."""

    def __init__(
        self, disk: Disk, clock: Clock, home: DataDirectory, wanted: WantedLog, log: PartitionLog, entropy: Entropy
    ) -> None:
        """Internal: use `make`."""
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self.home = home
        self.wanted = wanted
        self.log = log
        self.deleted_path: str | None = None
        """After `replace`: the path of the original log's directory, which waits for deletion."""

    @classmethod
    def make(
        cls, disk: Disk, clock: Clock, home: DataDirectory, wanted: WantedLog, start_offset: int, entropy: Entropy
    ) -> FutureLog:
        """Create an empty future log that begins at `start_offset`. Raises KafkaError KAFKA_STORAGE_ERROR."""
        name = future_directory_name(wanted.key, random_uuid(entropy).hex())
        assert name is not None, "the caller has checked the length of the name"
        path = home.join(name)
        files = {} if wanted.topic_id is None else {PARTITION_METADATA_FILE: partition_metadata(wanted.topic_id)}
        log = PartitionLog.open(
            path,
            topic=wanted.topic,
            partition=wanted.partition,
            config=wanted.config,
            disk=disk,
            clock=clock,
            recovery_point=start_offset,
            log_start_offset=start_offset,
            new_directory=NewDirectory(disk, path, files, home.names),
        )
        return cls(disk, clock, home, wanted, log, entropy)

    @property
    def path(self) -> str:
        return self.log.directory

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def adopt_producers(self, log_directory: str, offset: int) -> None:
        """Load the producer state of the original log at `offset`, the start of the copy, if the log has a producer
        snapshot for that offset. Raises OSError.
        """
        found = ProducerSnapshots(self._disk, log_directory).read_at(offset)
        if found is not None:
            self.log.producers.state.restore(found)

    def copy(self, part: SegmentPart) -> int:
        """Append those batches of a byte range that the future log does not have yet. Returns the position in the
        segment after the last batch read. Raises CopyOutdated, and KafkaError if the future log cannot be written.
        """
        try:
            data, position = self._read(part)
            end = self.log.log_end_offset
            skipped = 0
            for batch in batches(data):
                if batch.last_offset >= end:
                    break
                skipped += batch.size
        except (OSError, CorruptBatch) as error:
            raise CopyOutdated(str(error)) from error
        if skipped < len(data):
            self.log.append_as_follower(memoryview(data)[skipped:])
        return position

    def _read(self, part: SegmentPart) -> tuple[bytes, int]:
        """Read at least one complete batch. Returns the bytes of the batches, and the position after the last batch."""
        file = self._disk.open_briefly(part.path)
        try:
            size = min(part.end - part.start, SMALL_READ_SIZE)
            data = bytes(file.read(part.start, size))
            whole = whole_batches_size(data)
            if whole == 0 and len(data) >= HEADER_SIZE:  # the first batch is larger than SMALL_READ_SIZE
                data = bytes(file.read(part.start, parse_size(data)))
                whole = whole_batches_size(data)
        finally:
            file.close()
        if whole == 0:
            raise CorruptBatch(f"no batch at byte {part.start} of {part.path}")
        return data[:whole], part.start + whole

    def drop(self) -> None:
        """Delete the future log. Raises OSError if a power cut could restore the directory of the future log."""
        self.log.abandon()
        if self._disk.exists(self.path):
            target = self.home.join(_marked_name(self.wanted.key, self._entropy, DELETE_DIRECTORY_SUFFIX))
            self._disk.rename(self.path, target)
            self.home.names.sync()
            self._disk.remove_tree(target)

    def replace(self, parts: Sequence[SegmentPart], last: LastState) -> PartitionLog:
        """Replace the paused original log by the future log; returns the opened log. `parts` are the byte ranges that
        are not copied yet. Raises MoveFailed.
        """
        try:
            self._complete(parts, last)
            self._write_checkpoints(last)
            self._disk.replace_file(os.path.join(self.path, COMPLETE_FILE), b"")
        except (OSError, KafkaError, CopyOutdated, CorruptBatch) as error:
            raise self._given_up(error) from error
        name, old = self.wanted.name, last.directory
        deleted = os.path.join(
            os.path.dirname(old), _marked_name(self.wanted.key, self._entropy, DELETE_DIRECTORY_SUFFIX)
        )
        try:
            self._disk.rename(old, deleted)
            self._disk.sync_directory(os.path.dirname(old))
            self._disk.rename(self.path, self.home.join(name))
            self.home.names.sync()
        except OSError as error:
            raise self._undone(error, old, deleted) from error
        self.deleted_path = deleted
        try:
            self._disk.remove(self.home.join(os.path.join(name, COMPLETE_FILE)))
            return PartitionLog.open(
                self.home.join(name),
                topic=self.wanted.topic,
                partition=self.wanted.partition,
                config=self.wanted.config,
                disk=self._disk,
                clock=self._clock,
                recovery_point=last.end,
                log_start_offset=last.log_start_offset,
                clean_shutdown=True,
                cleaner_checkpoint=last.cleaner_checkpoint,
                high_watermark=last.high_watermark,
            )
        except (OSError, KafkaError) as error:
            raise MoveFailed(error, is_log_usable=False) from error

    def _complete(self, parts: Sequence[SegmentPart], last: LastState) -> None:
        """Copy the last records and the state of the original log, and sync the files of the future log."""
        for part in parts:
            position = part.start
            while position < part.end:
                position = self.copy(part._replace(start=position))
        if self.log.log_end_offset < last.end:  # the last records were removed by compaction or retention
            self.log.local.roll(last.end)
        if self.log.log_end_offset != last.end:
            raise CopyOutdated(f"the copy ends at {self.log.log_end_offset}, the log at {last.end}")
        self.log.close()
        LeaderEpochs(self._disk, os.path.join(self.path, LEADER_EPOCH_FILE), list(last.epochs)).flush()
        ProducerSnapshots(self._disk, self.path).take(last.end, last.producers).write()
        self._disk.sync_directory(self.path)

    def _write_checkpoints(self, last: LastState) -> None:
        offsets = {
            RECOVERY_POINT_CHECKPOINT: last.end,
            LOG_START_OFFSET_CHECKPOINT: last.log_start_offset,
            HIGH_WATERMARK_CHECKPOINT: last.high_watermark,
        }
        if last.cleaner_checkpoint is not None:
            offsets[CLEANER_OFFSET_CHECKPOINT] = last.cleaner_checkpoint
        for name, offset in offsets.items():
            self.home.note_arrival(name, self.wanted.key, offset)

    def _given_up(self, error: Exception) -> MoveFailed:
        """Delete the future log after a failure; the original log has not been changed."""
        try:
            self.drop()
        except OSError:
            # If the disk of the original log were lost, the next startup would use a copy that is marked complete as
            # the log.
            is_complete = self._disk.exists(os.path.join(self.path, COMPLETE_FILE))
            return MoveFailed(error, is_log_usable=not is_complete)
        return MoveFailed(error, is_log_usable=True)

    def _undone(self, error: OSError, old: str, deleted: str) -> MoveFailed:
        """Rename the original log's directory back to its name, after a rename or the sync of a rename failed."""
        try:
            if self._disk.exists(self.home.join(self.wanted.name)):
                self._disk.rename(self.home.join(self.wanted.name), self.path)
            if not self._disk.exists(old):
                self._disk.rename(deleted, old)
            self._disk.sync_directory(os.path.dirname(old))
            self.drop()
        except OSError as second:
            logger.error("%s: the move could not be undone: %s", old, second)
            return MoveFailed(error, is_log_usable=False)
        return MoveFailed(error, is_log_usable=True)


def parse_size(data: bytes) -> int:
    """Return the size of the batch whose header is at the start of `data`, at most MAX_BATCH_BYTES."""
    length: int = BATCH_LENGTH.unpack_from(data, BATCH_LENGTH_AT)[0]
    return min(max(length, 0) + LOG_OVERHEAD, MAX_BATCH_BYTES)


def _marked_name(key: TopicPartition, entropy: Entropy, suffix: str) -> str:
    return marked_directory_name(key[0], key[1], random_uuid(entropy).hex(), suffix)


def settle_future_logs(disk: Disk, directories: Sequence[DataDirectory], entropy: Entropy) -> None:
    """Handle the future logs that an earlier process has left: delete the log, complete the replacement, or rename the
    log to a stray log. Raises OSError.
    """
    names = {directory: disk.list_directory(directory.path) for directory in directories}
    logs = {name for found in names.values() for name in found if parse_directory_name(name) is not None}
    for directory, found in names.items():
        changed = False
        for name in found:
            match = _FUTURE_DIRECTORY.fullmatch(name)
            key = None if match is None else parse_directory_name(match["name"])
            if match is None or key is None:
                continue
            path, changed = directory.join(name), True
            if match["name"] in logs:
                target = directory.join(_marked_name(key, entropy, DELETE_DIRECTORY_SUFFIX))
                disk.rename(path, target)
                logger.warning("%s: this copy of a log is not used: ask again for the move", path)
            elif disk.exists(os.path.join(path, COMPLETE_FILE)):
                disk.rename(path, directory.join(match["name"]))
                directory.names.sync()  # a future log that gets its old name back must still be marked as complete
                disk.remove(directory.join(os.path.join(match["name"], COMPLETE_FILE)))
                logs.add(match["name"])
                logger.info("%s: this copy is complete and replaces the log", path)
            else:
                target = directory.join(_marked_name(key, entropy, STRAY_DIRECTORY_SUFFIX))
                disk.rename(path, target)
                logger.warning("%s: the log of this incomplete copy is missing; set aside as %s", path, target)
        if changed:
            directory.names.sync()
