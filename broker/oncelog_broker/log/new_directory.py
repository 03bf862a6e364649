"""The directory of a log that was made just now, and when it gets to the disk.

A log is used as soon as its directory is there, so that a topic of a thousand partitions does not wait for the disk a
few thousand times. It gets to the disk before anything there speaks of its records: a flush syncs it first, and so does
whoever writes a checkpoint that names an offset of it, as that of the high watermarks does some seconds after its first
record. One that stays empty has nothing to lose.

A kill takes nothing of it away, but who starts next cannot see whether it was synced. After a power cut there may be no
directory, or one with files that are not whole, of a log of which nothing was synced. Its identity is written before
there is a file for records, and file systems keep the order of the names in one directory: so records without one are
those of a release that knew of none, and are kept.

Source: Kafka, too, writes partition.metadata some time after the log is there, before the first append
(UnifiedLog.maybeFlushMetadataFile); here, that would be on the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from oncelog_broker.runtime.disk import Disk


class NewDirectory:
    """Of one log. `begin` belongs to whoever makes the log; all else may be called in any thread, more than once."""

    __slots__ = ("_disk", "_files", "failure", "is_begun", "is_synced", "path")

    def __init__(self, disk: Disk, path: str, files: Mapping[str, bytes]) -> None:
        """`files`: by name, what is in it before all else."""
        self._disk = disk
        self._files = files
        self.path = path
        self.is_begun = False
        self.is_synced = False
        self.failure: OSError | None = None
        """Why it could not be synced. Trying again would prove nothing."""

    @classmethod
    def found(cls, disk: Disk, path: str, names: Iterable[str]) -> NewDirectory:
        """One that an earlier process may have made just before it was killed, with the files that it began with."""
        directory = cls(disk, path, dict.fromkeys(names, b""))
        directory.is_begun = True
        return directory

    def begin(self) -> None:
        """The directory was made, and is empty. Raises OSError."""
        for name, content in self._files.items():
            self._disk.replace_file(os.path.join(self.path, name), content, is_durable=False)
        self.is_begun = True

    def sync(self) -> None:
        """Have it on the disk, with what it began with. Raises OSError."""
        sync_together(self._disk, [self])
        if self.failure is not None:
            raise OSError(self.failure.errno, self.failure.strerror, self.path)

    def sync_content(self) -> None:
        """Without its own name. Raises OSError."""
        with suppress(FileNotFoundError):  # it was deleted meanwhile: nothing of it is to be durable
            for name in self._files:
                file = self._disk.open_briefly(os.path.join(self.path, name))
                try:
                    file.sync()
                finally:
                    file.close()
            self._disk.sync_directory(self.path)


def sync_together(disk: Disk, directories: Collection[NewDirectory]) -> None:
    """Sync them, and what they lie in once for all. What fails is in their `failure`."""
    unsynced = [directory for directory in directories if not directory.is_synced and directory.failure is None]
    for directory in unsynced:
        try:
            directory.sync_content()
        except OSError as error:
            directory.failure = error
    for home in {os.path.dirname(directory.path): None for directory in unsynced}:
        here = [directory for directory in unsynced if os.path.dirname(directory.path) == home]
        try:
            disk.sync_directory(home)
        except OSError as error:
            for directory in here:
                directory.failure = error
        for directory in here:
            directory.is_synced = directory.failure is None
