"""One data directory: its owner, its logs, and its other files.

    .lock                               held while a broker has the directory open
    meta.properties                     whose it is
    oncelog.identity                    what it was when a broker registered with it last: identity/note.py
    .kafka_cleanshutdown                there only if the last broker closed all logs; removed when opened
    recovery-point-offset-checkpoint    up to where each log is synced
    replication-offset-checkpoint       high watermarks
    log-start-offset-checkpoint         log starts that the names of the segments do not tell, even after a power cut
    cleaner-offset-checkpoint           up to where each compacted log was compacted
    orders-0/                           the log of partition 0 of topic "orders"
    orders-1.2f0c...-delete/            a log that was deleted, and is freed after file.delete.delay.ms
    orders-2.77ab...-stray/             a log that belongs to no topic, set aside and kept

A checkpoint that cannot be read is ignored with a warning. Without recovery points every log is verified from its
start; without log starts, deleted records whose segments still exist can be read again; without high watermarks
replication begins at the log starts; without cleaner offsets, logs are compacted from their starts.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import threading
from collections.abc import Collection, Mapping
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
from oncelog_broker.runtime.disk import Disk, Lock
from oncelog_broker.runtime.entropy import Entropy, random_uuid
from oncelog_protocol.uuids import uuid_to_string

logger = logging.getLogger(__name__)

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_VERSION: Final = 0
UNKNOWN_BROKER_EPOCH: Final = -1

METADATA_TOPIC: Final = "__cluster_metadata"
"""KRaft's own log, which is not opened here."""
DELETE_DIRECTORY_SUFFIX: Final = "-delete"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
"""Marks the directory of a log that no topic owns: it is kept for the operator."""
MAX_DIRECTORY_NAME: Final = 255

NO_SYNC: Final = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS})
"""Errors of fsync for a directory that may not be read, or on a file system without fsync of directories."""

_LOG_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_DELETED_DIRECTORY = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+\.[0-9a-f]{32}-delete")


def parse_directory_name(name: str) -> TopicPartition | None:
    """(topic, partition) if `name` is the directory name of a partition's log, else None."""
    match = _LOG_DIRECTORY.fullmatch(name)
    if match is None or match["topic"] in (".", "..", METADATA_TOPIC):
        return None
    return match["topic"], int(match["partition"])


def marked_directory_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """Kafka's name for the directory of a deleted or stray log; a long topic name is shortened."""
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: MAX_DIRECTORY_NAME - len(tail)] + tail


def make_data_directory(disk: Disk, path: str) -> None:
    """Create it and its parents, and sync their names: otherwise a power cut could remove the directory with its synced
    files. Raises OSError."""
    missing = []
    above = path
    while not disk.is_directory(above) and above != os.path.dirname(above):
        missing.append(above)
        above = os.path.dirname(above)
    disk.make_directories(path)
    for made in reversed(missing):
        _sync_names(disk, os.path.dirname(made))


