"""Tests the sink's steps against a live broker without Spark, with V1 and V2; the process of each step is killed at
critical points.

Whichever process dies (a task or the driver), and whichever process continues, a read_committed consumer finds each row
once and is not blocked by any transaction.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterable

import pytest
from spark_sink_process import (
    PARTITIONS,
    SECONDS,
    TASKS,
    V1,
    Abort,
    Commit,
    Task,
    die,
    rows_of,
    run,
    start_process,
)

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog.admin.transactions import TransactionAdmin
from oncelog.clock import now_ms
from oncelog.errors import ErrorCode, UnsupportedVersion
from oncelog.metadata.list_offsets import LATEST_TIMESTAMP
from oncelog_pipeline.sink.cluster import KafkaCluster
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.operations import DecidedButAborted, NotAllOpen, NotRepairable, TakenOver
from oncelog_pipeline.sink.state import Batch, State, TaskMessage
from oncelog_pipeline.sink.state_topic import StateTopic
from oncelog_protocol.messages.fetch import IsolationLevel

V2 = 2
TIMEOUT_MS = 10 * SECONDS * 1000
"""The timeout of the tasks' transactions in milliseconds."""
WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.soak), V2], ids=["V1", "V2"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Set the cluster's `transaction.version` as the client sees it, here and in the processes that are killed."""
    if request.param < V2:
        monkeypatch.setattr("oncelog.connection.versions._finalized", lambda *_: request.param)
        monkeypatch.setenv(V1, "1")
    return int(request.param)


class Sink:
    """Stands in for a Spark query that writes to the sink: its batches, and its runs after each restart."""

    def __init__(self, address: str, topic: str) -> None:
        self.address, self.topic = address, topic
        self.query = Query(uuid.uuid4().hex)
        self.runs = 0

    async def create(self) -> None:
        async with Admin(self.address) as admin:
            await admin.create_topics([NewTopic(self.topic, PARTITIONS)])

    def new_run(self, number: int) -> Batch:
        """Return the batch with which a restarted driver begins, which is the batch that it finds in Spark's log."""
        self.runs += 1
        return Batch(self.query, f"{self.runs:08d}-run", number)

    async def task(self, batch: Batch, partition: int, attempt: int = 0) -> TaskMessage:
        message = await run(self.address, self.topic, Task(batch, partition, attempt))
        assert message is not None
        return message

    async def tasks(self, batch: Batch, partitions: Iterable[int] = range(TASKS)) -> list[TaskMessage]:
        return list(await asyncio.gather(*(self.task(batch, partition) for partition in partitions)))

    async def commit(self, batch: Batch, messages: list[TaskMessage]) -> None:
        await run(self.address, self.topic, Commit(batch, messages))

    async def abort(self, batch: Batch, messages: list[TaskMessage]) -> None:
        await run(self.address, self.topic, Abort(batch, messages))

    async def replay(self, batch: Batch) -> list[TaskMessage]:
        messages = await self.tasks(batch)
        await self.commit(batch, messages)
        return messages

    def dies(self, step: Task | Commit | Abort, point: str) -> None:
        die(start_process(self.address, self.topic), step, point)

    async def state(self) -> State | None:
        async with Admin(self.address) as admin:
            return await StateTopic(admin).read(self.query)

    async def seen(self) -> Counter[bytes]:
        """Return the rows that a read_committed consumer finds; it reaches the end of the log, because no transaction
        is open.
        """
        partitions = [TopicPartition(self.topic, index) for index in range(PARTITIONS)]
        found: Counter[bytes] = Counter()
        async with Admin(self.address) as admin:
            latest = dict.fromkeys(partitions, LATEST_TIMESTAMP)
            stable = await admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
            assert stable == await admin.list_offsets(latest)
        async with Consumer(self.address, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            while any([await consumer.position(each) < stable[each].offset for each in partitions]):
                for records in (await consumer.poll(1000)).values():
                    found.update(record.value or b"" for record in records)
        return found


def batches(*numbers: int) -> Counter[bytes]:
    """Return all rows that these batches should write, each once."""
    return Counter(row for number in numbers for partition in range(TASKS) for row in rows_of(number, partition))


@pytest.fixture
async def sink(level: int, address: str, topic: str) -> Sink:
    made = Sink(address, topic)
    await made.create()
    return made


async def test_a_commit_killed_under_v1_is_recovered(address: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With transactions V1, only the sink's state topic shows whether a transaction was committed; `make soak` runs all
    tests of this module with V1.
    """
    monkeypatch.setattr("oncelog.connection.versions._finalized", lambda *_: 1)
    monkeypatch.setenv(V1, "1")
    sink = Sink(address, topic)
    await sink.create()
    await test_k4_to_k7_k10_to_k13_the_commit_dies(sink, "one ended", False)


async def test_batch_after_batch_is_written_once(sink: Sink) -> None:
    first = sink.new_run(0)
    for number in range(6):
        await sink.replay(Batch(sink.query, first.run, number))
    assert await sink.seen() == batches(*range(6))
    state = await sink.state()
    assert state is not None
    assert (state.batch, len(state.transactions)) == (5, TASKS)


@pytest.mark.parametrize("point", [pytest.param("rows sent", marks=pytest.mark.soak), "rows flushed"])
async def test_k1_k2_a_task_dies_and_another_attempt_writes(sink: Sink, point: str) -> None:
    batch = sink.new_run(0)
    sink.dies(Task(batch, 0), point)
    messages = [await sink.task(batch, 0, attempt=1), *await sink.tasks(batch, range(1, TASKS))]
    await sink.commit(batch, messages)
    assert await sink.seen() == batches(0)


@pytest.mark.soak
async def test_k3_all_attempts_die_and_the_batch_is_aborted(sink: Sink) -> None:
    batch = sink.new_run(0)
    sink.dies(Task(batch, 0), "rows flushed")
    await sink.abort(batch, await sink.tasks(batch, range(1, TASKS)))
    assert not await sink.seen()
    await sink.replay(sink.new_run(0))
    assert await sink.seen() == batches(0)


POINTS = ["decision", "decided", "one ended", "all ended"]


@pytest.mark.parametrize(
    ("point", "is_aborted"),
    [
        ("decision", True),
        ("one ended", False),
        *(pytest.param(point, is_aborted, marks=pytest.mark.soak) for point in POINTS for is_aborted in (True, False)),
    ],
)
async def test_k4_to_k7_k10_to_k13_the_commit_dies(sink: Sink, point: str, is_aborted: bool) -> None:
    """After a task has died, Spark's driver calls `abort`, unless the driver has died, too; in both cases the query is
    then started again.
    """
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    sink.dies(Commit(batch, messages), point)
    is_decided = point != "decision"
    if is_aborted:
        await sink.abort(batch, messages)
        assert await sink.seen() == (batches(0) if is_decided else Counter())
    again = sink.new_run(0)
    replayed = await sink.replay(again)
    assert [message.written is None for message in replayed] == [is_decided] * TASKS
    assert await sink.seen() == batches(0)
    await sink.replay(Batch(sink.query, again.run, 1))
    assert await sink.seen() == batches(0, 1)


async def test_k9_the_driver_dies_while_tasks_write(sink: Sink) -> None:
    batch = sink.new_run(0)
    await sink.task(batch, 0)
    sink.dies(Task(batch, 1), "rows sent")
    await sink.replay(sink.new_run(0))
    assert await sink.seen() == batches(0)


@pytest.mark.parametrize("lost", [pytest.param({0, 1, 2}, marks=pytest.mark.soak), {1}])
async def test_k14_a_decided_timed_out_batch_is_repaired(sink: Sink, lost: set[int]) -> None:
    """The test uses `oncelog txns fence` instead of waiting for a timeout, because both have the same effect on a
    transaction.
    """
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    sink.dies(Commit(batch, messages), "decided")
    await fence(sink, [message for message in messages if message.partition in lost])
    again = sink.new_run(0)
    replayed = await sink.tasks(again)
    assert {message.partition for message in replayed if message.written is not None} == lost
    with pytest.raises(NotRepairable):
        await sink.commit(again, [])
    await sink.commit(again, replayed)
    assert await sink.seen() == batches(0)


async def fence(sink: Sink, messages: list[TaskMessage]) -> None:
    async with Admin(sink.address) as admin:
        ids = [message.written.transaction.transactional_id for message in messages if message.written is not None]
        await admin.transactions.fence(ids)


@pytest.mark.soak
async def test_a_decision_without_its_transaction_is_reported(sink: Sink) -> None:
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    sink.dies(Commit(batch, messages), "decided")
    await fence(sink, messages[:1])
    with pytest.raises(DecidedButAborted, match=r"partitions \[0\]"):
        await sink.commit(batch, messages)
    await sink.replay(sink.new_run(0))
    assert await sink.seen() == batches(0)


async def test_k15_a_batch_timed_out_before_the_decision_is_repeated(sink: Sink) -> None:
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    await fence(sink, messages[1:2])
    with pytest.raises(NotAllOpen, match="maxOffsetsPerTrigger"):
        await sink.commit(batch, messages)
    await sink.abort(batch, messages)
    assert not await sink.seen()
    await sink.replay(sink.new_run(0))
    assert await sink.seen() == batches(0)


async def test_a_driver_whose_clock_is_ahead_decides(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers decide the age of a transaction, because the brokers' clocks abort transactions."""
    ahead_ms = now_ms() + WEEK_MS
    monkeypatch.setattr("oncelog_pipeline.sink.cluster.now_ms", lambda: ahead_ms)
    await sink.replay(sink.new_run(0))
    assert await sink.seen() == batches(0)


async def test_a_transaction_with_too_little_time_left_is_not_counted_open(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers' clocks measure the age of a transaction; if the brokers cannot list transactions by age (before
    Kafka 3.8), the client's clock measures it.
    """
    (message,) = await sink.tasks(sink.new_run(0), [0])
    assert message.written is not None
    transaction = message.written.transaction

    async with KafkaCluster(sink.address, task_timeout_ms=TIMEOUT_MS) as cluster:
        assert await cluster.are_open([transaction], 1 / 3) == [True]
        async with asyncio.timeout(60):  # wait until the broker's clock has advanced by a millisecond
            while await cluster.are_open([transaction], 1.0) != [False]:
                pass

    async def too_old(*_: object, **__: object) -> None:
        raise UnsupportedVersion(ErrorCode.UNSUPPORTED_VERSION, "broker 1 is too old to filter by duration")

    monkeypatch.setattr(TransactionAdmin, "list", too_old)
    async with KafkaCluster(sink.address, task_timeout_ms=TIMEOUT_MS) as cluster:
        assert await cluster.are_open([transaction], 1 / 3) == [True]
        late_ms = now_ms() + TIMEOUT_MS
        monkeypatch.setattr("oncelog_pipeline.sink.cluster.now_ms", lambda: late_ms)
        assert await cluster.are_open([transaction], 1 / 3) == [False]


async def test_k17_an_older_driver_and_its_tasks_wake_up(sink: Sink) -> None:
    old = sink.new_run(0)
    messages = await sink.tasks(old)
    new = sink.new_run(0)
    written = await sink.tasks(new)
    for step in (sink.commit(old, messages), sink.task(old, 0, attempt=1)):
        with pytest.raises(TakenOver):
            await step
    await sink.abort(old, messages)  # the clean-up of an old run must not abort the transactions of the newer run
    await sink.commit(new, written)
    assert await sink.seen() == batches(0)


async def test_k18_the_slower_of_two_attempts_is_swept(sink: Sink) -> None:
    batch = sink.new_run(0)
    slow = await sink.task(batch, 0)
    messages = [await sink.task(batch, 0, attempt=1), *await sink.tasks(batch, range(1, TASKS))]
    assert slow.written is not None
    await sink.commit(batch, messages)
    assert await sink.seen() == batches(0)


async def test_k23_an_expired_index_costs_only_a_scan(sink: Sink) -> None:
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    sink.dies(Commit(batch, messages), "decided")
    async with Admin(sink.address) as admin:
        await admin.groups.delete([sink.query.id])
    state = await sink.state()
    assert state is not None
    assert state.batch == 0
    await sink.replay(sink.new_run(0))
    assert await sink.seen() == batches(0)


@pytest.mark.parametrize("point", [pytest.param("rows sent", marks=pytest.mark.soak), "rows flushed"])
async def test_each_task_commits_by_itself(sink: Sink, point: str) -> None:
    """With exactly-once-per-task, a task is killed and retried; then the entire batch is repeated, as after a
    restart.
    """
    batch = sink.new_run(0)
    sink.dies(Task(batch, 0, is_by_itself=True), point)
    for again in (batch, sink.new_run(0)):
        for partition in range(TASKS):
            await run(sink.address, sink.topic, Task(again, partition, is_by_itself=True))
        assert await sink.seen() == batches(0)
    await run(sink.address, sink.topic, Task(Batch(sink.query, batch.run, 1), 0, is_by_itself=True))
    assert await sink.seen() == batches(0) + Counter(rows_of(1, 0))


async def test_k22_at_least_once_duplicates_under_the_same_kills(address: str, topic: str) -> None:
    """A plain producer that is killed at the same point and retried writes duplicates, so this test shows that the
    other tests can fail.
    """
    sink = Sink(address, topic)
    await sink.create()
    for _ in range(2):  # the first attempt flushes and dies, the second attempt is the retry
        async with Producer(address) as producer:
            for number, row in enumerate(rows_of(0, 0)):
                await producer.send(topic, row, partition=number % PARTITIONS)
    assert await sink.seen() == Counter(rows_of(0, 0) * 2)
