"""Sets the modes of the files and directories that a broker creates, independently of the umask (S96).

Only the owner may enter a directory that the broker creates, so only the owner can read the files in it. In a directory
that another user created (a volume, systemd's state directory), the group may also read files, except secrets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Final

DIRECTORY_MODE: Final = 0o700
ABOVE_MODE: Final = 0o755
"""Mode of the missing parents of directories that the broker creates: others may traverse them, but not write."""
FILE_MODE: Final = 0o640
SECRET_MODE: Final = 0o600
CHILD_UMASK: Final = 0o077
"""The umask for child processes that create files themselves."""


def make_private_directory(path: str | Path) -> bool:
    """Create a directory that only its owner may enter, and its missing parents. Returns False if the directory exists.
    Raises OSError.
    """
    try:
        return _make(os.fspath(path), DIRECTORY_MODE)
    except FileNotFoundError:
        pass  # a parent is missing
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
    """Open a file; only the owner and the group can read a file that this call creates. Raises OSError."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, FILE_MODE))


def write_privately(path: Path, text: str) -> None:
    """Write a file that only the owner and the group can read. Raises OSError."""
    with opened_privately(path, "w") as file:
        file.write(text)


def readable_by_others(path: str | Path) -> bool:
    """Whether any user of the machine can read the file, according to its mode and the modes of all directories above
    it. Returns False if the file does not exist.
    """
    path = Path(os.path.abspath(path))
    try:
        return bool(path.stat().st_mode & 0o004) and all(above.stat().st_mode & 0o001 for above in path.parents)
    except OSError:
        return False
