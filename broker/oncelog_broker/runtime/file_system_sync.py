"""Syncs an entire file system with one system call (Linux's syncfs), for a broker that stops with very many changed
logs: ten thousand logs have some seventy thousand files and directories to sync.

Since Linux 5.8, syncfs fails if any write to the file system has failed since the descriptor was opened. The descriptor
is therefore opened before the first write. Other systems, older kernels, and file systems that are not in
`FILE_SYSTEMS` do not report all failed writes, or do not sync at all (FUSE), so there each file is synced.

syncfs also waits for unsynced data of other programs on the same file system.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

FIRST_KERNEL: Final = (5, 8)
"""The first Linux whose syncfs reports failed writes."""
FILE_SYSTEMS: Final = frozenset({"ext4", "xfs", "f2fs", "tmpfs"})
"""File systems whose syncfs makes everything durable and reports failed writes. Btrfs is not among them, because a file
on a subvolume of Btrfs has another device number than the mount.
"""
MOUNTS: Final = "/proc/self/mountinfo"


class SystemSync:
    """Implements `disk.FileSystemSync` with syncfs."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> None:
        import ctypes  # imported here, because only a stop with very many logs needs it

        if ctypes.CDLL(None, use_errno=True).syncfs(self._descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self._path)

    def close(self) -> None:
        os.close(self._descriptor)


def watched_file_system(path: str) -> SystemSync | None:
    """Return an object that syncs the file system of the directory `path`; None if that is not possible."""
    try:
        if not reports_failures(sys.platform, os.uname().release):
            return None
        if file_system_type(os.fsdecode(Path(MOUNTS).read_bytes()), os.stat(path).st_dev) not in FILE_SYSTEMS:
            return None
        return SystemSync(path)
    except OSError:
        return None


def reports_failures(platform: str, release: str) -> bool:
    """Whether syncfs reports failed writes on this system. `release` is the kernel's release, such as "6.1.0-28"."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return platform == "linux" and found is not None and (int(found[1]), int(found[2])) >= FIRST_KERNEL


def file_system_type(mounts: str, device: int) -> str | None:
    """Return the type of the file system on `device`, from the content of /proc/self/mountinfo; None if it is not
    listed, or if several types are.
    """
    number, types = f"{os.major(device)}:{os.minor(device)}", set()
    for line in mounts.splitlines():
        mount, _, file_system = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) > 2 and fields[2] == number:
            types.add(file_system.split(" ")[0])
    return types.pop() if len(types) == 1 else None
