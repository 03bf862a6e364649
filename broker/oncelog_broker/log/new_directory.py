"""The directory of a new log, until the directory is synced.

A log is used as soon as its directory exists, so that the creation of a topic with a thousand partitions does not wait
for thousands of fsyncs. The directory is synced before another file refers to the log's records: by the first flush, or
before the first checkpoint with an offset of the log. (The first checkpoint is often the checkpoint of the high
watermarks, some seconds after the first record.) A log that stays empty has no records to lose.

If the process is killed, no data is lost, but the next process does not know whether the directory was synced. After a
power
cut, the directory may be missing, or may have incomplete files; no record of that log was synced then. The file with
the log's topic id is written before the file for records, and file systems keep the order of names in one directory. A
log with records but without a topic id is therefore kept: it was written by an old release that stored no topic ids.

After a failed fsync, the directory counts as lost, and the next flush takes the log offline (E26), because a second
fsync would not report the lost data. An exception is a sync that failed for lack of a file descriptor: it tells nothing
about the disk, so it is retried. One sync of the data directory makes the names of many logs durable. The kernel
reports a failure only once, so the failure is stored for each log whose name was not synced before (`NameSyncs`).

Kafka also writes partition.metadata some time after the log is created, before the first append
(UnifiedLog.maybeFlushMetadataFile); here, a write at that time would block the event loop.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Lock

from oncelog_broker.runtime.descriptors import is_descriptor_limit
from oncelog_broker.runtime.disk import Disk, is_out_of_space, sync_path

logger = logging.getLogger(__name__)


class NameSyncs:
    """Syncs one data directory, which makes the names of the log directories in it durable. Any thread may use an
    instance.
    """

    __slots__ = ("_disk", "failure", "failures", "guard", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.guard = Lock()
        """A thread holds this lock from the start of an fsync until it has stored the result of the fsync."""
        self.failures = 0
        """The number of failed fsyncs. A power cut may remove a name that was created before a failed fsync."""
        self.failure: OSError | None = None
        """The error of the last failed sync; None if no sync has failed."""

    def sync(self) -> None:
        """Sync the data directory. Raises OSError."""
        with self.guard:
            self.sync_guarded()

    def sync_guarded(self) -> None:
        """Sync the data directory, for a caller that already holds the lock `guard`. Raises OSError."""
        try:
            self._disk.sync_directory(self.path)
        except OSError as error:
            self.note_failure(error)
            raise

    def note_failure(self, error: OSError) -> None:
        """Record that another fsync of this directory has failed, for example while a checkpoint was written."""
        if not (is_descriptor_limit(error) or is_out_of_space(error)):
            self.failures, self.failure = self.failures + 1, error


class NewDirectory:
    """The new directory of one log, until it is synced. The code that creates the log calls `begin`. The other methods
    may be called by any thread, and repeatedly.
    """

    __slots__ = ("_disk", "_failures_before", "_files", "_guard", "failure", "is_begun", "is_synced", "names", "path")

    def __init__(self, disk: Disk, path: str, files: Mapping[str, bytes], names: NameSyncs | None = None) -> None:
        """`files` maps names to contents of the first files in the directory. `names` syncs the data directory for
        several logs; None if no other log needs that sync.
        """
        self._disk = disk
        self.names = names or NameSyncs(disk, os.path.dirname(path))
        self._failures_before = self.names.failures
        self._files = files
        self.path = path
        self.is_begun = False
        self.is_synced = False
        self.failure: OSError | None = None
        """The error of the last attempt to sync the directory; None if that attempt succeeded."""
        self._guard = Lock()
        """A lock that allows only one sync at a time: the kernel reports a lost write only once, so only one of two
        concurrent syncs would see the error.
        """

    @classmethod
    def found(cls, disk: Disk, path: str, files: Iterable[str], names: NameSyncs | None = None) -> NewDirectory:
        """Return a `NewDirectory` for a directory that exists already and contains its first files. The directory may
        be unsynced, because an earlier process may have created it just before it was killed.
        """
        directory = cls(disk, path, dict.fromkeys(files, b""), names)
        directory.is_begun = True
        return directory

    def begin(self) -> None:
        """Write the first files into the directory, which exists and is empty. Raises OSError."""
        for name, content in self._files.items():
            self._disk.replace_file(os.path.join(self.path, name), content, is_durable=False)
        self.is_begun = True

    @property
    def is_lost(self) -> bool:
        """Whether an fsync of the directory failed; a failed fsync is not retried."""
        return self.failure is not None and not is_descriptor_limit(self.failure)

    @property
    def may_be_synced(self) -> bool:
        """Whether no fsync of the directory, or of its name, has failed since the directory was created."""
        return self.failure is None and self.names.failures == self._failures_before

    def sync(self) -> None:
        """Sync the first files, the directory, and the directory's name. Raises OSError."""
        sync_together([self])
        if self.failure is not None:
            raise OSError(self.failure.errno, self.failure.strerror, self.path)

    def sync_content(self) -> None:
        """Sync the first files and the directory, but not the directory's name. An error is stored in the field
        `failure`.
        """
        with self._guard:
            if self.is_synced or self.is_lost:
                return
            try:
                self._sync_content()
            except OSError as error:
                self.fail(error)
            else:
                self.failure = None

    def _sync_content(self) -> None:
        with suppress(FileNotFoundError):  # the directory was deleted, so it needs no sync
            for name in self._files:
                sync_path(self._disk, os.path.join(self.path, name))
            self._disk.sync_directory(self.path)

    def fail(self, error: OSError) -> None:
        """Record that the directory, or its name, could not be synced."""
        self.failure = error
        if self.is_lost:
            logger.error("%s: could not be synced: %s", self.path, error)

    def note_name_synced(self) -> None:
        """Mark the directory as synced. The caller has synced `names`, and still holds the lock `guard` of `names`. A
        directory that
        was created before a failed fsync of `names` is marked as failed instead. The error is then in the field
        `failure`.
        """
        if self.names.failures != self._failures_before and self.names.failure is not None:
            self.fail(self.names.failure)
        self.is_synced = self.failure is None


def sync_together(
    directories: Collection[NewDirectory], run_syncs: Callable[[Sequence[Callable[[], None]]], None] | None = None
) -> None:
    """Sync several new directories, and sync each of their data directories only once. Errors are stored in the field
    `failure` of each new directory. `run_syncs` runs the syncs of the contents, by default one after another.
    """
    unsynced = [directory for directory in directories if not directory.is_synced]
    if run_syncs is not None:
        run_syncs([directory.sync_content for directory in unsynced])
    else:
        for directory in unsynced:
            directory.sync_content()
    by_home = defaultdict(list)
    for directory in unsynced:
        if directory.failure is None:
            by_home[directory.names].append(directory)
    for names, here in by_home.items():
        with names.guard:
            try:
                names.sync_guarded()
            except OSError as error:
                for directory in here:
                    directory.fail(error)
            for directory in here:
                directory.note_name_synced()
