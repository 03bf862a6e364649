"""The directory of a log that was made just now, and when it gets to the disk.

A log is used as soon as its directory is there, so that a topic of a thousand partitions does not wait for the disk a
few thousand times. It gets to the disk before anything there speaks of its records: a flush syncs it first, and so does
whoever writes a checkpoint that names an offset of it, as that of the high watermarks does some seconds after its first
record. One that stays empty has nothing to lose.

A kill takes nothing of it away, but who starts next cannot see whether it was synced. After a power cut there may be no
directory, or one with files that are not whole, of a log of which nothing was synced. Its identity is written before
there is a file for records, and file systems keep the order of the names in one directory: so records without one are
those of a release that knew of none, and are kept.

A directory whose fsync failed is lost, as a log is (E26): trying again would prove nothing, so its log goes offline,
when it is next looked for what is to be flushed. That no descriptor was left says nothing of the disk: then it is tried
again. The data directory that holds the names of many logs is synced for all of them at a time: the kernel reports once
that this failed, so it is remembered for each log directory whose name was not synced by then (`NameSyncs`).

Source: Kafka, too, writes partition.metadata some time after the log is there, before the first append
(UnifiedLog.maybeFlushMetadataFile); here, that would be on the event loop.
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
        """Held during an fsync, until whoever counts on its outcome has noted it."""
        self.failures = 0
        """How many fsyncs have failed: a name created before a failed one may be lost in a power cut."""
        self.failure: OSError | None = None
        """Why the last of them failed."""

    def sync(self) -> None:
        """Raises OSError."""
        with self.guard:
            self.sync_guarded()

    def sync_guarded(self) -> None:
        """As `sync`, for a caller that holds the guard. Raises OSError."""
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
    """Of one log. `begin` belongs to whoever makes the log; all else may be called in any thread, more than once."""

    __slots__ = ("_disk", "_failures_before", "_files", "_guard", "failure", "is_begun", "is_synced", "names", "path")

    def __init__(self, disk: Disk, path: str, files: Mapping[str, bytes], names: NameSyncs | None = None) -> None:
        """`files`: by name, what is in it before all else. `names`: of the data directory that it is in; None: nobody
        else syncs that one."""
        self._disk = disk
        self.names = names or NameSyncs(disk, os.path.dirname(path))
        self._failures_before = self.names.failures
        self._files = files
        self.path = path
        self.is_begun = False
        self.is_synced = False
        self.failure: OSError | None = None
        """Why it could not be synced the last time that this was tried."""
        self._guard = Lock()
        """The kernel tells once of what it could not write: of two that sync at a time, one would not hear of it."""

    @classmethod
    def found(cls, disk: Disk, path: str, files: Iterable[str], names: NameSyncs | None = None) -> NewDirectory:
        """One that an earlier process may have made just before it was killed, with the files that it began with."""
        directory = cls(disk, path, dict.fromkeys(files, b""), names)
        directory.is_begun = True
        return directory

    def begin(self) -> None:
        """The directory was made, and is empty. Raises OSError."""
        for name, content in self._files.items():
            self._disk.replace_file(os.path.join(self.path, name), content, is_durable=False)
        self.is_begun = True

    @property
    def is_lost(self) -> bool:
        """An fsync failed: it is not tried again."""
        return self.failure is not None and not is_descriptor_limit(self.failure)

    def sync(self) -> None:
        """Have it on the disk, with what it began with. Raises OSError."""
        sync_together([self])
        if self.failure is not None:
            raise OSError(self.failure.errno, self.failure.strerror, self.path)

    def sync_content(self) -> None:
        """Without its own name. What fails is in `failure`."""
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
        with suppress(FileNotFoundError):  # it was deleted meanwhile: nothing of it is to be durable
            for name in self._files:
                file = self._disk.open_briefly(os.path.join(self.path, name))
                try:
                    file.sync()
                finally:
                    file.close()
            self._disk.sync_directory(self.path)

    def fail(self, error: OSError) -> None:
        """It, or its name, could not be synced."""
        self.failure = error
        if self.is_lost:
            logger.error("%s: could not be synced: %s", self.path, error)

    def note_name_synced(self) -> None:
        """`names` was synced, and its guard is still held. That says nothing of a name that was made before an fsync of
        it failed. What fails is in `failure`."""
        if self.names.failures != self._failures_before and self.names.failure is not None:
            self.fail(self.names.failure)
        self.is_synced = self.failure is None


def sync_together(directories: Collection[NewDirectory]) -> None:
    """Sync them, and what they lie in once for all. What fails is in their `failure`."""
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
