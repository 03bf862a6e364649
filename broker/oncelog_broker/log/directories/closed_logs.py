"""`oncelog.closed-logs`: the states of the logs that an orderly stop has closed, so that the next start opens an
unchanged log without reading its files, whatever has happened to the other logs.

A start does not trust the file. A state counts only if all of this is true:

- The checksum is correct, and the file was written in this data directory, for this directory id.
- The log's directory and each of its log files have the stamps (`runtime.disk.FileStamp`) that they had when the log
  was closed. A copy of the directory, a restored backup, a deleted and re-created log, an append, a roll, a truncation,
  a new snapshot or leader epoch, and Apache Kafka's use of the directory change at least one stamp. A power cut may
  undo changes; then the log again is as it was when it was closed, and all of it was synced at that time.
- The recovery point in the checkpoint is the log end, the log start is the same, and the high watermark is not below
  the log end. If an offset differs, the checkpoints were edited or come from another time, or recovery must read the
  records.

A log that the killed process has only appended to is opened from its state and the records behind the state's end
(`log_growth`), if it has also kept the stamps of `partition.metadata`, of its closed segments and of the indexes of the
active segment, and the inode of the active log file. A re-created topic has another `partition.metadata`. Compaction
changes closed segments. A truncation below the state's end lowers the recovery point in the checkpoint first; if the
log grows again up to the old end, its leader epochs differ from those of the state.

All other logs are opened from their files (`log_loader`). The file therefore stays valid after a kill, and an old file
is harmless. On file systems without reliable stamps
(`Disk.watch_file_system`) the file is neither written nor used.

The first line has the format version and the CRC-32C of the rest, which is JSON: the directory id, and for each log's
directory name the fields of `Entry`.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from oncelog_broker.log.closed_log import ClosedLog, ClosedSegment, Growth
from oncelog_broker.log.directories.log_growth import MAX_GROWTH, read_growth
from oncelog_broker.log.directories.partition_metadata import PARTITION_METADATA_FILE
from oncelog_broker.log.leader_epochs import EpochEntry
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.segments.recovery import UNFINISHED_SUFFIXES
from oncelog_broker.log.segments.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_prefix
from oncelog_broker.runtime.disk import Disk, FileStamp
from oncelog_protocol.crc import crc32c
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)

CLOSED_LOGS_FILE: Final = "oncelog.closed-logs"
VERSION: Final = 2
MAX_ALL_SEGMENTS: Final = 100_000
"""Limit on the segments of all logs in the file, some 70 bytes each; further logs have no state. Reading this number of
segments takes less than half a second.
"""
NO_FILE: Final = FileStamp(0, 0, 0)
"""Stands for the stamp of a log file that does not exist, because the log has no records."""


class Entry(NamedTuple):
    """The state of one closed log, with the stamps of its files."""

    topic: str
    partition: int
    topic_id: bytes | None
    directory: FileStamp
    files: tuple[FileStamp, ...]
    """The stamps of the log files, by segment."""
    side_files: Sequence[Sequence[int]]
    """The stamps of the files that `_side_files` names, which an append does not change; empty if a file is missing."""
    closed: ClosedLog

    def is_unchanged(self, disk: Disk, path: str) -> bool:
        """Whether the log in the directory `path` has the same files as when it was closed. Raises OSError."""
        if disk.stamp(path) != self.directory:
            return False
        for segment, stamp in zip(self.closed.segments, self.files, strict=True):
            if segment.is_made and disk.stamp(_log_file(path, segment.base_offset)) != stamp:
                return False
        return True

    def growth(self, disk: Disk, path: str) -> Growth | None:
        """Return what was appended to the log in the directory `path` since it was closed; None if more may have
        changed, or if only recovery can decide. Raises OSError.
        """
        *closed_segments, active = self.closed.segments
        *closed_files, active_file = self.files
        now = disk.stamp(_log_file(path, active.base_offset)) if active.is_made else NO_FILE
        if now.inode != active_file.inode or not active_file.size <= now.size <= active_file.size + MAX_GROWTH:
            return None
        if not self.side_files or [list(disk.stamp(each)) for each in _side_files(path, active)] != self.side_files:
            return None
        for segment, stamp in zip(closed_segments, closed_files, strict=True):
            if disk.stamp(_log_file(path, segment.base_offset)) != stamp:
                return None
        return read_growth(disk, path, self.closed, now.size)


def write_closed_logs(
    disk: Disk, directory: str, directory_id: str, logs: Iterable[tuple[PartitionLog, bytes | None]]
) -> None:
    """Write the states of the logs in a data directory, after they were closed; `logs` also has the topic ids. A log
    has no state if a file of unfinished work is in its directory, because only recovery removes such a file. Raises
    OSError.
    """
    entries: dict[str, list[Any]] = {}
    segments = 0
    for log, topic_id in logs:
        closed = log.closed_log()
        if closed is None or segments + len(closed.segments) > MAX_ALL_SEGMENTS:
            continue
        if any(name.endswith(UNFINISHED_SUFFIXES) for name in disk.list_directory(log.directory)):
            continue
        segments += len(closed.segments)
        entries[log.name] = _fields(disk, log, topic_id, closed)
    body = json.dumps({"directory_id": directory_id, "logs": entries}, separators=(",", ":")).encode()
    disk.replace_file(os.path.join(directory, CLOSED_LOGS_FILE), b"%d %08x\n" % (VERSION, crc32c(body)) + body)


def _fields(disk: Disk, log: PartitionLog, topic_id: bytes | None, closed: ClosedLog) -> list[Any]:
    files = [
        disk.stamp(_log_file(log.directory, segment.base_offset)) if segment.is_made else NO_FILE
        for segment in closed.segments
    ]
    side_files: list[FileStamp] = []
    if topic_id is not None and closed.segments[-1].is_made:
        with suppress(FileNotFoundError):
            side_files = [disk.stamp(each) for each in _side_files(log.directory, closed.segments[-1])]
    return [
        log.topic,
        log.partition,
        None if topic_id is None else topic_id.hex(),
        disk.stamp(log.directory),
        files,
        side_files,
        [
            closed.log_start_offset,
            closed.log_end_offset,
            closed.segments,
            closed.epochs,
            [base64.b64encode(entry).decode() for entry in closed.producers],
        ],
    ]


def read_closed_logs(disk: Disk, directory: str, directory_id: str | None) -> Mapping[str, Entry]:
    """Return the entries by name of the log's directory; none if the file does not exist, cannot be read, is damaged,
    or belongs to another data directory.
    """
    path = os.path.join(directory, CLOSED_LOGS_FILE)
    try:
        if not disk.exists(path):
            return {}
        head, _, body = disk.read_file(path).partition(b"\n")
        version, crc = head.split(b" ")
        if int(version) != VERSION or int(crc, 16) != crc32c(body):
            raise ValueError("the version or the checksum is wrong")
        content = json.loads(body)
        if content["directory_id"] != directory_id:
            raise ValueError(f"it was written for the data directory {content['directory_id']}")
        return {name: _entry(*fields) for name, fields in content["logs"].items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("all logs are opened from their files, because %s cannot be used: %s", path, error)
        return {}


def _entry(
    topic: str,
    partition: int,
    topic_id: str | None,
    directory: list[int],
    files: list[list[int]],
    side_files: list[list[int]],
    closed: list[Any],
) -> Entry:
    start, end, segments, epochs, producers = closed
    return Entry(
        topic,
        partition,
        None if topic_id is None else bytes.fromhex(topic_id),
        FileStamp(*directory),
        tuple([FileStamp(*file) for file in files]),
        side_files,
        ClosedLog(
            start,
            end,
            tuple([ClosedSegment(*segment) for segment in segments]),
            tuple([EpochEntry(*epoch) for epoch in epochs]),
            tuple([base64.b64decode(entry) for entry in producers]),
        ),
    )


def _side_files(directory: str, active: ClosedSegment) -> list[str]:
    """Return the paths of the file with the topic id, and of the indexes of the active segment."""
    prefix = os.path.join(directory, file_prefix(active.base_offset))
    return [
        os.path.join(directory, PARTITION_METADATA_FILE), prefix + OFFSET_INDEX_SUFFIX, prefix + TIME_INDEX_SUFFIX
    ]  # fmt: skip


def _log_file(directory: str, base_offset: int) -> str:
    return os.path.join(directory, file_prefix(base_offset) + LOG_SUFFIX)
