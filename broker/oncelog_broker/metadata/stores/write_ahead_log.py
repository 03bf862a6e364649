"""Checks whether the write-ahead log (`metadata.db-wal`) beside an embedded metadata store belongs to that store.

SQLite applies any log that lies beside its file, because the log does not record for which file it was written. If
`metadata.db` was restored from a backup, SQLite would combine parts of two states into one, and no error would show the
mixture.

The file therefore stores the *base* of its log, a random id, in the same row as the id of the last write:

- before the first commit to an empty log, a new base is written and moved into the file (`renew_if_due`);
- every commit rewrites the row, so that a log with any commit contains its base;
- a log whose base differs from the file's base was written for another state of the file (`check`).

A process may be killed after it has written a new base to the log and before that base is in the file. Until the first
commit, the row therefore also has the previous base. A log whose previous base equals the file's base belongs to the
file, too.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog_protocol.light_classes import NamedTuple

if TYPE_CHECKING:
    import sqlite3

LOG_SUFFIX: Final = "-wal"
MAX_LOG_SIZE: Final = 4 << 20
"""Maximum bytes of a log. The content of a longer log is moved into the file, and a new log begins."""


class LogOfAnotherFile(Exception):
    """The log was not written for the file beside it. The message of this error contains the remedy."""


class _Base(NamedTuple):
    base: str | None
    """The base of the write-ahead log. None if a release without bases has written the file, and this release has not
    written to the file yet.
    """
    previous: str | None


def log_of(path: Path) -> Path:
    return path.with_name(path.name + LOG_SUFFIX)


def check(path: Path) -> None:
    """Check the log before the store is opened, because opening applies the log. The check changes no file. Raises
    LogOfAnotherFile, sqlite3.Error, OSError.
    """
    log = log_of(path)
    if not log.exists() or log.stat().st_size == 0:
        return
    if not path.exists():
        raise LogOfAnotherFile(
            f"{path} is missing, but {log}, the last writes of that metadata store, exists. Restore both files "
            f"from the same moment. If you cannot restore them, move {log.name} away, too, and start again"
        )
    in_file, with_log = _read(path, "immutable=1"), _read(path, "mode=ro")
    if in_file.base is not None and in_file.base not in with_log:
        raise LogOfAnotherFile(
            f"{log} was not written for {path}: one of them was restored from a backup without the other, and "
            "together they would be a mixture of two states. Restore both files from the same moment. Or, to "
            f"continue with {path.name} as it is, move {log.name} away and start again: changes that are only "
            f"in {log.name} are lost"
        )


def _read(path: Path, how: str) -> _Base:
    """Read the bases of the store. If `how` is "immutable=1", SQLite reads only the file; if "mode=ro", SQLite also
    reads the file's log. Raises sqlite3.Error.
    """
    import sqlite3

    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=0)
    try:
        return _Base(*connection.execute("SELECT base, previous_base FROM last_write").fetchone())
    except sqlite3.Error as error:
        if "no such column" in str(error) or how == "immutable=1":  # the move of this log into the file was interrupted
            return _Base(None, None)
        raise
    finally:
        connection.close()


class LogBase:
    """Renews the base of an open store's write-ahead log. An instance belongs to the thread that writes to the
    store."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """The write-ahead log must be empty when this object is created."""
        self._connection = connection
        self._log = log_of(path)
        self._is_due = True
        self._is_written = False
        """Whether a new base is in the log but not yet in the file."""
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # otherwise a commit might begin a log with the old base

    def renew_if_due(self) -> None:
        """Begin a new write-ahead log if the present one is too large. Call this before each commit. Raises
        sqlite3.Error; the data are then unchanged, and the next call tries again.
        """
        if not self._is_due and os.path.getsize(self._log) > MAX_LOG_SIZE:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._is_due = True
        if not self._is_due:
            return
        if not self._is_written:
            self._add_columns()
            self._connection.execute("UPDATE last_write SET previous_base = base, base = ?", (uuid.uuid4().hex,))
            self._is_written = True
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._is_written = self._is_due = False

    def _add_columns(self) -> None:
        """Add the columns for the bases to the table. Releases before 0.2 can still use a file with these columns."""
        found = {name for _, name, *_ in self._connection.execute("PRAGMA table_info(last_write)")}
        for name in ("base", "previous_base"):
            if name not in found:
                self._connection.execute(f"ALTER TABLE last_write ADD COLUMN {name} TEXT")
