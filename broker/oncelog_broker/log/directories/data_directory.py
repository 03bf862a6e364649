"""One data directory: its owner, its logs, and its other files.

- `.lock` is locked while a broker has the directory open.
- `meta.properties` names the broker and cluster that own the directory.
- `oncelog.identity` contains the identity of the broker that last registered with this directory (`identity/note.py`).
- `oncelog.closed-logs` has the states of the logs that the last orderly stop closed (`closed_logs`).
- `oncelog.cut-log` exists if recovery has removed the end of a log, until the broker has registered as unsure.
- `.kafka_cleanshutdown` exists only if the last broker closed all logs; the next startup removes it.
- `recovery-point-offset-checkpoint` has the recovery point of each log.
- `replication-offset-checkpoint` has the high watermark of each log.
- `log-start-offset-checkpoint` has the log start offset of each log whose segment file names do not prove that offset.
- `cleaner-offset-checkpoint` has the offset up to which each log with cleanup.policy=compact was compacted.
- `orders-0/` is the log of partition 0 of topic orders.
- `orders-1.2f0c...-delete/` is a deleted log; its disk space is freed after file.delete.delay.ms.
- `orders-3.05de...-future/` is a copy of `orders-3/` in another data directory; the copy will replace the original
(`future_log`).
- `orders-2.77ab...-stray/` is a log that belongs to no topic; such a log is kept, but not used.

A checkpoint that cannot be read is ignored with a warning. Without recovery points, every log is verified from its
start. Without log starts, deleted records whose segments still exist can be read again. Without high watermarks,
replication begins at the log starts. Without cleaner offsets, logs are compacted from their starts.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from oncelog_broker.identity.note import DirectoryNote, read_note, write_note
from oncelog_broker.log.checkpoints import (
    RECOVERY_POINT_CHECKPOINT,
    CheckpointCorrupt,
    TopicPartition,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from oncelog_broker.log.directories.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from oncelog_broker.log.new_directory import NameSyncs
from oncelog_broker.log.segments.recovery import CUT_FILE
from oncelog_broker.runtime.disk import Disk, Lock
from oncelog_broker.runtime.entropy import Entropy, random_uuid
from oncelog_protocol.uuids import uuid_to_string

logger = logging.getLogger(__name__)

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_VERSION: Final = 0
UNKNOWN_BROKER_EPOCH: Final = -1

METADATA_TOPIC: Final = "__cluster_metadata"
"""The topic of KRaft's own metadata log, which is not opened as a partition."""
DELETE_DIRECTORY_SUFFIX: Final = "-delete"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
"""Suffix of the directory of a log that no topic owns; the directory is kept for the operator."""
MAX_DIRECTORY_NAME: Final = 255
MANY_LOGS: Final = 500
"""From this number of unsynced logs in a data directory on, the entire file system is synced. For fewer logs, syncing
the file system could take longer than syncing each file, because it also syncs the data of other programs.
"""

NO_SYNC: Final = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS})
"""Error numbers that mean that a directory cannot be synced: the broker may not read the directory, or the file system
cannot sync directories.
"""

_LOG_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_DELETED_DIRECTORY = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+\.[0-9a-f]{32}-delete")


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return (topic, partition) if `name` is the directory name of a partition's log, else None."""
    match = _LOG_DIRECTORY.fullmatch(name)
    if match is None or match["topic"] in (".", "..", METADATA_TOPIC):
        return None
    return match["topic"], int(match["partition"])


def marked_directory_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """Return Kafka's name for the directory of a deleted or stray log; a long topic name is shortened."""
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: MAX_DIRECTORY_NAME - len(tail)] + tail


def make_data_directory(disk: Disk, path: str) -> None:
    """Create a data directory and its missing parents, and sync the directories that contain them. Without this sync, a
    power cut could remove the data directory together with its synced files. Raises OSError.
    """
    missing = []
    above = path
    while not disk.is_directory(above) and above != os.path.dirname(above):
        missing.append(above)
        above = os.path.dirname(above)
    disk.make_directories(path)
    for made in reversed(missing):
        _sync_names(disk, os.path.dirname(made))


def _sync_names(disk: Disk, above: str) -> None:
    """Sync the directory `above`, which makes the names of new directories in it durable. Errors are ignored if the
    file system cannot sync directories, or if `above` belongs to another user. Raises OSError.
    """
    try:
        disk.sync_directory(above)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise


