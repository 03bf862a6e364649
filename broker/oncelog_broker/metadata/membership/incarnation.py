"""The file that a broker leaves in its data directory for its next process: it contains the key of the broker's
session, and the boot id of the machine (an id of the machine's last start).

The file is `.oncelog-session`, in the first data directory when the file is created. The next process locks the
directory, and then uses the file to end the previous process's session. A broker that was killed can therefore register
again immediately, and ZooKeeper fences a previous process that is only paused. The file contains the session's
password, with which any reader of the file could end the session, so only the file's owner may read the file.

The boot id shows whether an unclean shutdown may have lost data. If the machine was not restarted, no data is lost,
because the page cache still has all writes of the killed process. After a reboot, unsynced data may be
lost, and the broker reports the possible loss when it registers. The file records a possible loss until the broker has
registered. If a process ends before it has registered, the next process reads the record, even after a clean shutdown.
Source for the boot id: random(4), /proc/sys/kernel/random/boot_id.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from oncelog_broker.identity.note import has_lost_sister
from oncelog_broker.metadata.stores.store import MetadataStore, SessionKey, StoreUnavailable
from oncelog_broker.runtime.disk import Disk

SESSION_FILE: Final = ".oncelog-session"
FILE_VERSION: Final = 1

_log = logging.getLogger(__name__)


class Trace(NamedTuple):
    """The content of the file, which describes the previous process. `key` is None if that process had no session that
    can be ended.
    """

    key: SessionKey | None
    boot: str
    is_log_tail_kept: bool = True
    """Whether the logs certainly still have their last records. False means that records may have been lost, and that
    no registration has reported the loss yet.
    """


def read_trace(disk: Disk, directory: str) -> Trace | None:
    """Read the file that the previous process left; returns None if the file is missing or unreadable. Without the
    file, this broker must wait for the timeout of the old session. Raises OSError.
    """
    path = os.path.join(directory, SESSION_FILE)
    if not disk.exists(path):
        return None
    try:
        document = json.loads(disk.read_file(path))
        session = document["session"]
        key = None if session is None else SessionKey(int(session, 16), bytes.fromhex(document["password"]))
        return Trace(key, str(document["boot"]), document.get("log_tail", "kept") == "kept")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("%s cannot be read: %s", path, error)
        return None


def leave_trace(disk: Disk, directory: str, trace: Trace) -> None:
    """Write the file for the next process; call this before the session creates ephemeral nodes, so that the next
    process can always end the session. Raises OSError.
    """
    document = {
        "version": FILE_VERSION,
        "session": None if trace.key is None else hex(trace.key.session_id),
        "password": None if trace.key is None else trace.key.password.hex(),
        "boot": trace.boot,
        "log_tail": "kept" if trace.is_log_tail_kept else "unsure",
    }
    disk.replace_file(os.path.join(directory, SESSION_FILE), json.dumps(document).encode(), private=True)


def is_log_tail_kept(trace: Trace | None, boot: str, *, was_closed_cleanly: bool) -> bool:
    """Whether everything that the previous process wrote to its logs certainly still exists."""
    if trace is None:
        return was_closed_cleanly
    return trace.is_log_tail_kept and (was_closed_cleanly or (boot != "" and trace.boot == boot))


def trace_directory(disk: Disk, directories: Sequence[str]) -> str:
    """Return the data directory that contains the file of the previous process. If no directory has the file, the
    result is the first directory. If several directories have the file, because log.dirs had another order before, the
    result is the directory whose file was written last. Raises OSError.
    """
    found = [each for each in directories if disk.exists(os.path.join(each, SESSION_FILE))]
    return max(found, key=lambda each: disk.modified_ms(os.path.join(each, SESSION_FILE)), default=directories[0])


class Predecessor:
    """The previous process that used the data directory, which this process has locked now."""

    def __init__(
        self,
        store: MetadataStore,
        disk: Disk,
        directory: str,
        *,
        was_closed_cleanly: bool,
        is_whole: bool | None = None,
    ) -> None:
        """Create this object at startup, before this process closes any log: a log that this process has closed would
        look as if the previous process had closed it. Raises OSError.

        `is_whole` is True if no data directory of the broker is missing, each directory is in its newest state, and
        recovery has removed no end of a log. If `is_whole` is None, it is computed from the identity note in
        `directory`, which lists the other directories.
        """
        self._store = store
        self._disk = disk
        self._directory = directory
        self._trace = read_trace(disk, directory)
        self.boot = disk.boot_id()
        """The id of the machine's present boot."""
        is_alone = store.session_key is None
        if is_whole is None:
            is_whole = not has_lost_sister(disk, directory)
        self.is_log_tail_kept = is_alone or (
            is_whole and is_log_tail_kept(self._trace, self.boot, was_closed_cleanly=was_closed_cleanly)
        )
        """Whether the logs certainly still have their last records. False after an unclean shutdown that may have lost
        records, until a registration has reported this. Always True for a single broker, because no other broker could
        have more records.
        """
        if not self.is_log_tail_kept:
            self._leave(None if self._trace is None else self._trace.key)

    async def end_session(self) -> None:
        """End the session of the previous process. The ephemeral nodes of that session are deleted now, or at the
        latest after the session timeout.
        """
        if self._trace is None or self._trace.key is None:
            return
        try:
            await self._store.end_session(self._trace.key)
        except StoreUnavailable as error:
            _log.warning("the session of the previous process of this broker could not be closed: %s", error)

    def leave_trace(self) -> None:
        """Write the file for the next process of this broker; called for every new session, before the broker registers
        in it. Raises OSError.
        """
        self._leave(self._store.session_key)

    def on_registered(self) -> None:
        """Remember that a registration has reported the state of the logs, which the metadata store keeps from now on.
        Raises OSError.
        """
        if self.is_log_tail_kept:
            return
        self.is_log_tail_kept = True
        self._leave(self._store.session_key)

    def _leave(self, key: SessionKey | None) -> None:
        leave_trace(self._disk, self._directory, Trace(key, self.boot, self.is_log_tail_kept))
