"""A disk without syncs, for brokers that need not survive a power failure.

A restarted broker still finds all its data, because the operating system keeps written files even without a sync.
Syncing takes most of the time of a broker's start.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog_broker.runtime.disk import FileClosed, RealDisk, RealFile

__tracebackhide__ = True  # hides this module in the traceback of a failed test


class UnsyncedFile(RealFile):
    """A file whose sync does nothing."""

    __slots__ = ()

    def sync(self) -> None:
        """Sync nothing. Raises FileClosed if the file is closed."""
        if self._is_closed:
            raise FileClosed(f"{self.path} was closed before it could be synced")


class UnsyncedDisk(RealDisk):
    """The machine's file system, whose sync operations do nothing."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> UnsyncedFile:
        return UnsyncedFile(path, create=create)

    def sync_directory(self, path: str) -> None:
        """Do nothing, unlike the method of a real disk."""

    def watch_file_system(self, path: str) -> None:
        """Return None: no file system needs to be synced."""

    def replace_file(self, path: str, data: bytes, *, is_durable: bool = True, private: bool = False) -> None:
        super().replace_file(path, data, is_durable=False, private=private)

    def replace_files(self, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            self.replace_file(path, data)
