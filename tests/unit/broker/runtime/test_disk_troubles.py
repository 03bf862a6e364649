"""A disk that fails repeatedly does not flood the log with messages."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk_troubles import COUNT_SECONDS, QUIET_SECONDS, DiskTroubles, is_known_disk_error
from oncelog_broker.runtime.tasks import Tasks

FULL = OSError(errno.ENOSPC, "No space left on device")
WHERE = "/data/a"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def troubles(clock: ManualClock) -> DiskTroubles:
    return DiskTroubles(clock)


def test_e49_disk_trouble_is_logged_at_its_start_at_intervals_and_at_its_end(
    troubles: DiskTroubles, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    news = 0
    for _ in range(int(2 * COUNT_SECONDS) + 1):
        for _ in range(50):
            news += troubles.note_failure(WHERE, "append to", FULL)
        troubles.report()
        clock.advance_ms(1000)
    assert news == 1
    assert [record.message for record in caplog.records] == ["a disk keeps failing"] * 2
    clock.advance_ms(int(QUIET_SECONDS * 1000))
    troubles.report()
    over = caplog.records[-1]
    assert over.message == "a disk works again"
    assert (over.__dict__["directory"], over.__dict__["failed_to"], over.__dict__["times"]) == (
        WHERE,
        "append to",
        6050,
    )
    troubles.report()
    assert len(caplog.records) == 3
    assert troubles.note_failure(WHERE, "append to", FULL), "it begins again"


def test_e49_trouble_of_another_disk_task_or_error_is_logged_separately(troubles: DiskTroubles) -> None:
    broken = OSError(errno.EIO, "Input/output error")
    assert troubles.note_failure(WHERE, "append to", FULL)
    for where, what, error in (("/data/b", "append to", FULL), (WHERE, "flush", FULL), (WHERE, "append to", broken)):
        assert troubles.note_failure(where, what, error)
        assert not troubles.note_failure(where, what, error)
    assert all(troubles.note_failure(WHERE, "append to", FileNotFoundError(errno.ENOENT, "gone")) for _ in range(2))


def test_known_disk_errors_need_no_stack_trace() -> None:
    assert is_known_disk_error(FULL)
    assert not is_known_disk_error(FileNotFoundError(errno.ENOENT, "gone"))
    assert not is_known_disk_error(ValueError())
    assert not is_known_disk_error(None)


async def test_e49_a_periodic_task_that_a_disk_fails_has_no_stack_traces(caplog: pytest.LogCaptureFixture) -> None:
    tasks, turns = Tasks(), 0
    done = asyncio.Event()

    async def checkpoint() -> None:
        nonlocal turns
        turns += 1
        if turns <= 25:
            raise OSError(errno.ENOSPC, "No space left on device", "/data/a/checkpoint")
        done.set()

    tasks.every("a checkpoint", 0.0, checkpoint)
    await asyncio.wait_for(done.wait(), 20)
    await asyncio.sleep(0)
    await tasks.close()
    lines = [record.message for record in caplog.records]
    assert lines == ["background task failed, retrying", "background task works again"]
    assert "Traceback" not in caplog.text
    assert caplog.records[-1].__dict__["failed_times"] == 25


async def test_an_unknown_disk_error_keeps_its_stack_trace(caplog: pytest.LogCaptureFixture) -> None:
    tasks, done, turns = Tasks(), asyncio.Event(), 0

    async def broken() -> None:
        nonlocal turns
        turns += 1
        if turns == 3:
            done.set()
        raise ValueError("a defect")

    tasks.every("a task", 0.0, broken)
    await asyncio.wait_for(done.wait(), 20)
    await tasks.close()
    assert caplog.text.count("Traceback") >= 2
