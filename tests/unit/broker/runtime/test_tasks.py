"""Exceptions of background tasks are logged, and supervised tasks restart."""

from __future__ import annotations

import ast
import asyncio
import logging
from http.client import BadStatusLine
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.virtual_time import run_virtually

import oncelog_broker
from oncelog_broker.runtime.tasks import MAX_RESTART_SECONDS, RESTART_SECONDS, Tasks

ENDS_BY_ITSELF = {
    "answers of a coordinator": "the replies of one step, which are there: each waiter takes one, and none raises",
    "ask for new epochs": "one request; the next look of the in-sync replicas asks again",
    "flush logs in {}": "one flush of each log: failures are logged, and the next look at the directory tries again",
    "give up leadership of offline partitions": "one request; the next look of the in-sync replicas asks again",
    "internal topics of a streams group": "one request after the other: failures are told, and a heartbeat asks again",
    "job of a coordinator": "one result: its failure is logged, and a later heartbeat asks again",
    "load {}-{}": "one replay of one log: a failure is kept with the shard, and tried again where that may help",
    "move of a log to another data directory": "one move: a failure is logged, and the log stays where it was",
    "questions to the coordinators of broker {}": "each question gets an answer, whatever fails",
    "state of share partition {}": "one write after the other: its failure is told, and the next change writes again",
    "states of share group {}": "one request: what failed is noted in the group, and a later heartbeat asks again",
    "sync {}": "a failure takes the log offline and fails the waiting requests; each append asks again",
    "truncate {}": "one truncation: its end, good or bad, is reported, and the fetcher asks again",
}
"""Names of all tasks that the broker starts with `spawn` -> why the task need not be restarted."""


def test_s93_supervised_work_continues_after_whatever_it_raises(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[float]:
        loop, tasks, began = asyncio.get_running_loop(), Tasks(), []
        done = asyncio.Event()

        async def work() -> None:
            began.append(loop.time())
            match len(began):
                case 1:
                    raise BadStatusLine("nonsense")
                case 2:
                    raise RecursionError
                case 3:
                    await asyncio.sleep(2 * MAX_RESTART_SECONDS)
                    raise ValueError
                case _:
                    done.set()

        task = tasks.supervise("keys", work)
        await done.wait()
        await task
        await tasks.close()
        return [after - before for before, after in pairwise(began)]

    pauses = run_virtually(run())
    assert pauses[:2] == pytest.approx([RESTART_SECONDS, 2 * RESTART_SECONDS], abs=0.1)
    assert pauses[2] == pytest.approx(2 * MAX_RESTART_SECONDS + RESTART_SECONDS, abs=0.1), "a long run counts"
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3


def test_s93_the_pause_between_two_tries_has_a_bound() -> None:
    async def run() -> int:
        tasks, tries = Tasks(), 0

        async def work() -> None:
            nonlocal tries
            tries += 1
            raise OSError

        tasks.supervise("keys", work)
        await asyncio.sleep(100 * MAX_RESTART_SECONDS)
        await tasks.close()
        return tries

    assert run_virtually(run()) >= 95


def test_periodic_work_pauses_at_least_as_long_as_its_owner_says() -> None:
    async def run() -> list[float]:
        loop, times = asyncio.get_running_loop(), list[float]()

        async def look() -> None:
            times.append(loop.time())

        tasks, began = Tasks(least_pause_seconds=30.0), loop.time()
        tasks.every("a short interval", 0.5, look)
        await asyncio.sleep(100.0)
        await tasks.close()
        return [each - began for each in times]

    assert run_virtually(run()) == pytest.approx([30.0, 60.0, 90.0])


async def test_supervised_work_ends_with_the_broker() -> None:
    tasks, began = Tasks(), asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    task = tasks.supervise("keys", work)
    await began.wait()
    await tasks.close()
    assert task.cancelled()


def test_s93_each_task_that_may_end_with_its_first_error_says_why() -> None:
    """All other tasks are started with `every` or `supervise`."""
    spawned = {
        _name(call.args[0])
        for path in Path(oncelog_broker.__file__).parent.rglob("*.py")
        if path.name not in ("tasks.py",)
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "spawn"
        and not any(keyword.arg == "is_awaited" for keyword in call.keywords)
    }
    assert spawned == set(ENDS_BY_ITSELF)


def _name(argument: ast.expr) -> str:
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    assert isinstance(argument, ast.JoinedStr)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in argument.values)
