"""The trace that a broker leaves in its data directory for its next process: its session, and the boot in which it ran.

The file `.oncelog-session` in a data directory (the first one, when the file is created) lets the next process, which
holds the directory's lock, end the session of the previous one: a broker that was killed registers again at once, and
one that is only paused is fenced by ZooKeeper itself. The file has the session's password, with which any reader could
do the same, so it is readable for its owner only.

The boot id shows what an unclean stop may have lost. In the same boot nothing is lost: the writes of a process are in
the page cache. After another boot, unsynced data may be lost, and the broker reports that when it registers. The file
says so until then: a process that ends before it has registered, and however cleanly, does not take it from its
successor. Source for the boot id: random(4), /proc/sys/kernel/random/boot_id.
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
    """The trace of the previous process. `key` is None if it had no session that can be ended."""

    key: SessionKey | None
    boot: str
    is_log_tail_kept: bool = True
    """False: records may have been lost, and no registration has said so yet."""


def read_trace(disk: Disk, directory: str) -> Trace | None:
    """None if the trace is missing or unreadable: then the old session ends by itself. OSError."""
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
    """To be called before the session makes anything that its successor may have to end. OSError."""
    document = {
        "version": FILE_VERSION,
        "session": None if trace.key is None else hex(trace.key.session_id),
        "password": None if trace.key is None else trace.key.password.hex(),
        "boot": trace.boot,
        "log_tail": "kept" if trace.is_log_tail_kept else "unsure",
    }
    disk.replace_file(os.path.join(directory, SESSION_FILE), json.dumps(document).encode(), private=True)


def is_log_tail_kept(trace: Trace | None, boot: str, *, was_closed_cleanly: bool) -> bool:
    """Whether everything that the previous process wrote to its logs must still exist."""
    if trace is None:
        return was_closed_cleanly
    return trace.is_log_tail_kept and (was_closed_cleanly or (boot != "" and trace.boot == boot))


def trace_directory(disk: Disk, directories: Sequence[str]) -> str:
    """The data directory with the trace: the first one if none has it; the one that was written last if several have
    it, since log.dirs had another order then. OSError."""
    found = [each for each in directories if disk.exists(os.path.join(each, SESSION_FILE))]
    return max(found, key=lambda each: disk.modified_ms(os.path.join(each, SESSION_FILE)), default=directories[0])


class Predecessor:
    """The process that had the data directory before this one, which holds its lock now."""

    def __init__(
        self,
        store: MetadataStore,
        disk: Disk,
        directory: str,
        *,
        was_closed_cleanly: bool,
        is_whole: bool | None = None,
    ) -> None:
        """To be made before the logs can be closed again: from then on they were closed cleanly, by us. OSError.

        `is_whole`: whether the data directories are all that the broker had, in their newest state. None: decided by
        the note in `directory` about the others."""
        self._store = store
        self._disk = disk
        self._directory = directory
        self._trace = read_trace(disk, directory)
        self.boot = disk.boot_id()
        """The present boot of the machine."""
        is_alone = store.session_key is None
        if is_whole is None:
            is_whole = not has_lost_sister(disk, directory)
        self.is_log_tail_kept = is_alone or (
            is_whole and is_log_tail_kept(self._trace, self.boot, was_closed_cleanly=was_closed_cleanly)
        )
        """False from an unclean stop until a registration has said it. No other broker has more than one that is
        alone."""
        if not self.is_log_tail_kept:
            self._leave(None if self._trace is None else self._trace.key)

    async def end_session(self) -> None:
        """When this returns the session's ephemeral nodes are gone, or will go by themselves within the session
        timeout."""
        if self._trace is None or self._trace.key is None:
            return
        try:
            await self._store.end_session(self._trace.key)
        except StoreUnavailable as error:
            _log.warning("the session of the process before this one was not ended: %s", error)

    def leave_trace(self) -> None:
        """For our own successor; again with every new session, before it registers. OSError."""
        self._leave(self._store.session_key)

    def on_registered(self) -> None:
        """The registration has reported the state of the logs, and the store keeps it. OSError."""
        if self.is_log_tail_kept:
            return
        self.is_log_tail_kept = True
        self._leave(self._store.session_key)

    def _leave(self, key: SessionKey | None) -> None:
        leave_trace(self._disk, self._directory, Trace(key, self.boot, self.is_log_tail_kept))
