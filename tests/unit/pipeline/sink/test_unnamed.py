"""Batch writes without a writeId: a retried write appears once, and two writes of the same rows appear twice."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from random import Random
from typing import Any

import pytest
from tests.support.pipeline.simulated_cluster import Row, SimulatedCluster, SimulatedProducer

from oncelog_pipeline.sink import exactly_once, unnamed
from oncelog_pipeline.sink.names import Query, unnamed_query
from oncelog_pipeline.sink.operations import NotAllOpen, TakenOver
from oncelog_pipeline.sink.orphans import UNNAMED_KEPT_SECONDS, finish_unnamed
from oncelog_pipeline.sink.state import Batch, State, TaskMessage

Rows = Mapping[int, Sequence[int]]
ROWS: Rows = {0: [1, 2], 1: [3], 2: [4]}
ALL = [1, 2, 3, 4]


class Died(Exception):
    """Raised when the simulated driver dies."""


class Write:
    """One attempt at a batch write."""

    def __init__(self, cluster: SimulatedCluster, number: int) -> None:
        self.cluster = cluster
        run = f"{number:08d}-0000-4000-8000-000000000000"
        self.batch = Batch(unnamed_query(run), run, 0)
        self.messages: list[TaskMessage] = []

    async def tasks(self, rows: Rows) -> None:
        for partition, numbers in rows.items():

            async def write(producer: SimulatedProducer, numbers: Sequence[int] = numbers) -> None:
                for number in numbers:
                    await producer.send(Row(0, 0, number, 0, ""))

            self.messages.append(
                await exactly_once.write_task(self.cluster, self.batch, partition, 0, partition, write)
            )

    async def commit(self) -> None:
        await unnamed.commit(self.cluster, self.batch, self.messages, "rows")

    async def abort(self) -> None:
        await unnamed.abort(self.cluster, self.batch, self.messages)

    async def commit_and_die(self, ends: int) -> None:
        """Decide the write and end this many transactions; then let the driver die."""
        end = self.cluster.end

        async def end_some(transactions: Any, *, commits: bool) -> list[bool]:
            own = {message.written.transaction for message in self.messages if message.written is not None}
            if not own.intersection(transactions):
                return await end(transactions, commits=commits)
            await end(transactions[:ends], commits=commits)
            raise Died

        self.cluster.end = end_some  # type: ignore[method-assign]
        with pytest.raises(Died):
            await self.commit()
        self.cluster.end = end  # type: ignore[method-assign]

    def time_out(self, partitions: Collection[int]) -> None:
        for message in self.messages:
            if message.partition in partitions:
                assert message.written is not None
                self.cluster.time_out(message.written.transaction.transactional_id)


class Writes:
    def __init__(self) -> None:
        self.cluster = SimulatedCluster(Random(1), is_v2=True)
        self.cluster.targets["rows"] = "id/0"
        self.count = 0

    async def begin(self, rows: Rows = ROWS) -> Write:
        self.count += 1
        write = Write(self.cluster, self.count)
        await write.tasks(rows)
        return write

    @property
    def seen(self) -> list[int]:
        return sorted(row.number for row in self.cluster.visible)

    def check_over(self) -> None:
        assert not self.cluster.open_now()
        assert not self.cluster.states


@pytest.fixture
def writes() -> Writes:
    return Writes()


async def test_s123_transactions_of_an_unnamed_write_keep_their_timeout(writes: Writes) -> None:
    """If the driver died before the decision, a later run could not abort these transactions, because the later run has
    another transactional id.
    """
    writes.cluster.has_two_phase_commit = True
    write = await writes.begin()
    await write.commit_and_die(1)
    write.time_out({1, 2})
    assert writes.cluster.open_now() == []
    await (await writes.begin()).commit()
    assert writes.seen == ALL
    writes.check_over()


async def test_a_write_leaves_no_state(writes: Writes) -> None:
    await (await writes.begin()).commit()
    await (await writes.begin({0: []})).commit()
    assert writes.seen == ALL
    writes.check_over()


async def test_the_tasks_of_a_write_leave_the_state_topic_alone(writes: Writes) -> None:
    """The name of the write is new, so no task needs to take it over from an earlier run."""
    writes.cluster.own = None  # type: ignore[assignment,method-assign]
    await writes.begin()
    assert not writes.cluster.states


async def test_an_attempt_that_begins_after_its_write_has_ended_writes_nothing(writes: Writes) -> None:
    """No driver would end the transaction of this attempt."""
    write = await writes.begin()
    await write.commit()
    with pytest.raises(TakenOver, match="the write has ended"):
        await write.tasks(ROWS)
    assert writes.seen == ALL
    writes.check_over()


async def test_an_attempt_that_begins_after_the_decision_writes_nothing(writes: Writes) -> None:
    write = await writes.begin()
    await write.commit_and_die(1)
    late = Write(writes.cluster, 1)
    await late.tasks(ROWS)
    assert [message.written for message in late.messages] == [None] * len(ROWS)


@pytest.mark.parametrize("is_removed", [False, True], ids=["decided", "removed"])
async def test_an_attempt_that_begins_after_a_new_owner_of_a_decided_write_writes_nothing(
    writes: Writes, is_removed: bool
) -> None:
    """A new owner makes the coordinator forget that the write's own transactional id has committed."""
    write = await writes.begin()
    await write.commit_and_die(1)
    await write.abort()
    if is_removed:
        await unnamed._forget(writes.cluster, write.batch)
        await writes.cluster.own(write.batch.query)
    late = Write(writes.cluster, 1)
    with pytest.raises(TakenOver) if is_removed else nullcontext():
        await late.tasks(ROWS)
    assert not any(message.written for message in late.messages)
    assert writes.cluster.open_now() == []


