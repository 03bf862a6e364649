"""What counts as progress of a worker, and when a worker without progress hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from oncelog_broker import serve
from oncelog_broker.workers.hang_watch import BEAT, HangWatch, activity

SECONDS = 30.0
TIMER = "import time\nwhile True: time.sleep(0.01)"
THREAD = f"import threading\nthreading.Thread(target=lambda: exec({TIMER!r})).start()\nthreading.Event().wait()"


def test_a_worker_hangs_after_so_many_checks_without_progress() -> None:
    watch = HangWatch()
    assert [watch.is_hung(progress, 2) for progress in (1, 1, 2, 2, 2)] == [False, False, False, False, True]


def test_unknown_progress_counts_as_progress() -> None:
    watch = HangWatch()
    assert not any(watch.is_hung(progress, 2) for progress in (1, 1, None, None, None, None, 1, 1))


@pytest.fixture(params=[TIMER, THREAD], ids=["main thread", "another thread"])
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", request.param])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="only Linux has these numbers")
def test_a_process_is_active_while_any_of_its_threads_runs(process: subprocess.Popen[bytes]) -> None:
    def until(is_active: bool) -> None:
        """Wait until two successive numbers differ, or are the same."""
        deadline = time.monotonic() + SECONDS
        before = activity(process.pid)
        while time.monotonic() < deadline:
            time.sleep(0.1)
            now = activity(process.pid)
            if (now != before) is is_active:
                return
            before = now
        raise AssertionError(f"the process is {'not ' * is_active}active")

    until(is_active=True)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    until(is_active=False)
    assert activity(process.pid) == activity(process.pid)
    process.send_signal(signal.SIGCONT)
    until(is_active=True)


def test_a_process_that_has_ended_has_no_activity() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert activity(process.pid) is None


async def test_a_worker_writes_lines_and_continues_when_nobody_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog_broker.workers.hang_watch.BEAT_SECONDS", 0.0)
    reader, writer = os.pipe()
    monkeypatch.setattr(serve, "sys", SimpleNamespace(stdout=SimpleNamespace(fileno=lambda: writer)))
    beating = asyncio.create_task(serve._beat())
    try:
        assert await asyncio.to_thread(os.read, reader, len(BEAT)) == BEAT
        os.set_blocking(writer, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writer, BEAT * 1_000)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not beating.done()
        os.close(reader)
        reader = -1
        for _ in range(100):
            await asyncio.sleep(0)
        assert not beating.done()
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        os.close(writer)
        if reader >= 0:
            os.close(reader)
