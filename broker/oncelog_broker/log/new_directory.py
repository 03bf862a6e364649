"""The directory of a log that was created just now, until it is synced.

A log is used as soon as its directory exists, so that a topic of a thousand partitions does not wait for some thousand
fsyncs. The directory is synced before any file refers to its records: the first flush syncs it, and so does a
checkpoint that names an offset of the log, such as the high watermark some seconds after the first record. A log that
stays empty has nothing to lose.

A kill loses nothing, but the next process cannot see whether the directory was synced. After a power cut the directory
may be missing, or have incomplete files; no record of that log was synced. The log's identity is written before the
file for records, and file systems keep the order of names in one directory. So a log with records but without an
identity is from a release that wrote none, and is kept.

After a failed fsync the directory counts as lost, like a log (E26): a second fsync would prove nothing, so its log goes
offline when the next flush is due. A missing file descriptor says nothing of the disk, and is tried again. One sync of
the data directory makes the names of many logs durable. The kernel reports a failure once, so it is stored for each log
whose name was not synced by then (`NameSyncs`).

Source: Kafka, too, writes partition.metadata some time after the log exists, before the first append
(UnifiedLog.maybeFlushMetadataFile); here, that would block the event loop.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from threading import Lock

from oncelog_broker.runtime.descriptors import is_descriptor_limit
from oncelog_broker.runtime.disk import Disk, is_out_of_space

logger = logging.getLogger(__name__)


class NameSyncs:
    """The fsyncs of one data directory, which make the names of the logs in it durable. May be used in any thread."""

    __slots__ = ("_disk", "failure", "failures", "guard", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.guard = Lock()
        """Held during an fsync, and until its caller has noted the outcome."""
        self.failures = 0
        """How many fsyncs have failed: a name created before a failed one may be lost in a power cut."""
        self.failure: OSError | None = None
        """The reason why the last sync failed."""

    def sync(self) -> None:
        """Sync the directory. Raises OSError."""
        with self.guard:
            self.sync_guarded()

    def sync_guarded(self) -> None:
        """Like `sync`, for a caller that holds the guard. Raises OSError."""
        try:
            self._disk.sync_directory(self.path)
        except OSError as error:
            self.note_failure(error)
            raise

    def note_failure(self, error: OSError) -> None:
        """Note that an fsync of this directory has failed elsewhere, for example in the write of a checkpoint."""
        if not (is_descriptor_limit(error) or is_out_of_space(error)):
            self.failures, self.failure = self.failures + 1, error


class NewDirectory:
    """The new directory of one log. `begin` is called by the creator of the log; the other methods may be called in any
    thread, more than once."""

    __slots__ = ("_disk", "_failures_before", "_files", "_guard", "failure", "is_begun", "is_synced", "names", "path")

    def __init__(self, disk: Disk, path: str, files: Mapping[str, bytes], names: NameSyncs | None = None) -> None:
        """`files`: name -> content of the first files in it. `names`: the syncs of its data directory; None: no other
        log syncs that directory."""
        self._disk = disk
        self.names = names or NameSyncs(disk, os.path.dirname(path))
        self._failures_before = self.names.failures
        self._files = files
        self.path = path
        self.is_begun = False
        self.is_synced = False
        self.failure: OSError | None = None
        """Why the last attempt to sync it failed; None if it did not."""
        self._guard = Lock()
        """One sync at a time: the kernel reports a lost write once, so of two concurrent syncs only one would see the
        error."""

    @classmethod
    def found(cls, disk: Disk, path: str, files: Iterable[str], names: NameSyncs | None = None) -> NewDirectory:
        """A directory that an earlier process may have created just before it was killed, with its first files."""
        directory = cls(disk, path, dict.fromkeys(files, b""), names)
        directory.is_begun = True
        return directory

    def begin(self) -> None:
        """The directory exists and is empty: write the first files. Raises OSError."""
        for name, content in self._files.items():
            self._disk.replace_file(os.path.join(self.path, name), content, is_durable=False)
        self.is_begun = True

    @property
    def is_lost(self) -> bool:
        """Whether an fsync of the directory failed: the sync is not tried again."""
        return self.failure is not None and not is_descriptor_limit(self.failure)

    def sync(self) -> None:
        """Sync the first files, the directory, and its name. Raises OSError."""
        sync_together([self])
        if self.failure is not None:
            raise OSError(self.failure.errno, self.failure.strerror, self.path)

    def sync_content(self) -> None:
        """Sync the first files and the directory, not its name. An error is in `failure`."""
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
        with suppress(FileNotFoundError):  # the directory was deleted meanwhile: nothing in it needs to be durable
            for name in self._files:
                file = self._disk.open_briefly(os.path.join(self.path, name))
                try:
                    file.sync()
                finally:
                    file.close()
            self._disk.sync_directory(self.path)

    def fail(self, error: OSError) -> None:
        """Note that the directory, or its name, could not be synced."""
        self.failure = error
        if self.is_lost:
            logger.error("%s: could not be synced: %s", self.path, error)

    def note_name_synced(self) -> None:
        """`names` was synced, and its guard is still held. This does not apply to a name that was created before a
        failed fsync. An error is in `failure`."""
        if self.names.failures != self._failures_before and self.names.failure is not None:
            self.fail(self.names.failure)
        self.is_synced = self.failure is None


def sync_together(directories: Collection[NewDirectory]) -> None:
    """Sync several new directories, and their data directories once for all. Errors are in their `failure`."""
    unsynced = [directory for directory in directories if not directory.is_synced]
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