async def test_an_aborted_write_that_was_not_decided_leaves_nothing(writes: Writes) -> None:
    """The transaction of an attempt that has sent no message is aborted, too."""
    write = await writes.begin()
    write.messages.pop()
    await write.abort()
    assert writes.seen == []
    writes.check_over()


async def test_a_commit_that_an_abort_has_overtaken_decides_nothing(writes: Writes) -> None:
    """The process that commits was thought dead, and resumes while it is the owner."""
    write = await writes.begin()
    read_state, reads = writes.cluster.read_state, 0

    async def abort_before_the_decision(query: Query) -> Any:
        nonlocal reads
        reads += 1
        if reads == 2:  # the owner reads the state again
            writes.cluster.read_state = read_state  # type: ignore[method-assign]
            await write.abort()
        return await read_state(query)

    writes.cluster.read_state = abort_before_the_decision  # type: ignore[method-assign]
    with pytest.raises(TakenOver):
        await write.commit()
    assert writes.seen == []
    writes.check_over()


async def test_aborting_a_write_that_has_ended_changes_nothing(writes: Writes) -> None:
    """Spark aborts a write whose commit worker died after its last step."""
    write = await writes.begin()
    await write.commit()
    await write.abort()
    assert writes.seen == ALL
    writes.check_over()


@pytest.mark.parametrize("ends", [0, 1, 3])
async def test_a_write_whose_driver_died_is_retried(writes: Writes, ends: int) -> None:
    await (await writes.begin()).commit_and_die(ends)
    await finish_unnamed(writes.cluster)  # the next write of the rows does this before it starts its tasks
    assert writes.seen == ALL
    await (await writes.begin()).commit()
    assert writes.seen == ALL
    writes.check_over()


@pytest.mark.parametrize("lost", [[0, 1, 2], [1, 2], [2]])
async def test_a_timed_out_write_is_repeated_by_the_second_try(writes: Writes, lost: list[int]) -> None:
    """The driver was away for longer than the timeout of its transactions."""
    first = await writes.begin()
    await first.commit_and_die(3 - len(lost))
    first.time_out(lost)
    await finish_unnamed(writes.cluster)
    await (await writes.begin()).commit()
    assert writes.seen == ALL
    writes.check_over()


