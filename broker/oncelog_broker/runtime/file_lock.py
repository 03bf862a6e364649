"""The lock on a data directory, which prevents that two brokers use the directory at the same time."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from oncelog_broker.runtime.private_files import FILE_MODE


class LockHeld(RuntimeError):
    """The directory is already open in another process, or in this one."""


class FileLock:
    """A lock on a file by fcntl.lockf. Kafka's FileLock uses the same lock, so this broker and Kafka cannot open a
    directory at the same time.

    Locks by fcntl belong to the process: a second lock by the same process would succeed, and closing any descriptor of
    the file would release the lock. The locks of this process are therefore remembered, and checked before the file is
    opened: by path, and by device and inode, which are equal if a directory is mounted twice.
    """

    _held: dict[str | tuple[int, int], str] = {}  # noqa: RUF012 - shared on purpose, see above
    """Maps the real path of each lock file, and also its pair of device and inode, to the path of its directory as
    configured.
    """

    __slots__ = ("_descriptor", "_keys")

    def __init__(self, path: str) -> None:
        directory = os.path.dirname(path)
        real = os.path.realpath(path)
        keys: list[str | tuple[int, int]] = [real]
        with suppress(FileNotFoundError):
            keys.append(_identity(os.stat(path)))
        other = next((self._held[key] for key in keys if key in self._held), None)
        if other is not None:
            raise LockHeld(
                f"{directory} is already open in this process as {other}: log.dirs must name each directory "
                "once, also if it has two names (a symbolic link, a volume that is mounted twice), and each "
                "broker needs its own data directories"
            )
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise LockHeld(
                f"{os.path.dirname(real)} is locked by another process: stop the broker that uses it (`fuser "
                f"{real}` names it), or configure another data directory for this broker"
            ) from error
        self._keys = (real, _identity(os.fstat(descriptor)))
        for key in self._keys:
            self._held[key] = directory
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            for key in self._keys:
                self._held.pop(key, None)


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Return (device, inode) of an open file, which is equal for all names of the file."""
    return status.st_dev, status.st_ino
