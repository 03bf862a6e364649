"""Modes of the files and directories that a broker creates, whatever the umask is (S96).

Only its owner may enter a directory that we create, so only the owner can read the files in it. In a directory that
another user created (a volume, systemd's state directory), the group may read files too, but not secrets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Final

DIRECTORY_MODE: Final = 0o700
ABOVE_MODE: Final = 0o755
"""Mode of missing parents of our directories: others may traverse, but not write."""
FILE_MODE: Final = 0o640
SECRET_MODE: Final = 0o600
CHILD_UMASK: Final = 0o077
"""For child processes that create files themselves."""


def make_private_directory(path: str | Path) -> bool:
    """Create a directory that only its owner may enter, and missing parents. Returns False if it exists. OSError."""
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
    """`open`, with only the owner and the group able to read a file that this creates. Raises OSError."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, FILE_MODE))


def write_privately(path: Path, text: str) -> None:
    """Write a file with the mode that `opened_privately` gives. Raises OSError."""
    with opened_privately(path, "w") as file:
        file.write(text)


def readable_by_others(path: str | Path) -> bool:
    """Whether any user of the machine can read the file, by its mode and those of all directories above it. False if
    the file does not exist."""
    path = Path(os.path.abspath(path))
    try:
        return bool(path.stat().st_mode & 0o004) and all(above.stat().st_mode & 0o001 for above in path.parents)
    except OSError:
        return False
