"""Runs one step of the sink in a separate process, which kills itself at a named point, or in the process of a test.

    python spark_sink_process.py ADDRESS TOPIC < line        (the line: POINT STEP; STEP: a pickle, in base64)

The process reads the line after its imports, so that a test can start it before the step's transactions begin. POINT is
the point at which the process dies (kill -9):

- `rows sent`: a task dies before it has flushed its rows.
- `rows flushed`: a task dies before it reports its rows.
- `decision`: a driver dies just before it writes the decision to commit to the state topic.
- `decided`: a driver dies after it has written the decision, before it ends any transaction.
- `one ended`: a driver dies after it has ended the first transaction.
- `all ended`: a driver dies after it has ended the last transaction.
- `nowhere`: the process does not die.
"""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oncelog_pipeline.sink import exactly_once, per_task
from oncelog_pipeline.sink.cluster import KafkaCluster, RowProducer, StateOwner
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.state import Batch, State, TaskMessage

PARTITIONS = 2
TASKS = 3
ROWS = 30
"""The number of rows of each task."""
SECONDS = 60
V1 = "ONCELOG_TEST_TRANSACTIONS_V1"
TASK_TIMEOUT = "ONCELOG_TEST_TASK_TIMEOUT_MS"
"""The environment variable with the timeout of the tasks' transactions, here and in the processes that are killed."""


class Task(NamedTuple):
    batch: Batch
    partition: int
    attempt: int = 0
    is_by_itself: bool = False


class Commit(NamedTuple):
    batch: Batch
    messages: Sequence[TaskMessage]


class Abort(NamedTuple):
    batch: Batch
    messages: Sequence[TaskMessage]


def rows_of(batch: int, partition: int) -> list[bytes]:
    return [b"%d %d %d" % (batch, partition, number) for number in range(ROWS)]


class DyingOwner:
    def __init__(self, owner: StateOwner, point: str) -> None:
        self._owner, self._point = owner, point

    async def write(self, state: State) -> None:
        if state.transactions:
            _die_at("decision", self._point)
        await self._owner.write(state)
        if state.transactions:
            _die_at("decided", self._point)

    async def close(self) -> None:
        await self._owner.close()


class DyingCluster(KafkaCluster):
    """The sink's connection to the real cluster, which kills this process at the given point."""

    point = "nowhere"

    async def own(self, query: Query) -> Any:
        return DyingOwner(await super().own(query), self.point)

    async def end(self, transactions: Any, *, commits: bool) -> list[bool]:
        if self.point == "one ended":
            await super().end(transactions[:1], commits=commits)
            _die_at("one ended", self.point)
        have_ended = await super().end(transactions, commits=commits)
        _die_at("all ended", self.point)
        return have_ended


def _die_at(point: str, wanted: str) -> None:
    if point == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


async def run(address: str, topic: str, step: Any, point: str = "nowhere") -> TaskMessage | None:
    """Run one step of the sink, such as a task or a commit; this process may be killed by the step. Raises the errors
    of the step.
    """
    timeout_ms = int(os.environ.get(TASK_TIMEOUT, 10 * SECONDS * 1000))
    cluster = DyingCluster(address, task_timeout_ms=timeout_ms, settings={"retry_backoff_ms": 20})
    cluster.point = point
    async with asyncio.timeout(SECONDS), cluster:
        if isinstance(step, Commit):
            await exactly_once.commit(cluster, step.batch, step.messages)
            return None
        if isinstance(step, Abort):
            await exactly_once.abort(cluster, step.batch, step.messages)
            return None
        return await run_task(cluster, topic, step, point)


async def run_task(cluster: KafkaCluster, topic: str, task: Task, point: str) -> TaskMessage:
    async def write(producer: RowProducer) -> None:
        rows = rows_of(task.batch.number, task.partition)
        for number, row in enumerate(rows):
            await producer.send(topic, row, partition=number % PARTITIONS)
        _die_at("rows sent", point)
        if isinstance(producer, RowProducer):
            await producer.producer.flush()
        _die_at("rows flushed", point)

    if task.is_by_itself:
        return await per_task.write_task(cluster, task.batch, task.partition, write)
    unique = hash(task) % 1000
    return await exactly_once.write_task(cluster, task.batch, task.partition, task.attempt, unique, write)


def start_process(address: str, topic: str) -> subprocess.Popen[bytes]:
    """Start a process that imports the sink and waits for the step that `die` gives it."""
    command = [sys.executable, __file__, address, topic]
    root = Path(__file__).parents[3]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=root)


def die(process: subprocess.Popen[bytes], step: Any, point: str) -> None:
    """Tell the process which step of the sink to run and at which point to die, and wait until the process has
    ended.
    """
    told = base64.b64encode(pickle.dumps(step))
    with process:
        try:
            _, errors = process.communicate(point.replace(" ", "-").encode() + b" " + told, timeout=2 * SECONDS)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL, errors.decode()


def main() -> None:
    address, topic = sys.argv[1:]
    if os.environ.get(V1):
        import oncelog.connection.versions

        oncelog.connection.versions._finalized = lambda *_: 1  # type: ignore[assignment]
    point, told = sys.stdin.readline().split()
    step = pickle.loads(base64.b64decode(told))
    asyncio.run(run(address, topic, step, point.replace("-", " ")))


if __name__ == "__main__":
    sys.modules["spark_sink_process"] = sys.modules["__main__"]
    main()
