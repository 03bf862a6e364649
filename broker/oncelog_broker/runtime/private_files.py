"""Who may read what a broker makes, whatever the umask is (S96).

A directory that we make is its owner's alone, so whatever lies in it is, too. Files in a directory that somebody else
has made (a volume, systemd's state directory) may be read by its group at most, and secrets by nobody but their owner.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Final

DIRECTORY_MODE: Final = 0o700
ABOVE_MODE: Final = 0o755
"""Of directories that are made because one of ours lies in them: others may pass, and not write."""
FILE_MODE: Final = 0o640
SECRET_MODE: Final = 0o600
CHILD_UMASK: Final = 0o077
"""Of processes that we start and whose files we do not open ourselves."""


def make_private_directory(path: str | Path) -> bool:
    """Make a directory that is its owner's alone, and those that it lies in; False if it is there. Raises OSError."""
    path = os.path.abspath(path)
    missing: list[str] = []
    above = os.path.dirname(path)
    while not os.path.isdir(above) and above != os.path.dirname(above):
        missing.append(above)
        above = os.path.dirname(above)
    for each in reversed(missing):
        _make(each, ABOVE_MODE)
    return _make(path, DIRECTORY_MODE)


def _make(path: str, mode: int) -> bool:
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    return True


def opened_privately(path: Path, mode: str) -> IO[Any]:
    """`open`; a file that this makes may be read by its group at most. Raises OSError."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, FILE_MODE))


def write_privately(path: Path, text: str) -> None:
    """Set the content of a file, as `opened_privately` makes it. Raises OSError."""
    with opened_privately(path, "w") as file:
        file.write(text)


def readable_by_others(path: str | Path) -> bool:
    """Whether any user of the machine may read the file, which takes every directory above it, too; False where there
    is none."""
    path = Path(os.path.abspath(path))
    try:
        return bool(path.stat().st_mode & 0o004) and all(above.stat().st_mode & 0o001 for above in path.parents)
    except OSError:
        return False
