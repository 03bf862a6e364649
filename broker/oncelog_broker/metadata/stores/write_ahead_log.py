"""Checks whether the write-ahead log (`metadata.db-wal`) beside an embedded metadata store belongs to it.

SQLite applies any log beside its file: the log does not record for which file it was written. With a `metadata.db` that
was restored from a backup it would combine parts of two states into one, and nothing would show it.

So the file carries the *base* of its log, a random id, in the same row as the id of the last write:

- before the first commit to an empty log, a new base is written and folded into the file (`renew_if_due`);
- every commit rewrites the row, so a log that has any commit has its base;
- a log whose base is not that of the file was written for another state of the file (`check`).

A process may be killed after it has written a new base and before that is in the file. The row has the base before this
one until the first commit after it, and a log that follows that base belongs to the file, too.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import sqlite3

LOG_SUFFIX: Final = "-wal"
MAX_LOG_SIZE: Final = 4 << 20
"""Bytes. A longer log is folded into the file, and a new one is begun."""


class LogOfAnotherFile(Exception):
    """The log was not written for the file beside it. The message contains the remedy."""


class _Base(NamedTuple):
    base: str | None
    """None: the file is of a release that had none, or nothing was written since."""
    previous: str | None


def log_of(path: Path) -> Path:
    return path.with_name(path.name + LOG_SUFFIX)


def check(path: Path) -> None:
    """Before the store is opened, which applies the log. Changes nothing. LogOfAnotherFile, sqlite3.Error, OSError."""
    log = log_of(path)
    if not log.exists() or log.stat().st_size == 0:
        return
    if not path.exists():
        raise LogOfAnotherFile(
            f"{path} is missing, but {log}, the last writes of that metadata store, exists. Restore both as "
            f"they were at one moment. Without them, move {log.name} away too, and start again"
        )
    in_file, with_log = _read(path, "immutable=1"), _read(path, "mode=ro")
    if in_file.base is not None and in_file.base not in with_log:
        raise LogOfAnotherFile(
            f"{log} was not written for {path}: one of them was restored from a backup without the other, and together "
            f"they would be a mixture of two states. Put both back as they were at one moment. Or, to go on with "
            f"{path.name} as it is, move {log.name} away and start again: changes that are only in that file are lost"
        )


def _read(path: Path, how: str) -> _Base:
    """`immutable=1`: of the file alone. `mode=ro`: also reads its log. Raises sqlite3.Error."""
    import sqlite3

    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=0)
    try:
        return _Base(*connection.execute("SELECT base, previous_base FROM last_write").fetchone())
    except sqlite3.Error as error:
        if "no such column" in str(error) or how == "immutable=1":  # half of a fold that was cut short
            return _Base(None, None)
        raise
    finally:
        connection.close()


class LogBase:
    """Renews the base of an open store's log. Belongs to the thread that writes."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """The log is empty."""
        self._connection = connection
        self._log = log_of(path)
        self._is_due = True
        self._is_written = False
        """A new base is in the log and not yet in the file."""
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # it would begin a log with the base of the previous one

    def renew_if_due(self) -> None:
        """Begin a new write-ahead log if this one is too large. To be called before each commit. Raises sqlite3.Error;
        the data are unchanged then, and the next call tries again."""
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
        """A release before 0.2 can still use such a file."""
        found = {name for _, name, *_ in self._connection.execute("PRAGMA table_info(last_write)")}
        for name in ("base", "previous_base"):
            if name not in found:
                self._connection.execute(f"ALTER TABLE last_write ADD COLUMN {name} TEXT")
