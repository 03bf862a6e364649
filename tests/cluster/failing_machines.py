"""Simulates machines whose disk is full or fails, or whose clock jumps: tests control this with files beside the data
directory of a broker.

If the file `DATA.full` exists, the disk is full; if `DATA.broken` exists, every write fails. `DATA.clock` contains by
how many seconds the clock is wrong. The simulation needs no privileges, no special file system and no library: when the
broker starts, the functions that access the machine are replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SITECUSTOMIZE = '''
import errno, os, sys, time
from oncelog_broker.runtime.disk import RealDisk, RealFile

append, replace_file, time_ns = RealFile.append, RealDisk.replace_file, time.time_ns

def check(path):
    directory = os.path.dirname(path)
    while len(directory) > 1:
        for suffix, error in ((".full", errno.ENOSPC), (".broken", errno.EIO)):
            if os.path.exists(directory + suffix):
                raise OSError(error, os.strerror(error), path)
        directory = os.path.dirname(directory)

def append_where_there_is_room(self, *buffers):
    check(self.path)
    return append(self, *buffers)

def replace_where_there_is_room(self, path, *arguments, **options):
    check(path)
    return replace_file(self, path, *arguments, **options)

class Jumping:
    """A file is looked at a few times in a second, not with each record."""
    looked, wrong_by = 0.0, 0

    def __call__(self):
        now = time.monotonic()
        if now > self.looked + 0.05 and "--data" in sys.argv:
            self.looked = now
            try:
                with open(sys.argv[sys.argv.index("--data") + 1] + ".clock") as file:
                    self.wrong_by = int(float(file.read() or "0") * 1e9)
            except OSError:
                self.wrong_by = 0
        return time_ns() + self.wrong_by

RealFile.append, RealDisk.replace_file = append_where_there_is_room, replace_where_there_is_room
time.time_ns = Jumping()
'''


@contextmanager
def machines_that_fail(directory: Path) -> Iterator[None]:
    """Let the brokers that start in this block run on such simulated machines. `directory` gets a Python module that
    replaces the functions of the brokers that access the machine.
    """
    (directory / "sitecustomize.py").write_text(SITECUSTOMIZE)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(directory), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def fill_disk(data: Path) -> None:
    Path(f"{data}.full").touch()


def make_room(data: Path) -> None:
    Path(f"{data}.full").unlink(missing_ok=True)


def break_disk(data: Path) -> None:
    Path(f"{data}.broken").touch()


def mend_disk(data: Path) -> None:
    Path(f"{data}.broken").unlink(missing_ok=True)


def set_clock(data: Path, wrong_by: float) -> None:
    """Set how many seconds the broker's clock is ahead of the true time; a negative number means that it is behind."""
    Path(f"{data}.clock").write_text(str(wrong_by))
