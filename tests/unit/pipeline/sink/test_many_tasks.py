"""A batch with more tasks than one decision can name is refused completely, and the error says what to do."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.support.pipeline.simulated_cluster import Row, SimulatedCluster, SimulatedProducer

from oncelog_pipeline.sink import cluster, exactly_once
from oncelog_pipeline.sink.exactly_once import abort, commit, write_task
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.operations import TooManyTasks
from oncelog_pipeline.sink.state import Batch

TASKS = 5


async def play() -> None:
    simulated = SimulatedCluster(Random(1), is_v2=True)
    batch = Batch(Query("q"), "run-of-many", 0)

    async def task(partition: int) -> None:
        async def rows(producer: SimulatedProducer) -> None:
            await producer.send(Row(0, partition, 0, 1, "a"))

        messages.append(await write_task(simulated, batch, partition, 0, partition, rows))

    messages: list = []
    for partition in range(TASKS):
        await task(partition)
    with pytest.raises(TooManyTasks, match=r"5 tasks have written.*exactly-once-per-task"):
        await commit(simulated, batch, messages)
    await abort(simulated, batch, messages)
    assert not simulated.open_now()
    assert not simulated.rows_of(0)


def test_a_decision_that_fits_no_record_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "MAX_BYTES", 300)
    asyncio.run(play())


def test_a_batch_of_tasks_is_ended_a_few_at_a_time() -> None:
    at_work, most = 0, 0

    async def work(number: int) -> bool:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1
        return number % 2 == 0

    answers = asyncio.run(cluster._for_each(work, range(100), 7))
    assert answers == [number % 2 == 0 for number in range(100)]
    assert most == 7
