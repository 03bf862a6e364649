"""The data directories of workers, and the move of a single broker's data into the data directory of worker 1.

    data/oncelog.workers     marks the directory as divided; written before anything is moved
    data/metadata.db         the metadata store, at the same path as for a single broker
    data/worker1/            the data directory of worker 1, and so on

The name `worker1` has no hyphen, because `worker-1` is the directory of partition 1 of a topic named `worker`. The move
renames each file and directory of the broker, `meta.properties` last: as long as `meta.properties` is in the data
directory itself, the move is unfinished, and the next start continues it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Final

from oncelog_broker.log.directories.data_directory import LOCK_FILE, make_data_directory, parse_directory_name
from oncelog_broker.log.directories.meta_properties import META_PROPERTIES_FILE
from oncelog_broker.metadata.opening import METADATA_FILE
from oncelog_broker.runtime.disk import Disk, Lock

WORKERS_FILE: Final = "oncelog.workers"
FORMAT_VERSION: Final = 1
LOST_AND_FOUND: Final = "lost+found"
"""A directory that the ext4 file system creates in each mount point; it cannot be renamed."""
SHOWN: Final = 5
"""Maximum number of directories that one message names."""
_NAME: Final = re.compile(r"worker([1-9][0-9]{0,3})")


class DirectoriesRefused(Exception):
    """The data directories cannot be used with the requested number of workers; the message names the reason and the
    remedy.
    """


def worker_directory(directory: str, number: int) -> str:
    """Return the data directory of a worker, inside a data directory of the command."""
    return os.path.join(directory, f"worker{number}")


def has_workers(disk: Disk, directories: Sequence[str]) -> bool:
    """Whether any of the data directories is recorded as divided among workers."""
    return any(disk.exists(os.path.join(each, WORKERS_FILE)) for each in directories)


def is_divided(disk: Disk, directories: Sequence[str]) -> bool:
    """Whether any of the data directories is divided among workers. A restored backup may lack the record of the
    division, so the data of a worker counts as well.
    """
    return has_workers(disk, directories) or any(
        disk.exists(os.path.join(worker_directory(each, number), META_PROPERTIES_FILE))
        for each in directories
        for number in _found(disk, [each])
    )


def refuse_single_broker(disk: Disk, directories: Sequence[str]) -> None:
    """Refuse to start a single broker with data directories that are divided among workers. Raises DirectoriesRefused,
    OSError.
    """
    if is_divided(disk, directories):
        count = max(_found(disk, directories), default=1)
        raise DirectoriesRefused(
            f"{', '.join(directories)} has the data of {count} worker{'s' * (count > 1)}: start it with "
            f"--workers {count}"
        )


class WorkerDirectories:
    """The locked data directories of a supervisor. Created by `open`; call `divide` before a worker is started."""

    def __init__(self, disk: Disk, directories: Sequence[str], workers: int, locks: Sequence[Lock]) -> None:
        """The constructor is internal: use `open`."""
        self._disk = disk
        self._directories = directories
        self._workers = workers
        self._locks = locks

    @classmethod
    def open(cls, disk: Disk, directories: Sequence[str], workers: int) -> WorkerDirectories:
        """Lock the directories, and check that they can be divided among this number of workers. Raises LockHeld,
        DirectoriesRefused, OSError.
        """
        directories = [os.path.abspath(each) for each in directories]
        locks: list[Lock] = []
        try:
            for each in directories:
                make_data_directory(disk, each)
                locks.append(disk.lock(os.path.join(each, LOCK_FILE)))
            _refuse_left_over(disk, directories, workers)
            _refuse_two_owners(disk, directories)
        except BaseException:
            for lock in locks:
                lock.release()
            raise
        return cls(disk, directories, workers, locks)

    def divide(self) -> None:
        """Divide the directories: a single broker's data becomes the data of worker 1. Raises OSError; the next start
        continues a division that an error or a crash has interrupted.
        """
        for each in self._directories:
            _divide(self._disk, each)

    def of(self, number: int) -> list[str]:
        """Return the data directories of a worker, one in each data directory of the command."""
        return [worker_directory(each, number) for each in self._directories]

    def lock_files(self) -> list[str]:
        """Return the lock files of all workers, whether or not the files exist."""
        return [os.path.join(each, LOCK_FILE) for number in range(1, self._workers + 1) for each in self.of(number)]

    def store_file(self) -> str:
        """Return the path of the metadata store: in the first data directory unless another data directory already has
        the store. Raises DirectoriesRefused if several directories have a store.
        """
        found = [each for each in self._directories if self._disk.exists(os.path.join(each, METADATA_FILE))]
        if len(found) > 1:
            raise DirectoriesRefused(
                f"{METADATA_FILE} exists in {' and in '.join(found)}, and only one of them is the workers' metadata. "
                "Move the wrong one (with its -wal file) away: the right one knows the topics that the workers had last"
            )
        return os.path.join((found or self._directories)[0], METADATA_FILE)

    def close(self) -> None:
        """Unlock all data directories."""
        for lock in self._locks:
            lock.release()


def _found(disk: Disk, directories: Sequence[str]) -> list[int]:
    """Return the numbers of the workers that have a directory in any of the data directories."""
    present = [each for each in directories if disk.is_directory(each)]
    matches = (_NAME.fullmatch(name) for each in present for name in disk.list_directory(each))
    return sorted({int(match[1]) for match in matches if match is not None})


def _refuse_left_over(disk: Disk, directories: Sequence[str], workers: int) -> None:
    """Refuse a number of workers that is so small that a worker with partition logs would not be started."""
    left_over = []
    for number in _found(disk, directories):
        theirs = [worker_directory(each, number) for each in directories]
        if number > workers and any(_has_logs(disk, each) for each in theirs):
            left_over.append(number)
    if left_over:
        shown = ", ".join(f"worker{number}" for number in left_over[:SHOWN])
        shown += " and others" * (len(left_over) > SHOWN)
        raise DirectoriesRefused(
            f"{', '.join(directories)} has partitions in {shown}, which {workers} "
            f"worker{'s do' if workers > 1 else ' does'} not open. Start it with --workers {left_over[-1]}. "
            "To use fewer, first move these partitions to the other workers (oncelog brokers decommission), then "
            "delete these directories"
        )


def _refuse_two_owners(disk: Disk, directories: Sequence[str]) -> None:
    """Refuse a directory that contains both the data of a single broker and the data of worker 1."""
    for each in directories:
        first = worker_directory(each, 1)
        if _has_broker(disk, each) and disk.exists(os.path.join(first, META_PROPERTIES_FILE)):
            raise DirectoriesRefused(
                f"{each} has the data of a single broker, and {first} that of a worker: one of them does not belong "
                "here. Move it away, or put each back where it was"
            )


def _divide(disk: Disk, directory: str) -> None:
    """Record that the directory is divided, and move a single broker's data into the directory of worker 1."""
    note = os.path.join(directory, WORKERS_FILE)
    if not disk.exists(note):
        disk.replace_file(note, json.dumps({"version": FORMAT_VERSION}).encode() + b"\n")
        disk.sync_directory(directory)
    if not _has_broker(disk, directory):
        return
    target = worker_directory(directory, 1)
    disk.make_directories(target)
    moving = [name for name in disk.list_directory(directory) if _belongs_to_broker(name)]
    for name in sorted(moving, key=lambda each: each == META_PROPERTIES_FILE):
        if name == META_PROPERTIES_FILE:
            disk.sync_directory(target)
        disk.rename(os.path.join(directory, name), os.path.join(target, name))
    disk.sync_directory(target)
    disk.sync_directory(directory)


def _has_logs(disk: Disk, directory: str) -> bool:
    """Whether the directory has the log of any partition."""
    return disk.is_directory(directory) and any(map(parse_directory_name, disk.list_directory(directory)))


def _has_broker(disk: Disk, directory: str) -> bool:
    """Whether the directory itself, not a worker's subdirectory, has the data of a broker."""
    return disk.exists(os.path.join(directory, META_PROPERTIES_FILE)) or _has_logs(disk, directory)


def _belongs_to_broker(name: str) -> bool:
    """Whether this file of a data directory belongs to a single broker, and not to the supervisor or to a worker."""
    if name in (LOCK_FILE, WORKERS_FILE, LOST_AND_FOUND) or name.startswith(METADATA_FILE):
        return False
    return _NAME.fullmatch(name) is None
