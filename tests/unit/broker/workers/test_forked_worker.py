"""A template process forks the workers: the tests check the workers' output streams, how they end, and what happens
when the template process is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncelog_broker.workers import forked_worker, template_process
from oncelog_broker.workers.forked_worker import ForkedWorker, Template
from oncelog_broker.workers.hang_watch import BEAT
from oncelog_broker.workers.worker_role import WorkerRole

SECONDS = 60.0
ROLE = WorkerRole(7, ())
BROKER = ("serve", "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--stop-at-eof")


@pytest.fixture
async def template() -> AsyncIterator[Template]:
    made = Template()
    yield made
    async with asyncio.timeout(SECONDS):
        await made.close()


async def serving(template: Template, data: Path) -> ForkedWorker:
    """A forked broker that has reported that it is ready to serve."""
    async with asyncio.timeout(SECONDS):
        worker = await template.fork([*BROKER, "--data", str(data)], ROLE, None)
        assert b" ready on " in await worker.stdout.readline()
    return worker


async def ended(worker: ForkedWorker) -> int | None:
    async with asyncio.timeout(SECONDS):
        return await worker.wait()


async def test_a_worker_has_its_name_and_ends_with_a_code(template: Template, tmp_path: Path) -> None:
    worker = await serving(template, tmp_path)
    assert Path(f"/proc/{worker.pid}/comm").read_text() == "oncelog-7\n"
    worker.send_signal(signal.SIGTERM)
    assert await ended(worker) == 0
    worker.send_signal(signal.SIGTERM)  # the process has already ended, so this has no effect
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_the_ends_of_several_workers_are_told_apart(template: Template, tmp_path: Path) -> None:
    refused = await template.fork(["serve", "--no-such-option"], ROLE, None)
    killed = await serving(template, tmp_path)
    assert await ended(refused) == 2
    killed.send_signal(signal.SIGKILL)
    assert await ended(killed) == -signal.SIGKILL


async def test_a_killed_template_process_leaves_workers_alone_and_is_replaced(
    template: Template, tmp_path: Path
) -> None:
    first = await serving(template, tmp_path / "first")
    assert template._process is not None
    template._process.kill()
    await template._process.wait()
    second = await serving(template, tmp_path / "second")
    assert first.pid != second.pid
    for worker, code in ((first, None), (second, 0)):
        worker.send_signal(signal.SIGTERM)
        assert await ended(worker) == code, "only the template process that forked a worker knows its exit code"


async def test_workers_end_with_their_input(template: Template, tmp_path: Path) -> None:
    worker = await serving(template, tmp_path)
    os.dup2(os.open(os.devnull, os.O_RDONLY), worker._stdin)  # has the same effect as the end of this process
    assert await ended(worker) == 0


async def test_more_arguments_than_a_message_holds_are_refused(template: Template) -> None:
    with pytest.raises(OSError, match="the settings of a worker have"):
        await template.fork(["x" * template_process.MAX_MESSAGE_BYTES], ROLE, None)


async def test_the_template_process_has_no_threads(template: Template, tmp_path: Path) -> None:
    """A fork of a process with threads may leave locks held for ever."""
    worker = await serving(template, tmp_path)
    assert template._process is not None
    assert len(os.listdir(f"/proc/{template._process.pid}/task")) == 1
    worker.send_signal(signal.SIGTERM)
    await ended(worker)


def test_the_command_imports_nothing_from_the_current_directory() -> None:
    assert "-P" in forked_worker.COMMAND


async def test_a_template_process_that_hangs_is_killed_and_replaced(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await serving(template, tmp_path)
    stopped = template._process
    assert stopped is not None
    stopped.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(forked_worker, "FORK_SECONDS", 0.2)
    with pytest.raises(OSError, match=r"has forked nothing in 0\.2 s, and was killed"):
        await template.fork(["serve", "--no-such-option"], ROLE, None)
    monkeypatch.undo()
    refused = await template.fork(["serve", "--no-such-option"], ROLE, None)
    assert await ended(refused) == 2
    assert await refused.stdout.read() == b""
    assert stopped.returncode == -signal.SIGKILL
    worker.send_signal(signal.SIGKILL)
    assert await ended(worker) is None, "the killed template process cannot report the exit code"
    assert (await worker.stdout.read()).replace(BEAT, b"") == b""  # closes the pipe


async def test_a_template_process_that_hangs_does_not_hold_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = Template()
    worker = await serving(template, tmp_path)
    assert template._process is not None
    template._process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(forked_worker, "CLOSE_SECONDS", 0.2)
    async with asyncio.timeout(SECONDS):
        await template.close()
    assert template._process.returncode == -signal.SIGKILL
    worker.send_signal(signal.SIGKILL)
    assert await ended(worker) is None
    assert (await worker.stdout.read()).replace(BEAT, b"") == b""  # closes the pipe
