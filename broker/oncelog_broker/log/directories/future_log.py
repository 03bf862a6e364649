"""Copies a log to another data directory of the same broker, and replaces the log by the copy (KIP-113).

The copy is a future log, `orders-0.2f0c...-future/`. The future log is written like the log of a follower: whole
batches, with their offsets and leader epochs. When the future log has nearly all records, the log is paused, and
`FutureLog.replace` does the rest in this order, so that a kill or a power cut at any point loses no record:

1. Copy the last records, the leader epochs and the state of the producers; sync everything.
2. Write the log's offsets into the checkpoints of the new data directory.
3. Write the file `complete` into the future log's directory: from now on the future log is as good as the log.
4. Rename the log's directory to `...-delete`, and sync that name.
5. Rename the future log's directory to the log's name, and sync that name.
6. Remove the file `complete`, and open the log.

The next start (`settle_future_logs`) deletes a future log whose log is still there: the copy is then not needed, or not
complete. A complete future log without a log was interrupted between 4 and 5, and gets the log's name. An incomplete
future log without a log is set aside as a stray log: its log is missing, and the copy may be all that is left of it.

After a failure before step 4, and after one of step 5 that could be undone, the future log is deleted, and the log goes
on. Otherwise the log is offline until the broker restarts.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

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
"""The file in the directory of a future log that has every record of the log."""
_FUTURE_DIRECTORY = re.compile(r"(?P<name>[a-zA-Z0-9._-]+-[0-9]+)\.[0-9a-f]{32}-future")


class CopyOutdated(Exception):
    """The log has changed so that the copy cannot be continued, because records were truncated or segments replaced."""


class MoveFailed(KafkaError):
    """The log could not be replaced. `is_log_usable` says whether the log goes on in its old directory."""

    def __init__(self, error: Exception, *, is_log_usable: bool) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        self.__cause__ = error
        self.is_log_usable = is_log_usable


class SegmentPart(NamedTuple):
    """Bytes of a segment that are to be copied: from `start`, the position of a batch, to `end`."""

    path: str
    start: int
    end: int


class LastState(NamedTuple):
    """The state of a paused log that is not in its records."""

    directory: str
    end: int
    log_start_offset: int
    high_watermark: int
    cleaner_checkpoint: int | None
    epochs: Sequence[EpochEntry]
    producers: Sequence[bytes]
    """The entries of a producer snapshot."""


def future_directory_name(key: TopicPartition, unique: str) -> str | None:
    """Return Kafka's name for the directory of a future log; None if the topic's name is too long for it."""
    name = f"{key[0]}-{key[1]}.{unique}{FUTURE_DIRECTORY_SUFFIX}"
    return None if len(name) > MAX_DIRECTORY_NAME else name


class FutureLog:
    """A future log, created by `make`. A worker thread calls its methods, one at a time."""

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
        """After `replace`: the path of the directory that the log had before."""

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
        """Begin with the producers that the log had at `offset`, the start of the copy, if the log has a snapshot
        there. Raises OSError.
        """
        found = ProducerSnapshots(self._disk, log_directory).read_at(offset)
        if found is not None:
            self.log.producers.state.restore(found)

    def copy(self, part: SegmentPart) -> int:
        """Append the batches of a part that the future log does not have yet; returns the position after the last
        batch read. Raises CopyOutdated, and KafkaError if the future log cannot be written.
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
        """Read whole batches, at least one. Returns the bytes and the position after them."""
        file = self._disk.open_briefly(part.path)
        try:
            size = min(part.end - part.start, SMALL_READ_SIZE)
            data = bytes(file.read(part.start, size))
            whole = whole_batches_size(data)
            if whole == 0 and len(data) >= HEADER_SIZE:  # a batch that is larger than a read
                data = bytes(file.read(part.start, parse_size(data)))
                whole = whole_batches_size(data)
        finally:
            file.close()
        if whole == 0:
            raise CorruptBatch(f"no batch at byte {part.start} of {part.path}")
        return data[:whole], part.start + whole

    def drop(self) -> None:
        """Delete the future log. Raises OSError if its directory may come back."""
        self.log.abandon()
        if self._disk.exists(self.path):
            target = self.home.join(_marked_name(self.wanted.key, self._entropy, DELETE_DIRECTORY_SUFFIX))
            self._disk.rename(self.path, target)
            self.home.names.sync()
            self._disk.remove_tree(target)

    def replace(self, parts: Sequence[SegmentPart], last: LastState) -> PartitionLog:
        """Replace the log, which is paused, by the future log; returns the opened log. `parts` has the records that are
        still to be copied. Raises MoveFailed.
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
        """Copy the last records and the state of the log, and sync everything."""
        for part in parts:
            position = part.start
            while position < part.end:
                position = self.copy(part._replace(start=position))
        if self.log.log_end_offset < last.end:  # compaction or retention has removed the records before the end
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
        """Delete the future log before the log was touched."""
        try:
            self.drop()
        except OSError:
            # After a loss of the other disk, the next start would take a complete copy for the log.
            is_complete = self._disk.exists(os.path.join(self.path, COMPLETE_FILE))
            return MoveFailed(error, is_log_usable=not is_complete)
        return MoveFailed(error, is_log_usable=True)

    def _undone(self, error: OSError, old: str, deleted: str) -> MoveFailed:
        """Give the log its name again after a rename or its sync failed."""
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
    """Delete, complete or set aside the future logs that an earlier process has left. Raises OSError."""
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
                disk.remove(directory.join(os.path.join(match["name"], COMPLETE_FILE)))
                logs.add(match["name"])
                logger.info("%s: this copy is complete and replaces the log", path)
            else:
                target = directory.join(_marked_name(key, entropy, STRAY_DIRECTORY_SUFFIX))
                disk.rename(path, target)
                logger.warning("%s: the log of this incomplete copy is missing; set aside as %s", path, target)
        if changed:
            directory.names.sync()