def _sync_names(disk: Disk, above: str) -> None:
    """Sync the names, if the file system and the broker's rights allow it: the parent is not always the broker's.
    Raises OSError."""
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
        """Internal: use `open`."""
        self._disk = disk
        self._lock = lock
        self._found = found
        self.note = note
        """The content of the identity note; None if the file does not exist."""
        self.path = path
        self.directory_id = None if found is None else found.directory_id
        """The directory id in meta.properties; None if it has none yet."""
        self.clean_shutdown = False
        """Whether every log in it was closed before the directory was claimed."""
        self.checkpoint_guard = threading.Lock()
        """Held while a checkpoint is written, from before the offsets are read: checkpoints are written by worker
        threads too, and an offset that was read before a truncation must not be written after it."""
        self.names = NameSyncs(disk, path)
        """The fsyncs that make the names of the logs in it durable."""
        self._checkpoints: dict[str, Mapping[TopicPartition, int]] = {}
        """Checkpoint name -> its entries, once it was read or written."""

    @classmethod
    def open(cls, disk: Disk, path: str, *, node_id: int, cluster_id: str | None) -> DataDirectory:
        """Lock the directory and check that it belongs to this broker, or to none yet; create it if it does not exist.
        `claim` must follow.

        Raises LockHeld, MetaPropertiesError, NoteError, OSError: it is not locked then.
        """
        make_data_directory(disk, path)
        lock = disk.lock(os.path.join(path, LOCK_FILE))
        try:
            found, note = read_meta_properties(disk, path), read_note(disk, path)
            if found is None:
                # the process that created it may have been killed before it synced the name
                _sync_names(disk, os.path.dirname(path))
            else:
                found.check_owner(path, node_id=node_id, cluster_id=cluster_id)
        except BaseException:
            lock.release()
            raise
        return cls(disk, path, lock, found, note)

    def check_owner(self, *, node_id: int, cluster_id: str | None) -> None:
        """Check the owner again, when the cluster id is known. Raises MetaPropertiesError."""
        if self._found is not None:
            self._found.check_owner(self.path, node_id=node_id, cluster_id=cluster_id)

    def has_logs(self) -> bool:
        """Whether it has the log of any partition."""
        return any(parse_directory_name(name) is not None for name in self._disk.list_directory(self.path))

    def write_note(self, note: DirectoryNote) -> None:
        """Write the note; it is durable when this returns."""
        write_note(self._disk, self.path, note)
        self.note = note

    @property
    def cluster_id(self) -> str | None:
        """The cluster that it belongs to; None if it does not say."""
        return self._found.cluster_id if self._found is not None else None

    def claim(self, *, node_id: int, cluster_id: str | None, entropy: Entropy) -> None:
        """Write the owner to meta.properties, if it is incomplete, and remove the mark of the clean shutdown.

        Changes nothing before all directories are checked, so that a start that is refused because of another directory
        leaves no trace.
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
        # A process that was killed may have renamed files without syncing. All later steps rely on the names found.
        self._disk.sync_directory(self.path)

    def join(self, name: str) -> str:
        return os.path.join(self.path, name)

    def logs(self) -> tuple[list[TopicPartition], list[str]]:
        """(the partitions that have a log here, the paths of deleted logs that wait to be freed).

        Other directories are named in the broker's log, once, and left alone.
        """
        found, deleted = [], []
        for name in self._disk.list_directory(self.path):
            path = self.join(name)
            if not self._disk.is_directory(path):
                continue
            parsed = parse_directory_name(name)
            if parsed is not None:
                found.append(parsed)
            elif _DELETED_DIRECTORY.fullmatch(name):
                deleted.append(path)
            else:
                logger.info("%s: not the log of a partition, ignored", path)
        return found, deleted

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """The entries of a checkpoint; empty if it is missing or cannot be read, with the consequences named above."""
        path = self.join(name)
        try:
            offsets = read_offset_checkpoint(self._disk, path)
        except CheckpointCorrupt as error:
            logger.warning("going on without %s: %s", path, error)
            offsets = {}
        self._checkpoints[name] = offsets
        return offsets

    def noted_offset(self, key: TopicPartition) -> int:
        """The largest offset that any checkpoint read or written so far has for `key`; 0 if none has it."""
        return max((offsets.get(key, 0) for offsets in self._checkpoints.values()), default=0)

    def noted(self, name: str, key: TopicPartition) -> int | None:
        """The offset for `key` in the checkpoint `name`, as last read or written; None if it has none."""
        return self._checkpoints.get(name, {}).get(key)

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write a checkpoint; `checkpoint_guard` must be held."""
        try:
            write_offset_checkpoint(self._disk, self.join(name), offsets)
        except OSError as error:
            self.names.note_failure(error)  # the failed fsync may have been one of this directory
            raise
        self._checkpoints[name] = offsets

    def drop_from_checkpoints(self, keys: Collection[TopicPartition]) -> None:
        """Remove `keys` from every checkpoint, before logs are created under names that deleted logs had. Otherwise,
        after a crash, the old log starts and recovery points would be applied to the new logs."""
        for name in list(self._checkpoints):
            self._drop_from(name, set(keys))

    def forget_recovery_point(self, key: TopicPartition) -> None:
        """Remove the recovery point of this log from its checkpoint, before all of the log is given up. Raises
        OSError."""
        self._drop_from(RECOVERY_POINT_CHECKPOINT, {key})

    def _drop_from(self, name: str, dropped: Collection[TopicPartition]) -> None:
        with self.checkpoint_guard:
            offsets = self._checkpoints.get(name, {})
            left = {key: offset for key, offset in offsets.items() if key not in dropped}
            if len(left) < len(offsets):
                self.write_checkpoint(name, left)

    def close(self, *, clean: bool, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
        """Unlock. `clean`: note for the next start that every log was closed."""
        try:
            if clean:
                content = {"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}
                self._disk.replace_file(self.join(CLEAN_SHUTDOWN_FILE), json.dumps(content).encode())
        finally:
            self._lock.release()
