"""Consume, process, produce (S60), tested with a simple fake consumer, a real producer, and a fake coordinator whose
responses the test chooses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator, Step, impatient

from oncelog.cluster import TopicPartition
from oncelog.config import ConsumerConfig, load
from oncelog.consume_process_produce import consume_process_produce
from oncelog.consumer.records import ConsumerRecord
from oncelog.errors import (
    AbortableError,
    ConfigError,
    EndNotKnown,
    InvalidTransactionState,
    KafkaError,
    MessageTooLarge,
    ProducerFenced,
    RequestTimedOut,
)
from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.producer.producer import Producer
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

IN0, IN1 = TopicPartition("in", 0), TopicPartition("in", 1)
OUT = ("topic", 0)
LEADER_EPOCH = 4
OPTIONS = {"group_id": "g", "enable_auto_commit": False, "isolation_level": "read_committed"}
QUICK = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 5, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}


def record(partition: TopicPartition, offset: int) -> ConsumerRecord:
    value = f"{partition.partition}/{offset}".encode()
    return ConsumerRecord(*partition, offset, 0, 0, None, value, (), LEADER_EPOCH)


class FakeConsumer:
    """A consumer that returns two records of each partition per poll; the coordinator provides its committed offsets.

    When all offsets are committed, the consumer sets `is_done`.
    """

    def __init__(self, coordinator: FakeCoordinator, records: dict[TopicPartition, int], **options: Any) -> None:
        self.config = load(ConsumerConfig, "h:1", {**OPTIONS, **options})
        self.coordinator = coordinator
        self.records = records
        self._positions = dict.fromkeys(records, 0)
        self.came_from: dict[TopicPartition, int] = {}
        self.generation = 1
        self.is_done = asyncio.Event()
        self.on_poll: Callable[[], None] = lambda: None
        self.committed_errors: list[KafkaError] = []
        self.polls: list[int | None] = []

    async def poll(self, timeout_ms: int, max_records: int | None) -> dict[TopicPartition, list[ConsumerRecord]]:
        self.polls.append(max_records)
        await asyncio.sleep(0)
        self.on_poll()
        if self.came_from and self.committed_errors:
            self.committed_errors.pop(0)
            return {}  # the next poll looks the position up again
        polled = {}
        for partition, end in self.records.items():
            position = self.positions[partition]
            offsets = range(position, min(position + 2, end))
            if offsets:
                polled[partition] = [record(partition, offset) for offset in offsets]
                self.positions[partition] = offsets[-1] + 1
        if not polled:
            self.is_done.set()
        return polled

    def assignment(self) -> set[TopicPartition]:
        return set(self.records)

    def seek_to_committed(self, partition: TopicPartition, came_from: int) -> None:
        assert partition in self.records
        self.came_from[partition] = came_from

    @property
    def positions(self) -> dict[TopicPartition, int]:
        for partition, came_from in self.came_from.items():
            self._positions[partition] = self.coordinator.offsets.get(("g", *partition), came_from)
        self.came_from.clear()
        return self._positions

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            partition: OffsetAndMetadata(offset, "", LEADER_EPOCH)
            for partition, offset in self._positions.items()
            if partition not in self.came_from
        }

    async def committed(self, partitions: Any) -> dict[TopicPartition, OffsetAndMetadata | None]:
        offsets = {partition: self.coordinator.offsets.get(("g", *partition)) for partition in partitions}
        return {at: None if offset is None else OffsetAndMetadata(offset) for at, offset in offsets.items()}

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata("g", self.generation, "member", None)


class Run:
    """One consumer and one producer; `process` copies each record after it has awaited `before`."""

    def __init__(self, producer: Producer, consumer: FakeConsumer) -> None:
        self.producer = producer
        self.consumer = consumer
        self.seen: list[list[bytes | None]] = []
        self.before: Callable[[], Any] = lambda: None

    async def process(self, records: list[ConsumerRecord]) -> None:
        self.seen.append([record.value for record in records])
        waiting = self.before()
        if asyncio.iscoroutine(waiting):
            await waiting
        for one in records:
            await self.producer.send("topic", one.value)

    async def until_done(self, **options: Any) -> None:
        consumer: Any = self.consumer
        async with asyncio.timeout(10):
            await consume_process_produce(consumer, self.producer, self.process, stop=self.consumer.is_done, **options)

    def start(self) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.until_done())


@contextlib.asynccontextmanager
async def started(
    coordinator: FakeCoordinator, records: dict[TopicPartition, int] | None = None, **options: Any
) -> AsyncIterator[Run]:
    consumer = FakeConsumer(coordinator, records or {IN0: 6})
    async with Producer(
        coordinator.broker.address, **{"transactional_id": "t", "linger_ms": 0, **QUICK, **options}
    ) as producer:
        yield Run(producer, consumer)


def all_of(partition: TopicPartition, count: int) -> list[bytes]:
    return [f"{partition.partition}/{offset}".encode() for offset in range(count)]


async def test_s60_each_record_is_processed_once_and_offsets_follow_the_last(coordinator: FakeCoordinator) -> None:
    async with started(coordinator, {IN0: 5, IN1: 3}) as run:
        await run.until_done()
    committed = coordinator.committed[OUT]
    assert [value for value in committed if value.startswith(b"0")] == all_of(IN0, 5)
    assert [value for value in committed if value.startswith(b"1")] == all_of(IN1, 3)
    assert coordinator.offsets == {("g", "in", 0): 5, ("g", "in", 1): 3}
    assert [len(values) for values in run.seen] == [4, 3, 1]  # each poll becomes one transaction
    request = coordinator.broker.requests_of(TxnOffsetCommitRequest)[0]
    assert request.topics[0].partitions[0].committed_leader_epoch == LEADER_EPOCH
    assert len(coordinator.broker.requests_of(EndTxnRequest)) == 3


async def test_s60_the_number_of_records_in_a_transaction_may_be_limited(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as run:
        await run.until_done(max_records=7)
    assert set(run.consumer.polls) == {7}


async def test_s91_markers_and_aborted_records_leave_no_lag(coordinator: FakeCoordinator) -> None:
    """A poll returns markers and aborted records before a record, after a record, or alone; in each case the position
    after them is committed.
    """
    async with started(coordinator, {IN0: 2, IN1: 0}) as run:
        consumer: Any = run.consumer
        stop = asyncio.Event()

        def passes() -> None:
            if len(consumer.polls) == 1:
                consumer._positions[IN1] = 7  # only markers and aborted records
            if len(consumer.polls) == 3:
                consumer._positions[IN0] = 5000
            if len(consumer.polls) == 9:
                stop.set()

        consumer.on_poll = passes
        await consume_process_produce(consumer, run.producer, run.process, stop=stop)
    assert coordinator.offsets == {("g", *IN0): 5000, ("g", *IN1): 7}
    assert coordinator.committed == {OUT: [b"0/0", b"0/1"]}
    # No transaction is begun while the positions are unchanged.
    assert len(coordinator.broker.requests_of(TxnOffsetCommitRequest)) == 3


async def test_s91_already_committed_offsets_need_no_transaction(coordinator: FakeCoordinator) -> None:
    coordinator.offsets = {("g", *IN0): 0, ("g", *IN1): 0}
    async with started(coordinator, {IN0: 0, IN1: 0}) as run:
        await run.until_done()
    assert not coordinator.broker.requests_of(TxnOffsetCommitRequest)


async def test_s60_an_error_of_process_aborts_rewinds_and_is_raised(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as run:

        def fail() -> None:
            if len(run.seen) == 2:
                raise ZeroDivisionError

        run.before = fail
        with pytest.raises(ZeroDivisionError):
            await run.until_done()
        assert run.consumer.positions == {IN0: 2}
        await run.until_done()
    assert coordinator.committed == {OUT: all_of(IN0, 6)}


async def test_s60_without_committed_offsets_the_consumer_rewinds_to_its_first_record(
    coordinator: FakeCoordinator,
) -> None:
    async with started(coordinator) as run:
        run.consumer.positions[IN0] = 1
        run.before = lambda: 1 // 0
        with pytest.raises(ZeroDivisionError):
            await run.until_done()
        assert run.consumer.positions == {IN0: 1}


async def test_s60_the_consumer_rewinds_to_offsets_committed_by_others(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as run:

        def fail() -> None:
            coordinator.offsets["g", "in", 0] = 5
            raise ZeroDivisionError

        run.before = fail
        with pytest.raises(ZeroDivisionError):
            await run.until_done()
        assert run.consumer.positions == {IN0: 5}


async def test_s60_a_partition_that_is_gone_is_left_alone(coordinator: FakeCoordinator) -> None:
    async with started(coordinator, {IN0: 2, IN1: 2}) as run:

        def lose() -> None:
            del run.consumer.records[IN1]
            raise ZeroDivisionError

        run.before = lose
        with pytest.raises(ZeroDivisionError):
            await run.until_done()
    assert run.consumer.positions == {IN0: 0, IN1: 2}


async def test_s60_no_record_is_skipped_if_committed_offsets_are_unknown(coordinator: FakeCoordinator) -> None:
    error = RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, "no coordinator")
    async with started(coordinator) as run:
        coordinator.script[TxnOffsetCommitRequest] = [ErrorCode.ILLEGAL_GENERATION]
        run.consumer.committed_errors = [error, error]
        await run.until_done()
        run.consumer.records[IN0] = 8
        run.consumer.is_done.clear()
        run.seen.clear()
        run.before = lambda: 1 // 0
        with pytest.raises(ZeroDivisionError):  # the error that rewinding the consumer causes is not raised
            await run.until_done()
        assert len(run.seen) == 1
        assert run.consumer.positions == {IN0: 6}
    assert coordinator.committed == {OUT: all_of(IN0, 6)}


@pytest.mark.parametrize(
    ("request_type", "step"),
    [
        (TxnOffsetCommitRequest, ErrorCode.ILLEGAL_GENERATION),
        (TxnOffsetCommitRequest, ErrorCode.UNKNOWN_MEMBER_ID),
        (TxnOffsetCommitRequest, ErrorCode.REBALANCE_IN_PROGRESS),
        (ProduceRequest, ErrorCode.TRANSACTION_ABORTABLE),
        (ProduceRequest, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (ProduceRequest, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ProduceRequest, Step.LOST),
        (EndTxnRequest, ErrorCode.TRANSACTION_ABORTABLE),
        (EndTxnRequest, Step.DROPPED),
        (EndTxnRequest, Step.LOST),
    ],
)
async def test_s60_a_retriable_failure_is_repeated(coordinator: FakeCoordinator, request_type: Any, step: Any) -> None:
    async with started(coordinator) as run:
        coordinator.script[request_type] = [Step.PASS, step, Step.PASS, step]
        await run.until_done()
    assert coordinator.committed == {OUT: all_of(IN0, 6)}
    assert coordinator.offsets == {("g", "in", 0): 6}


async def test_s42_kip890_a_transaction_that_took_too_long_is_repeated(coordinator_v2: FakeCoordinator) -> None:
    async with started(coordinator_v2) as run:
        coordinator_v2.script[EndTxnRequest] = [Step.PASS, ErrorCode.INVALID_TXN_STATE]
        await run.until_done()
    assert coordinator_v2.committed == {OUT: all_of(IN0, 6)}


@pytest.mark.parametrize(
    ("request_type", "code"),
    [
        (ProduceRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ProduceRequest, ErrorCode.INVALID_RECORD),
        (TxnOffsetCommitRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (TxnOffsetCommitRequest, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
async def test_s60_a_lasting_failure_is_raised(
    coordinator: FakeCoordinator, request_type: Any, code: ErrorCode
) -> None:
    async with started(coordinator) as run:

        def script() -> None:
            coordinator.script[request_type] = [code] if len(run.seen) == 2 else []

        run.before = script
        with pytest.raises(AbortableError) as caught:
            await run.until_done()
        assert caught.value.code is code
        assert run.consumer.positions == {IN0: 2}
    assert coordinator.committed == {OUT: all_of(IN0, 2)}
    assert coordinator.offsets == {("g", "in", 0): 2}


async def test_s60_a_record_that_is_too_large_is_not_tried_for_ever(coordinator: FakeCoordinator) -> None:
    async with started(coordinator, max_request_size=200) as run:
        run.before = lambda: run.producer.send("topic", b"x" * 300)
        with pytest.raises(MessageTooLarge):
            await run.until_done()
    assert len(run.seen) == 1


async def test_s60_a_wrong_call_is_not_repeated(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as run:
        run.before = lambda: run.producer.begin_transaction()
        with pytest.raises(InvalidTransactionState):
            await run.until_done()
    assert len(run.seen) == 1


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_s41_a_fenced_processor_stops(coordinator: FakeCoordinator, code: ErrorCode) -> None:
    async with started(coordinator) as run:
        coordinator.script[EndTxnRequest] = [Step.PASS, code]
        with pytest.raises(ProducerFenced):
            await run.until_done()
    assert run.consumer.positions == {IN0: 2}
    assert coordinator.committed == {OUT: all_of(IN0, 2)}


async def test_s46_offsets_are_committed_with_the_member_identity_of_the_poll(coordinator: FakeCoordinator) -> None:
    # The consumer leaves its group while its records are processed, and the coordinator must then refuse its offsets.
    async with started(coordinator, {IN0: 2}) as run:

        def drop_out() -> None:
            run.consumer.generation = -1

        run.before = drop_out
        await run.until_done()
    (request,) = coordinator.broker.requests_of(TxnOffsetCommitRequest)
    assert (request.generation_id, request.member_id) == (1, "member")


async def test_s44_the_commit_that_is_under_way_may_be_an_earlier_one(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold]
    async with started(coordinator) as run:
        run.producer.begin_transaction()
        await run.producer.send_and_wait("topic", b"before")
        with impatient(run.producer):
            with pytest.raises(EndNotKnown):
                await run.producer.commit_transaction()
            running = run.start()
            await a_while(running)
        assert run.seen == []
        hold.set()
        await running
    assert coordinator.committed == {OUT: [b"before", *all_of(IN0, 6)]}


@contextlib.contextmanager
def impatient_to_end(run: Run) -> Iterator[None]:
    """Let max.block.ms expire at any point between sending the offsets and the end of the transaction."""
    coordinator = run.consumer.coordinator
    with contextlib.ExitStack() as stack:

        def handed_over(request: Any) -> Any:
            stack.enter_context(impatient(run.producer))
            return coordinator._handle(request)

        coordinator.broker.handlers[TxnOffsetCommitRequest] = handed_over
        yield
        coordinator.broker.handlers[TxnOffsetCommitRequest] = coordinator._handle


async def a_while(running: asyncio.Task[None]) -> None:
    """Wait for a multiple of max.block.ms, or until `running` ends."""
    await asyncio.wait([running], timeout=0.02)


async def test_s44_a_commit_that_takes_long_is_waited_for(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold]
    async with started(coordinator) as run:
        with impatient_to_end(run):
            running = run.start()
            await coordinator.broker.received(EndTxnRequest)
            await a_while(running)
        assert len(run.seen) == 1  # no request comes before it
        hold.set()
        await running
    assert coordinator.committed == {OUT: all_of(IN0, 6)}


async def test_s44_a_slow_abort_after_a_failed_process_is_awaited(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold]
    async with started(coordinator) as run:
        with contextlib.ExitStack() as stack:

            async def fail() -> None:
                if len(run.seen) == 1:
                    await run.producer.send_and_wait("topic", b"dropped")
                    stack.enter_context(impatient(run.producer))
                    raise RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, "some other client")

            run.before = fail
            running = run.start()
            await coordinator.broker.received(EndTxnRequest)
            await a_while(running)
        assert len(run.seen) == 1
        hold.set()
        await running
    assert coordinator.committed == {OUT: all_of(IN0, 6)}


async def test_s44_a_slow_abort_after_a_failed_commit_is_awaited(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [ErrorCode.TRANSACTION_ABORTABLE, hold]
    async with started(coordinator) as run:
        with impatient_to_end(run):
            running = run.start()
            await coordinator.broker.received(EndTxnRequest, 2)
            await a_while(running)
        assert len(run.seen) == 1
        hold.set()
        await running
    assert coordinator.committed == {OUT: all_of(IN0, 6)}


async def test_s44_a_commit_that_took_long_and_failed_is_repeated(coordinator: FakeCoordinator) -> None:
    hold, aborting = asyncio.Event(), asyncio.Event()
    steps = iter([(hold, ErrorCode.TRANSACTION_ABORTABLE), (aborting, None)])

    async def refuse(request: Any) -> Any:
        event, refusal = next(steps, (aborting, None))
        await event.wait()
        return coordinator.answer(request, coordinator.broker.version, refusal=refusal)

    coordinator.broker.handlers[EndTxnRequest] = refuse
    async with started(coordinator) as run:
        with impatient_to_end(run):
            running = run.start()
            await coordinator.broker.received(EndTxnRequest)
            await a_while(running)
            hold.set()
            await coordinator.broker.received(EndTxnRequest, 2)
            await a_while(running)
        assert len(run.seen) == 1
        aborting.set()
        await running
    assert coordinator.committed == {OUT: all_of(IN0, 6)}


async def test_s60_a_cancellation_in_process_rewinds_the_consumer(coordinator: FakeCoordinator) -> None:
    reached = asyncio.Event()

    async def wait() -> None:
        if len(run.seen) == 2:
            reached.set()
            await asyncio.Event().wait()

    async with started(coordinator) as run:
        run.before = wait
        running = run.start()
        await reached.wait()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert run.consumer.positions == {IN0: 2}
        await run.until_done()
    assert coordinator.committed == {OUT: all_of(IN0, 6)}


async def test_s60_the_outcome_of_a_twice_cancelled_commit_counts(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()

    async def answer(request: Any) -> Any:
        coordinator.broker.handlers[EndTxnRequest] = coordinator._handle
        await hold.wait()
        return coordinator.answer(request, coordinator.broker.version)

    coordinator.broker.handlers[EndTxnRequest] = answer
    async with started(coordinator) as run:
        running = run.start()
        await coordinator.broker.received(EndTxnRequest)
        running.cancel()
        await a_while(running)
        running.cancel()
        await asyncio.wait([running])
        hold.set()
        await run.producer.commit_transaction()
        assert run.consumer.positions == {IN0: 2}
        await run.until_done()
    assert coordinator.committed == {OUT: all_of(IN0, 6)}


@pytest.mark.parametrize("outcome", ["committed", "aborted"])
async def test_s60_the_outcome_of_a_cancelled_commit_counts(coordinator: FakeCoordinator, outcome: str) -> None:
    hold = asyncio.Event()
    refusal = ErrorCode.TRANSACTION_ABORTABLE if outcome == "aborted" else None

    async def answer(request: Any) -> Any:
        coordinator.broker.handlers[EndTxnRequest] = coordinator._handle
        await hold.wait()
        return coordinator.answer(request, coordinator.broker.version, refusal=refusal)

    coordinator.broker.handlers[EndTxnRequest] = answer
    async with started(coordinator) as run:
        running = run.start()
        await coordinator.broker.received(EndTxnRequest)
        running.cancel()
        await a_while(running)
        hold.set()
        await asyncio.wait([running])
        assert running.cancelled()
        assert run.consumer.positions == {IN0: 2 if outcome == "committed" else 0}
        await run.until_done()
    assert coordinator.committed == {OUT: all_of(IN0, 6)}


async def test_s60_the_processor_stops_between_two_transactions(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as run:
        run.before = run.consumer.is_done.set
        await run.until_done()
    assert coordinator.committed == {OUT: all_of(IN0, 2)}
    assert run.consumer.positions == {IN0: 2}


async def test_s60_an_exception_of_poll_is_raised(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as run:
        run.consumer.on_poll = lambda: 1 // 0  # type: ignore[assignment, return-value]
        with pytest.raises(ZeroDivisionError):
            await run.until_done()
    assert len(coordinator.broker.requests_of(InitProducerIdRequest)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"enable_auto_commit": True}, "enable_auto_commit: must be False"),
        ({"group_id": None}, "with a group_id"),
        ({"isolation_level": "read_uncommitted"}, "isolation_level: must be 'read_committed'"),
    ],
)
async def test_s60_a_consumer_that_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    coordinator: Any = None
    consumer: Any = FakeConsumer(coordinator, {}, **options)
    with pytest.raises(ConfigError, match=message):
        await consume_process_produce(consumer, Producer("h:1", transactional_id="t"), Run.process)  # type: ignore[arg-type]


async def test_s60_a_producer_without_transactions_is_refused() -> None:
    coordinator: Any = None
    consumer: Any = FakeConsumer(coordinator, {})
    with pytest.raises(ConfigError, match="transactional_id"):
        await consume_process_produce(consumer, Producer("h:1"), Run.process)  # type: ignore[arg-type]