async def test_a_second_try_that_dies_is_followed_by_a_third(writes: Writes) -> None:
    first = await writes.begin()
    await first.commit_and_die(1)
    first.time_out([1, 2])
    second = await writes.begin()
    await second.commit_and_die(0)
    third = await writes.begin()
    await third.commit()
    assert writes.seen == ALL
    await second.abort()
    assert writes.seen == ALL


async def test_a_retry_that_another_retry_has_overtaken_fails(writes: Writes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third write takes over from the second one, repairs the rows, and removes the state of the first write."""
    first = await writes.begin()
    await first.commit_and_die(1)
    first.time_out([1, 2])
    second, third = await writes.begin(), await writes.begin()
    take_over = exactly_once.take_over

    async def third_is_quicker(cluster: Any, batch: Batch) -> State:
        state = await take_over(cluster, batch)
        if batch.run == second.batch.run:
            await third.commit()
        return state

    monkeypatch.setattr(exactly_once, "take_over", third_is_quicker)
    with pytest.raises(TakenOver, match="the state was removed"):
        await second.commit()
    await second.abort()
    assert writes.seen == ALL
    writes.check_over()


@pytest.mark.parametrize("is_alive", [True, False], ids=["its driver", "another retry"])
async def test_a_write_that_ends_just_before_it_is_taken_over_is_another_write(
    writes: Writes, monkeypatch: pytest.MonkeyPatch, is_alive: bool
) -> None:
    """The state is removed between the last look at it and the takeover."""
    first, second, third = await writes.begin(), await writes.begin(), await writes.begin()
    take_over = exactly_once.take_over
    if is_alive:
        await exactly_once.commit(writes.cluster, first.batch, first.messages, "id/0")
    else:
        await first.commit_and_die(1)

    async def too_late(cluster: Any, batch: Batch) -> State:
        if batch.run == second.batch.run:
            monkeypatch.setattr(exactly_once, "take_over", take_over)
            await (unnamed._forget(cluster, first.batch) if is_alive else third.commit())
        return await take_over(cluster, batch)

    monkeypatch.setattr(exactly_once, "take_over", too_late)
    await second.commit()
    if is_alive:
        await third.abort()
    assert writes.seen == sorted(ALL + ALL)
    writes.check_over()


async def test_two_writes_of_the_same_rows_are_two(writes: Writes) -> None:
    """The first write is slow. The write finishes while the second write checks whether the driver of the first write
    is alive.
    """
    first, second = await writes.begin(), await writes.begin()
    pause = writes.cluster.pause

    async def first_is_done(seconds: float) -> None:
        writes.cluster.pause = pause  # type: ignore[method-assign]
        await unnamed._forget(writes.cluster, first.batch)

    await exactly_once.commit(writes.cluster, first.batch, first.messages, "id/0")
    writes.cluster.pause = first_is_done  # type: ignore[method-assign]
    await second.commit()
    assert writes.seen == sorted(ALL + ALL)
    writes.check_over()


async def test_a_write_that_was_taken_for_dead_fails(writes: Writes) -> None:
    """The rows appear only once, written by the successful write."""
    first, second = await writes.begin(), await writes.begin()
    ongoing = writes.cluster.ongoing

    async def second_is_quicker(query: Query) -> list[str]:
        writes.cluster.ongoing = ongoing  # type: ignore[method-assign]
        await second.commit()
        return await ongoing(query)

    writes.cluster.ongoing = second_is_quicker  # type: ignore[method-assign]
    with pytest.raises(TakenOver, match="has taken this one over"):
        await first.commit()
    await first.abort()
    assert writes.seen == ALL
    writes.check_over()


async def test_different_rows_are_another_write(writes: Writes) -> None:
    await (await writes.begin()).commit_and_die(1)
    await finish_unnamed(writes.cluster)
    await (await writes.begin({0: [1, 2], 1: [3], 2: [5]})).commit()
    assert writes.seen == sorted([*ALL, 1, 2, 3, 5])


async def test_rows_that_differ_where_nothing_is_lost_are_another_write(writes: Writes) -> None:
    first = await writes.begin()
    await first.commit_and_die(1)
    first.time_out([1, 2])
    second = await writes.begin()
    second.time_out([2])
    with pytest.raises(NotAllOpen):
        await second.commit()  # the state lists only the partitions that are lost now
    await (await writes.begin({0: [9], 1: [3], 2: [4]})).commit()
    assert writes.seen == [1, 2, 3, 4, 9]


async def test_rows_in_other_partitions_than_those_that_timed_out_cannot_repair(writes: Writes) -> None:
    """The documentation says that this case is not covered."""
    first = await writes.begin()
    await first.commit_and_die(1)
    first.time_out([1, 2])
    await (await writes.begin({0: [1, 2, 3], 1: [4]})).commit()
    assert writes.seen == sorted([*ALL, 1, 2])


async def test_a_second_try_that_fails_undoes_only_what_is_not_decided(writes: Writes) -> None:
    first = await writes.begin()
    await first.commit_and_die(1)
    first.time_out([1, 2])
    second = await writes.begin()
    second.time_out([2])
    with pytest.raises(NotAllOpen):
        await second.commit()
    await second.abort()
    assert writes.seen == [1, 2]
    third = await writes.begin()
    await third.commit_and_die(1)  # the decision is in the state of the first write
    await third.abort()
    assert writes.seen == ALL
    await (await writes.begin()).commit()
    assert writes.seen == ALL


async def test_a_state_is_forgotten_after_a_day(writes: Writes) -> None:
    await (await writes.begin()).commit_and_die(1)
    writes.cluster.age_seconds = UNNAMED_KEPT_SECONDS + 1
    await finish_unnamed(writes.cluster)
    assert writes.seen == ALL
    writes.check_over()


async def test_a_write_id_may_begin_like_the_name_of_a_write_without_one(writes: Writes) -> None:
    """Its state is kept, so that a restarted job writes nothing."""
    query = Query("batch-2026-11-27")
    load, again = Write(writes.cluster, 1), Write(writes.cluster, 2)
    load.batch, again.batch = Batch(query, "11111111-run", 0), Batch(query, "22222222-run", 0)
    await load.tasks(ROWS)
    await exactly_once.commit(writes.cluster, load.batch, load.messages)
    writes.cluster.age_seconds = UNNAMED_KEPT_SECONDS + 1
    await finish_unnamed(writes.cluster)
    await writes.cluster.own(query)  # by a run that died
    await again.tasks(ROWS)
    await exactly_once.commit(writes.cluster, again.batch, again.messages)
    assert writes.seen == ALL


async def test_the_states_are_read_once_before_a_write(writes: Writes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read takes all records of the state topic, and a connection of its own."""
    await (await writes.begin()).commit_and_die(1)
    writes.cluster.age_seconds = UNNAMED_KEPT_SECONDS + 1
    reads = 0
    read = writes.cluster.states_by_name

    async def counted() -> Any:
        nonlocal reads
        reads += 1
        return await read()

    monkeypatch.setattr(writes.cluster, "states_by_name", counted)
    await finish_unnamed(writes.cluster)
    assert reads == 1
    writes.check_over()


@pytest.mark.parametrize("target", ["another/0", "id/7", None])
async def test_rows_that_may_be_gone_are_written_again(writes: Writes, target: str | None) -> None:
    """The topic was re-created or emptied to repeat the load, or the cluster cannot say whether this happened."""
    await (await writes.begin()).commit_and_die(1)
    await finish_unnamed(writes.cluster)
    writes.cluster.targets.clear()
    if target is not None:
        writes.cluster.targets["rows"] = target
    writes.cluster.visible.clear()
    await (await writes.begin()).commit()
    assert writes.seen == ALL
