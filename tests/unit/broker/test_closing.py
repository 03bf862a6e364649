"""The end of a broker: its logs are closed beside the event loop, which still ends connections meanwhile."""

from __future__ import annotations

import errno
import threading
from types import SimpleNamespace
from typing import Any

from oncelog_broker.broker import Broker


class Logs:
    broker_epoch = -1

    def __init__(self) -> None:
        self.done: list[tuple[str, bool]] = []
        """And whether that was on the event loop."""

    def _note(self, what: str) -> None:
        self.done.append((what, threading.current_thread() is threading.main_thread()))

    def checkpoint_high_watermarks(self, high_watermarks: dict[tuple[str, int], int]) -> None:
        self._note("high watermarks")

    def close(self, *, broker_epoch: int) -> None:
        assert broker_epoch == self.broker_epoch, "it stands in the note of the clean shutdown"
        self._note("logs")


class FullDisk(Logs):
    def checkpoint_high_watermarks(self, high_watermarks: dict[tuple[str, int], int]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_logs_are_closed_though_the_high_watermarks_cannot_be_written() -> None:
    broker: Any = SimpleNamespace(logs=FullDisk(), replicas=SimpleNamespace(high_watermarks=dict))
    await Broker._close_logs(broker)
    assert broker.logs.done == [("logs", False)]


async def test_nothing_on_the_event_loop_waits_for_the_disk() -> None:
    broker: Any = SimpleNamespace(logs=Logs(), replicas=SimpleNamespace(high_watermarks=dict))
    await Broker._close_logs(broker)
    assert broker.logs.done == [("high watermarks", False), ("logs", False)]


async def test_the_note_of_the_clean_shutdown_has_the_broker_epoch_and_the_directories_the_stores_last_write() -> None:
    logs, noted = Logs(), []

    async def note_store() -> None:
        noted.append(list(logs.done))

    logs.broker_epoch = 17
    member = SimpleNamespace(broker_epoch=17)
    replicas = SimpleNamespace(high_watermarks=dict)
    broker: Any = SimpleNamespace(logs=logs, replicas=replicas, member=member, _note_store=note_store)
    await Broker._close_logs(broker)
    assert noted == [[("high watermarks", False)]], "before the directories are unlocked"
    assert logs.done == [("high watermarks", False), ("logs", False)]
