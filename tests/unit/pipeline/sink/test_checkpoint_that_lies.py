"""After a checkpoint was set back or lost its last entry, the sink refuses other rows under the number of a batch that
was already decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.support.pipeline.simulated_cluster import Row, SimulatedCluster, SimulatedProducer

from oncelog_pipeline.sink import exactly_once, per_task
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.operations import BatchDiffers, NotRepairable, SetBack, StateLost, TakenOver
from oncelog_pipeline.sink.orphans import finish_open
from oncelog_pipeline.sink.state import KEPT_BATCHES, Batch, TaskMessage

QUERY = Query("q")
Rows = Mapping[int, Sequence[int]]
"""Partition -> numbers of the partition's rows."""


class Sink:
    """A query that fails only when the test makes it fail."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(Random(1), is_v2=True)
        self.runs = 0
        self.attempts = 0

    def run(self, number: int) -> Batch:
        """Return the batch as a driver that has just started would create it."""
        self.runs += 1
        return Batch(QUERY, f"{self.runs:08d}-run", number)

    async def task(self, batch: Batch, partition: int, numbers: Sequence[int], *, alone: bool = False) -> TaskMessage:
        self.attempts += 1

        async def write(producer: SimulatedProducer) -> None:
            for number in numbers:
                await producer.send(Row(0, 0, number, 0, ""))

        if alone:
            return await per_task.write_task(self.cluster, batch, partition, write)
        return await exactly_once.write_task(self.cluster, batch, partition, self.attempts, self.attempts, write)

    async def tasks(self, batch: Batch, rows: Rows) -> list[TaskMessage]:
        return [await self.task(batch, partition, numbers) for partition, numbers in rows.items()]

    async def play(self, batch: Batch, rows: Rows) -> None:
        await exactly_once.commit(self.cluster, batch, await self.tasks(batch, rows))

    async def lose(self, batch: Batch, rows: Rows, *partitions: int) -> None:
        """Decide a batch, and let the driver die until the transactions of these partitions have timed out."""
        messages = await self.tasks(batch, rows)
        for message in messages:
            if message.partition in partitions:
                assert message.written is not None
                self.cluster.late.add(message.written.transaction.transactional_id)
        with pytest.raises(exactly_once.DecidedButAborted):
            await exactly_once.commit(self.cluster, batch, messages)

    async def reset(self, number: int) -> None:
        seen = await self.cluster.read_state(QUERY)
        assert seen is not None
        await exactly_once.reset(self.cluster, seen, replace(self.run(number), run=f"operator-{self.runs}"))

    @property
    def seen(self) -> list[int]:
        return sorted(row.number for row in self.cluster.visible)


@pytest.fixture
def sink() -> Sink:
    return Sink()


async def written(sink: Sink, batches: int) -> None:
    """Write this many batches; batch n has the rows 10 n and 10 n + 1 in two partitions."""
    first = sink.run(0)
    for number in range(batches):
        await sink.play(replace(first, number=number), {0: [10 * number], 1: [10 * number + 1]})


async def test_a_replay_of_the_same_rows_is_skipped(sink: Sink) -> None:
    await written(sink, 2)
    await sink.play(sink.run(1), {0: [10], 1: [11]})
    await sink.play(sink.run(1), {0: [11, 10]})  # the rows are divided differently among the tasks
    assert sink.seen == [0, 1, 10, 11]


@pytest.mark.parametrize("rows", [{0: [10], 1: [11], 2: [20]}, {0: [10], 1: [12]}, {0: [10]}, {0: []}])
async def test_other_rows_under_the_number_of_a_decided_batch_are_refused(sink: Sink, rows: Rows) -> None:
    """The last entry of the checkpoint was damaged, so Spark gives the number 1 to newer rows."""
    await written(sink, 2)
    for _ in range(2):  # the refusal repeats at each start
        with pytest.raises(BatchDiffers, match=r"oncelog pipeline state reset q --batch 1 .*--batch 0"):
            await sink.play(sink.run(1), rows)
    assert sink.seen == [0, 1, 10, 11]


async def test_after_a_reset_by_an_operator_the_whole_replay_is_written(sink: Sink) -> None:
    await written(sink, 2)
    await sink.reset(0)
    run = sink.run(1)
    await sink.play(run, {0: [10, 11, 20]})
    await sink.play(replace(run, number=2), {0: [30]})
    assert sink.seen == [0, 1, 10, 10, 11, 11, 20, 30]


async def test_an_operator_lets_stand_what_was_decided(sink: Sink) -> None:
    await written(sink, 2)
    await sink.reset(1)
    run = sink.run(1)
    await sink.play(run, {0: [12]})
    await sink.play(replace(run, number=2), {0: [20]})
    with pytest.raises(BatchDiffers):
        await sink.play(sink.run(2), {0: [21]})  # the permission to write other rows was only for batch 1
    assert sink.seen == [0, 1, 10, 11, 20]


@pytest.mark.parametrize("back", [2, 10, KEPT_BATCHES])
async def test_a_checkpoint_that_was_set_back_passes_over_what_is_the_same(sink: Sink, back: int) -> None:
    count = KEPT_BATCHES + 5
    await written(sink, count)
    run = sink.run(count - back)
    for number in range(count - back, count + 1):
        await sink.play(replace(run, number=number), {0: [10 * number], 1: [10 * number + 1]})
    assert sink.seen == [10 * number + digit for number in range(count + 1) for digit in (0, 1)]


@pytest.mark.parametrize("back", [2, 10])
async def test_a_checkpoint_that_was_set_back_and_brings_other_rows_is_refused(sink: Sink, back: int) -> None:
    await written(sink, 12)
    seen, number = sink.seen, 12 - back
    for _ in range(2):
        with pytest.raises(SetBack, match=rf"batch 11 .*state reset q --batch {number - 1}$"):
            await sink.play(sink.run(number), {0: [10 * number, 1000]})
    assert sink.seen == seen
    await sink.reset(number - 1)
    await sink.play(sink.run(number), {0: [1000]})
    assert 1000 in sink.seen


async def test_a_checkpoint_that_was_set_back_further_than_digests_are_kept_is_refused(sink: Sink) -> None:
    await written(sink, KEPT_BATCHES + 5)
    before = sink.cluster.states[QUERY]
    for _ in range(2):
        with pytest.raises(SetBack, match=r"state reset q --batch 2$"):
            await sink.task(sink.run(3), 0, [30])
    assert sink.cluster.states[QUERY] == before, "the run that goes on is left alone"


async def test_a_batch_without_rows_is_among_those_that_are_compared(sink: Sink) -> None:
    await written(sink, 2)
    run = sink.run(2)
    await sink.play(run, {0: []})
    await sink.play(replace(run, number=3), {0: [30]})
    again = sink.run(1)
    await sink.play(again, {0: [10, 11]})
    await sink.play(replace(again, number=2), {0: []})
    await sink.play(replace(again, number=3), {0: [30]})
    with pytest.raises(SetBack):
        await sink.play(sink.run(2), {0: [20]})
    assert sink.seen == [0, 1, 10, 11, 30]


async def test_a_decided_unended_batch_is_ended_by_an_older_checkpoint(sink: Sink) -> None:
    await written(sink, 2)
    run = sink.run(2)
    messages = await sink.tasks(run, {0: [20], 1: [21]})
    for message in messages:
        assert message.written is not None
    sink.cluster.late.add(messages[1].written.transaction.transactional_id)  # type: ignore[union-attr]
    with pytest.raises(exactly_once.DecidedButAborted):
        await exactly_once.commit(sink.cluster, run, messages)
    again = sink.run(1)
    await sink.play(again, {0: [10], 1: [11]})
    assert sink.seen == [0, 1, 10, 11, 20]
    await sink.play(replace(again, number=2), {0: [20], 1: [21]})  # the replay of batch 2 repairs the lost partition
    assert sink.seen == [0, 1, 10, 11, 20, 21]


async def test_the_run_before_can_decide_nothing_once_an_older_checkpoint_continues(sink: Sink) -> None:
    """Two queries run with copies of one checkpoint, and the second query takes over."""
    first = sink.run(0)
    for number in range(3):
        await sink.play(replace(first, number=number), {0: [number]})
    messages = await sink.tasks(replace(first, number=3), {0: [3]})
    await sink.play(sink.run(1), {0: [1]})
    with pytest.raises(TakenOver):
        await exactly_once.commit(sink.cluster, replace(first, number=3), messages)
    assert sink.seen == [0, 1, 2]


async def test_an_attempt_of_a_batch_that_is_long_over_does_nothing(sink: Sink) -> None:
    await written(sink, 3)
    zombie = Batch(QUERY, f"{sink.runs:08d}-run", 1)
    assert (await sink.task(zombie, 0, [99])).written is None
    assert 99 not in sink.seen


async def test_a_query_that_goes_on_is_not_reset(sink: Sink) -> None:
    await written(sink, 2)
    seen = await sink.cluster.read_state(QUERY)
    assert seen is not None
    await sink.play(sink.run(2), {0: [20]})
    with pytest.raises(TakenOver, match="stop it first"):
        await exactly_once.reset(sink.cluster, seen, Batch(QUERY, "operator", 0))
    assert sink.seen == [0, 1, 10, 11, 20]


async def test_lost_rows_are_repaired_by_the_same_rows(sink: Sink) -> None:
    rows = {0: [1, 2], 1: [3], 2: [4]}
    await sink.lose(sink.run(0), rows, 0, 2)
    assert sink.seen == [3]
    await sink.play(sink.run(0), rows)
    assert sink.seen == [1, 2, 3, 4]
    await sink.play(sink.run(0), rows)
    assert sink.seen == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "rows",
    [
        {0: [1, 3], 1: [2], 2: [4]},  # the same rows in other partitions
        {0: [1, 2], 1: [5], 2: [4]},  # rows that were not lost have changed
        {0: [1, 2], 1: [3], 2: []},
        {0: [1, 2], 1: [3], 2: [9]},
    ],
)
async def test_an_irreparable_loss_is_refused_and_not_hidden(sink: Sink, rows: Rows) -> None:
    before = {0: [1, 2], 1: [3], 2: [4]}
    await sink.lose(sink.run(0), before, 0, 2)
    again = sink.run(0)
    messages = await sink.tasks(again, rows)
    with pytest.raises(NotRepairable, match="state reset q --batch 0"):
        await exactly_once.commit(sink.cluster, again, messages)
    await exactly_once.abort(sink.cluster, again, messages)
    assert sink.seen == [3]
    await sink.play(sink.run(0), before)  # the original rows still repair the batch
    assert sink.seen == [1, 2, 3, 4]


async def test_a_task_by_itself_is_compared_too(sink: Sink) -> None:
    for number in (0, 1, 2):
        await sink.task(sink.run(number), 0, [number], alone=True)
    await sink.task(sink.run(2), 0, [2], alone=True)
    with pytest.raises(BatchDiffers, match="partition 0: is written with 1 rows"):
        await sink.task(sink.run(2), 0, [2, 3], alone=True)
    with pytest.raises(SetBack, match="batch 2 is written"):
        await sink.task(sink.run(1), 0, [1], alone=True)
    assert sink.seen == [0, 1, 2]


async def test_a_marker_of_an_older_release_is_not_compared(sink: Sink) -> None:
    await sink.task(sink.run(0), 0, [0], alone=True)
    name = QUERY.partition_id(0)
    sink.cluster.markers[name] = sink.cluster.markers[name]._replace(digest=None)
    await sink.task(sink.run(0), 0, [5], alone=True)
    assert sink.seen == [0]


async def test_a_decision_of_an_older_release_is_not_compared(sink: Sink) -> None:
    await written(sink, 1)
    state: Any = sink.cluster.states[QUERY]
    sink.cluster.states[QUERY] = replace(state, digest=None)
    await sink.play(sink.run(0), {0: [77]})
    assert sink.seen == [0, 1]


async def test_per_task_then_exactly_once_is_refused_for_the_same_batch(sink: Sink) -> None:
    await sink.task(sink.run(0), 0, [0], alone=True)
    with pytest.raises(StateLost, match="exactly-once-per-task"):
        await sink.task(sink.run(0), 0, [0])
    await sink.play(sink.run(1), {0: [1]})  # the delivery guarantee may change from the next batch on
    assert sink.seen == [0, 1]


async def test_exactly_once_then_per_task_is_refused_for_the_same_batch(sink: Sink) -> None:
    await written(sink, 1)
    with pytest.raises(StateLost, match="batch 0 was decided with delivery=exactly-once"):
        await sink.task(sink.run(0), 0, [0], alone=True)
    await sink.task(sink.run(1), 0, [10], alone=True)
    assert sink.seen == [0, 1, 10]


async def test_a_state_topic_that_was_lost_is_noticed(sink: Sink) -> None:
    await written(sink, 2)
    sink.cluster.states.clear()
    with pytest.raises(StateLost, match="state reset q --batch 0"):
        await sink.task(sink.run(1), 0, [10])
    await exactly_once.reset(sink.cluster, None, Batch(QUERY, "operator", 1))
    run = sink.run(1)
    await sink.play(run, {0: [10], 1: [11]})
    await sink.play(replace(run, number=2), {0: [20]})
    assert sink.seen == [0, 1, 10, 11, 20]


async def test_a_marker_that_was_lost_is_noticed(sink: Sink) -> None:
    """If a cluster removes all committed offsets, the query's markers are lost, because they are committed offsets,
    too.
    """
    for number in (0, 1):
        await sink.task(sink.run(number), 0, [number], alone=True)
    sink.cluster.markers.clear()
    for _ in range(2):
        with pytest.raises(StateLost, match=r"partition 0: has written before.*state reset q --batch 0$"):
            await sink.task(sink.run(1), 0, [1], alone=True)
    await sink.task(sink.run(1), 1, [11], alone=True)  # the query has never written to this partition
    await exactly_once.reset(sink.cluster, None, Batch(QUERY, "operator", 0))
    await sink.task(sink.run(1), 0, [1], alone=True)
    assert sink.seen == [0, 1, 1, 11]


async def test_a_decided_open_batch_can_be_finished_without_its_query(sink: Sink) -> None:
    """An operator finishes the batch before its transactions time out; the query continues from there at its next
    start.
    """
    run = sink.run(0)
    messages = await sink.tasks(run, {0: [1], 1: [2]})
    end = sink.cluster.end

    async def dies(*_: Any, **__: Any) -> list[bool]:
        raise ConnectionError

    sink.cluster.end = dies  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await exactly_once.commit(sink.cluster, run, messages)
    sink.cluster.end = end  # type: ignore[method-assign]
    assert sink.seen == []
    assert await finish_open(sink.cluster) == {QUERY.name: frozenset()}
    assert sink.seen == [1, 2]
    assert await finish_open(sink.cluster) == {}
    await sink.play(sink.run(0), {0: [1], 1: [2]})
    await sink.play(sink.run(1), {0: [3]})
    assert sink.seen == [1, 2, 3]
