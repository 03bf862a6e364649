"""A disk whose fsyncs of log files wait until the test lets them end."""

from __future__ import annotations

import asyncio
import errno
import threading

from oncelog_broker.runtime.disk import RealDisk, RealFile


class SlowFile(RealFile):
    __slots__ = ("disk",)
    disk: SlowDisk

    def sync(self) -> None:
        if self.path.endswith(".log"):
            self.disk.syncs.append(threading.current_thread())
            self.disk.has_begun.set()
            assert self.disk.may_end.wait(20)
            if self.disk.fails:
                raise OSError(errno.EIO, "Input/output error", self.path)
        super().sync()


class SlowDisk(RealDisk):
    """A disk whose fsyncs of log files wait until `may_end` is set. While `fails` is set, these fsyncs fail after the
    wait.
    """

    __slots__ = ("fails", "has_begun", "may_end", "syncs")

    def __init__(self) -> None:
        self.syncs: list[threading.Thread] = []
        """The thread in which each fsync ran, in order."""
        self.fails = False
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def open(self, path: str, *, create: bool = False) -> SlowFile:
        file = SlowFile(path, create=create)
        file.disk = self
        return file

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.has_begun.wait, 20)