class DataDirectory:
    """An open, locked data directory. Methods raise OSError."""

    def __init__(
        self, disk: Disk, path: str, lock: Lock, found: MetaProperties | None, note: DirectoryNote | None = None
    ) -> None:
        """The constructor is internal: call `open` instead."""
        self._disk = disk
        self._lock = lock
        self._found = found
        self.note = note
        """The content of the identity note; None if the file does not exist."""
        self.path = path
        self.directory_id = None if found is None else found.directory_id
        """The directory id in meta.properties; None if the file has no directory id yet."""
        self.clean_shutdown = False
        """Whether the previous broker process closed every log in the directory (a clean shutdown)."""
        self.file_system = disk.watch_file_system(path)
        """Syncs the file system with all logs of this directory; None if the system cannot do this reliably."""
        self.checkpoint_guard = threading.Lock()
        """A thread that writes a checkpoint holds this lock from reading the offsets until the checkpoint is written.
        The lock is needed because worker threads also write checkpoints, and an offset that was read before a
        truncation must not be written after it.
        """
        self.names = NameSyncs(disk, path)
        """The fsyncs that make the names of the logs in this directory durable."""
        self._checkpoints: dict[str, Mapping[TopicPartition, int]] = {}
        """Name of a checkpoint -> the entries of the checkpoint, as last read or written."""
        self._arriving: dict[str, dict[TopicPartition, int]] = {}
        """Name of a checkpoint -> additional entries, for logs that are about to be moved into this directory."""

    @classmethod
    def open(cls, disk: Disk, path: str, *, node_id: int, cluster_id: str | None) -> DataDirectory:
        """Lock the directory and check that it belongs to this broker or to no broker yet; create the directory if it
        does not exist. The caller must then call `claim`.

        Raises LockHeld, MetaPropertiesError, NoteError, OSError; the directory is then not locked.
        """
        make_data_directory(disk, path)
        lock = disk.lock(os.path.join(path, LOCK_FILE))
        try:
            found, note = read_meta_properties(disk, path), read_note(disk, path)
            if found is None:
                # sync the name again, because the process that created the directory may have been killed before its
                # sync
                _sync_names(disk, os.path.dirname(path))
            else:
                found.check_owner(path, node_id=node_id, cluster_id=cluster_id)
        except BaseException:
            lock.release()
            raise
        return cls(disk, path, lock, found, note)

    def check_owner(self, *, node_id: int, cluster_id: str | None) -> None:
        """Check that the directory belongs to this cluster; called when the cluster id is known, after the first check
        in `open`. Raises MetaPropertiesError.
        """
        if self._found is not None:
            self._found.check_owner(self.path, node_id=node_id, cluster_id=cluster_id)

    def has_logs(self) -> bool:
        """Whether the directory contains the log of any partition."""
        return any(parse_directory_name(name) is not None for name in self._disk.list_directory(self.path))

    def write_note(self, note: DirectoryNote) -> None:
        """Write the identity note of the directory; the note is durable when this method returns."""
        write_note(self._disk, self.path, note)
        self.note = note

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that the directory belongs to; None if meta.properties does not say."""
        return self._found.cluster_id if self._found is not None else None

    def claim(self, *, node_id: int, cluster_id: str | None, entropy: Entropy) -> None:
        """Write the owner to meta.properties if that file is incomplete, and remove the clean-shutdown mark.

        Call this method only after all data directories were checked: if a check refuses the startup, no directory may
        have changed.
        """
        found = self._found
        if cluster_id is not None and (found is None or found.directory_id is None or found.cluster_id is None):
            self.directory_id = self.directory_id or uuid_to_string(random_uuid(entropy))
            write_meta_properties(
                self._disk, self.path, node_id=node_id, cluster_id=cluster_id, directory_id=self.directory_id
            )
        marker = self.join(CLEAN_SHUTDOWN_FILE)
        self.clean_shutdown = self._disk.exists(marker)
        if self.clean_shutdown:
            self._disk.remove(marker)
        # A process that was killed may have renamed files without syncing. All later steps rely on the file names that
        # are found now, so these names are synced first.
        self._disk.sync_directory(self.path)

    @property
    def has_cut_log(self) -> bool:
        """Whether recovery has removed the end of a log here, and no registration has told the cluster so. Raises
        OSError.
        """
        return self._disk.exists(self.join(CUT_FILE))

    def forget_cut_log(self) -> None:
        """Remove the note that `has_cut_log` reads. Raises OSError."""
        self._disk.remove(self.join(CUT_FILE))

    def join(self, name: str) -> str:
        return os.path.join(self.path, name)

    def logs(self) -> tuple[list[TopicPartition], list[str]]:
        """Return (the partitions that have a log here, the paths of deleted logs that are not freed yet)."""
        found: list[TopicPartition] = []
        deleted: list[str] = []
        for name in self._disk.list_directory(self.path):
            self.classify(name, found, deleted)
        return found, deleted

    def classify(self, name: str, found: list[TopicPartition], deleted: list[str]) -> None:
        """Add one name of this directory to `found` if it is the log of a partition, or to `deleted` (with its path) if
        it is a deleted log. Directories that are not logs are ignored, with a log line; files are ignored silently.
        """
        path = self.join(name)
        if not self._disk.is_directory(path):
            return
        parsed = parse_directory_name(name)
        if parsed is not None:
            found.append(parsed)
        elif _DELETED_DIRECTORY.fullmatch(name):
            deleted.append(path)
        else:
            logger.info("%s: not the log of a partition, ignored", path)

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Return the entries of a checkpoint; empty if the file is missing or unreadable. The module docstring lists
        the consequences of an unreadable checkpoint.
        """
        path = self.join(name)
        try:
            offsets = read_offset_checkpoint(self._disk, path)
        except CheckpointCorrupt as error:
            logger.warning("starting without %s: %s", path, error)
            offsets = {}
        self._checkpoints[name] = offsets
        return offsets

    def noted_offset(self, key: TopicPartition) -> int:
        """Return the largest offset of `key` in all checkpoints read or written so far; 0 if no checkpoint has the
        key.
        """
        return max((offsets.get(key, 0) for offsets in self._checkpoints.values()), default=0)

    def noted(self, name: str, key: TopicPartition) -> int | None:
        """Return the offset of `key` in checkpoint `name`, as last read or written; None if the checkpoint does not
        have the key.
        """
        return self._checkpoints.get(name, {}).get(key)

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write a checkpoint; the caller must hold `checkpoint_guard`."""
        if name in self._arriving:
            offsets = {**offsets, **self._arriving[name]}
        try:
            write_offset_checkpoint(self._disk, self.join(name), offsets)
        except OSError as error:
            self.names.note_failure(error)  # perhaps the fsync of the directory has failed
            raise
        self._checkpoints[name] = offsets

    def note_arrival(self, name: str, key: TopicPartition, offset: int) -> None:
        """Write an entry into checkpoint `name` for a log that is about to be moved into this directory. Each later
        write of that checkpoint includes the entry, until `forget_arrival` is called.
        """
        with self.checkpoint_guard:
            self._arriving.setdefault(name, {})[key] = offset
            self.write_checkpoint(name, self._checkpoints.get(name, {}))

    def forget_arrival(self, key: TopicPartition) -> None:
        """Discard the entries that `note_arrival` stored, because the move of the log has ended."""
        with self.checkpoint_guard:
            for entries in self._arriving.values():
                entries.pop(key, None)

    def drop_from_checkpoints(self, keys: Collection[TopicPartition]) -> None:
        """Remove the entries of the logs `keys` from every checkpoint, before new logs are created under the names of
        deleted logs. Without this removal, the next startup after a crash would apply the old log starts and recovery
        points to the new logs.
        """
        for name in list(self._checkpoints):
            self._drop_from(name, set(keys))

    def forget_recovery_point(self, key: TopicPartition) -> None:
        """Remove the recovery point of log `key` from its checkpoint, before all records of the log are discarded.
        Raises
        OSError."""
        self._drop_from(RECOVERY_POINT_CHECKPOINT, {key})

    def _drop_from(self, name: str, dropped: Collection[TopicPartition]) -> None:
        with self.checkpoint_guard:
            offsets = self._checkpoints.get(name, {})
            # Look up the dropped keys first, without a copy of the offsets: a directory may have thousands of logs, and
            # most calls are for new logs, which have no entries.
            if not offsets.keys().isdisjoint(dropped):
                self.write_checkpoint(name, {key: offset for key, offset in offsets.items() if key not in dropped})

    def syncs_together(self, logs: int) -> bool:
        """Whether `sync_file_system` syncs this number of logs."""
        return self.file_system is not None and logs >= MANY_LOGS

    def sync_file_system(self, logs: int) -> bool:
        """Sync the entire file system, if at least `MANY_LOGS` logs must be synced. Returns False if the caller must
        sync each log instead. These syncs then show which logs have lost data.
        """
        if self.file_system is None or logs < MANY_LOGS:
            return False
        try:
            self.file_system.sync()
        except OSError as error:
            # The kernel reports a failed write only once on this descriptor, so a later sync of the file system would
            # prove nothing about the logs that are not synced now.
            logger.warning("%s: the file system could not be synced, so each log is synced: %s", self.path, error)
            self.file_system.close()
            self.file_system = None
            return False
        return True

    def close(self, *, clean: bool, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
        """Unlock the directory. If `clean` is True, also write the file that tells the next startup that every log was
        closed.
        """
        try:
            if clean:
                content = {"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}
                self._disk.replace_file(self.join(CLEAN_SHUTDOWN_FILE), json.dumps(content).encode())
        finally:
            if self.file_system is not None:
                self.file_system.close()
                self.file_system = None
            self._lock.release()


def lock_directories(
    data_dirs: Sequence[str | os.PathLike[str]], *, node_id: int, cluster_id: str | None, disk: Disk
) -> list[DataDirectory]:
    """Lock the data directories, and check that each belongs to this broker, or to no broker yet. Apart from the lock,
    existing directories are not changed.

    Raises LockHeld, MetaPropertiesError, NoteError, OSError; no directory then stays locked.
    """
    directories: list[DataDirectory] = []
    try:
        for path in data_dirs:
            directory = DataDirectory.open(disk, os.path.abspath(path), node_id=node_id, cluster_id=cluster_id)
            directories.append(directory)
            cluster_id = cluster_id if cluster_id is not None else directory.cluster_id
    except BaseException:
        for directory in directories:
            directory.close(clean=False)
        raise
    return directories


def note_sisters(directories: Sequence[DataDirectory]) -> None:
    """Write the identity note, which lists all data directories of this broker, into each directory without a note.
    Raises OSError.
    """
    sisters = {each.directory_id: each.path for each in directories if each.directory_id is not None}
    for each in directories:
        if each.note is None and each.directory_id is not None:
            each.write_note(DirectoryNote(each.directory_id, sisters))
