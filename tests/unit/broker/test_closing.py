"""When a broker stops, its logs are closed in threads while the event loop ends connections."""

from __future__ import annotations

import errno
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.assembly.storage import Storage
from oncelog_broker.metadata.membership.registration import Membership


class Logs:
    broker_epoch = -1

    cut_at_start: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.done: list[tuple[str, bool]] = []
        """Records for each call its name, and whether the call ran on the event loop."""

    def _note(self, what: str) -> None:
        self.done.append((what, threading.current_thread() is threading.main_thread()))

    def checkpoint_high_watermarks(self, high_watermarks: dict[tuple[str, int], int]) -> None:
        self._note("high watermarks")

    def close(self, *, broker_epoch: int, is_clean: bool) -> None:
        assert is_clean
        assert broker_epoch == self.broker_epoch, "it stands in the note of the clean shutdown"
        self._note("logs")


class FullDisk(Logs):
    def checkpoint_high_watermarks(self, high_watermarks: dict[tuple[str, int], int]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


class Store:
    last_zxid = 5
    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


def storage(logs: Logs, data: Any = None) -> Storage:
    settings, predecessor = SimpleNamespace(), SimpleNamespace(is_log_tail_kept=True, on_registered=lambda: None)
    return Storage(settings, data, Store(), logs, predecessor, {})  # type: ignore[arg-type]


async def test_logs_are_closed_though_the_high_watermarks_cannot_be_written() -> None:
    made = storage(FullDisk())
    await made.note_high_watermarks({})
    await made.close()
    assert made.logs.done == [("logs", False)]  # type: ignore[attr-defined]
    assert made.store.is_closed  # type: ignore[attr-defined]


async def test_no_step_of_closing_blocks_the_event_loop_on_the_disk() -> None:
    made = storage(Logs())
    await made.note_high_watermarks({})
    await made.close()
    assert made.logs.done == [("high watermarks", False), ("logs", False)]  # type: ignore[attr-defined]


async def test_the_note_of_the_clean_shutdown_has_the_broker_epoch_and_the_directories_the_stores_last_write() -> None:
    logs, noted = Logs(), []

    async def note_registered(membership: Membership, zxid: int) -> None:
        pass

    async def note_seen(zxid: int) -> None:
        noted.append((zxid, list(logs.done)))

    logs.broker_epoch = 17
    made = storage(logs, SimpleNamespace(note_registered=note_registered, note_seen=note_seen))
    await made.on_registered(Membership("c", 17, 0, founded=False))
    await made.note_high_watermarks({})
    await made.close()
    assert noted == [(5, [("high watermarks", False)])], "before the directories are unlocked"
    assert logs.done == [("high watermarks", False), ("logs", False)]


async def test_the_store_is_closed_though_its_last_write_cannot_be_noted() -> None:
    async def note_registered(membership: Membership, zxid: int) -> None:
        pass

    async def note_seen(zxid: int) -> None:
        raise RuntimeError("what nobody thought of")

    logs = Logs()
    logs.broker_epoch = 17
    made = storage(logs, SimpleNamespace(note_registered=note_registered, note_seen=note_seen))
    await made.on_registered(Membership("c", 17, 0, founded=False))
    with pytest.raises(RuntimeError):
        await made.close()
    assert made.store.is_closed, "the session does not outlive the broker"  # type: ignore[attr-defined]
    assert logs.done == [("logs", False)]
