"""Tests transactions of oncelog's own client under failures, with V1 and V2. Tests that can share a broker also run
against Apache Kafka (tests/interop).
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest
from broker_process import BrokerFactory
from transactional_clients import new_id

from oncelog import Admin, Consumer, ConsumerGroupMetadata, NewTopic, Producer, TopicPartition
from oncelog.connection.transport import BrokerConnection
from oncelog.consume_process_produce import consume_process_produce
from oncelog.errors import (
    AbortableError,
    ConnectionFailed,
    EndNotKnown,
    InvalidTransactionState,
    KafkaError,
    MessageTooLarge,
    ProducerFenced,
)
from oncelog.metadata.list_offsets import LATEST_TIMESTAMP
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

TIMEOUT_SECONDS = 60
PARTITIONS = 3
END = b"the end"
V2 = 2


async def create(address: str, topic: str, partitions: int = PARTITIONS, **configs: str) -> None:
    async with Admin(address) as admin:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        await admin.create_topics([NewTopic(topic, partitions, configs=named)])
        await admin.list_offsets({TopicPartition(topic, index): LATEST_TIMESTAMP for index in range(partitions)})


async def committed(address: str, topic: str, producer: Producer, partitions: int = PARTITIONS) -> list[list[bytes]]:
    """Return the records that a read_committed consumer finds in each partition. Before reading, the function writes an
    end mark to each partition in a transaction.
    """
    async with producer.transaction():
        for partition in range(partitions):
            await producer.send(topic, END, partition=partition)
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    async with Consumer(address, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not all(values and values[-1] == END for values in found):
                for (_, partition), records in (await consumer.poll(1000)).items():
                    found[partition] += [record.value for record in records]
    return [values[:-1] for values in found]


@pytest.fixture(params=[1, V2], ids=["V1", "V2"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Set the cluster's `transaction.version`, as the client sees it."""
    if request.param < V2:
        monkeypatch.setattr("oncelog.connection.versions._finalized", lambda *_: request.param)
    return int(request.param)


@pytest.fixture
async def producing(address: str, level: int) -> AsyncIterator[Producer]:
    async with Producer(address, transactional_id=new_id(), retry_backoff_ms=10) as producer:
        yield producer


async def test_s35_many_transactions_are_committed(producing: Producer, address: str, topic: str) -> None:
    await create(address, topic)
    for number in range(40):
        producing.begin_transaction()
        for partition in range(number % PARTITIONS + 1):
            await producing.send(topic, b"%d" % number, partition=partition)
        if number % 4 == 3:
            await producing.abort_transaction()
        else:
            await producing.commit_transaction()
    kept = [number for number in range(40) if number % 4 != 3]
    expected = [[b"%d" % number for number in kept if number % PARTITIONS >= p] for p in range(PARTITIONS)]
    assert await committed(address, topic, producing) == expected


async def test_s27_s38_a_failed_send_aborts_all(producing: Producer, address: str, topic: str) -> None:
    await create(address, topic, max_message_bytes="1000")
    future: Any = None
    with pytest.raises(AbortableError) as raised:
        async with producing.transaction():
            await producing.send(topic, b"small", partition=0)
            future = await producing.send(topic, b"large" * 1000, partition=1)
            await producing.flush()
            await producing.send(topic, b"after it", partition=2)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert isinstance(future.exception(), MessageTooLarge)
    producing.begin_transaction()
    future = await producing.send(topic, b"large" * 1000, partition=1)
    with pytest.raises(AbortableError):
        await producing.commit_transaction()
    await producing.abort_transaction()
    async with producing.transaction():
        await producing.send(topic, b"kept", partition=1)
    assert await committed(address, topic, producing) == [[], [b"kept"], []]


@pytest.mark.parametrize("commits", [True, False])
async def test_e1_a_commit_with_a_lost_answer_is_repeated_safely(
    producing: Producer, address: str, topic: str, commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before V2 the client increments the epoch after a repeated commit, because the first EndTxn might still arrive
    late and must not end the next transaction.
    """
    await create(address, topic)
    start, lost = BrokerConnection.start, list[int]()

    def losing(connection: BrokerConnection, request: Any, *arguments: Any, **options: Any) -> Any:
        answer = start(connection, request, *arguments, **options)
        if not isinstance(request, EndTxnRequest) or lost:
            return answer
        lost.append(request.producer_epoch)
        nothing: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: connection.close())
        answer.add_done_callback(lambda _: nothing.set_exception(ConnectionFailed("the answer is lost")))
        return nothing

    producing.begin_transaction()
    await producing.send_and_wait(topic, b"first", partition=0)
    with monkeypatch.context() as patch:
        patch.setattr(BrokerConnection, "start", losing)
        await (producing.commit_transaction() if commits else producing.abort_transaction())
    assert lost
    found = await committed(address, topic, producing)
    assert found == [[b"first"] if commits else [], [], []]
    assert producing._session is not None
    assert producing._session.identity.epoch > lost[0]


async def test_s46_a_consumer_that_is_behind_commits_nothing(producing: Producer, address: str, topic: str) -> None:
    await create(address, topic)
    async with Consumer(address, group_id=topic, enable_auto_commit=False, heartbeat_interval_ms=100) as consumer:
        consumer.subscribe([topic])
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not consumer.assignment():
                await consumer.poll(100)
        me = consumer.group_metadata()
        source = TopicPartition(topic, 0)
        for behind, code in (
            (me._replace(generation_id=me.generation_id - 1), ErrorCode.ILLEGAL_GENERATION),
            (me._replace(member_id="somebody else"), ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            with pytest.raises(AbortableError) as raised:
                async with producing.transaction():
                    await producing.send(topic, b"of a zombie", partition=0)
                    await producing.send_offsets({source: 7}, behind)
            assert raised.value.code is code
            assert await consumer.committed([source]) == {source: None}
        async with producing.transaction():
            await producing.send(topic, b"kept", partition=0)
            await producing.send_offsets({source: 8}, me)
        found = (await consumer.committed([source]))[source]
        assert found is not None
        assert found.offset == 8
    assert await committed(address, topic, producing) == [[b"kept"], [], []]


@pytest.mark.crossed("level", "notices_by")
@pytest.mark.parametrize(
    ("level", "notices_by"),
    [(1, "send"), (V2, "send"), (V2, "offsets"), (V2, "commit")],
    indirect=["level"],
    ids=["V1-send", "V2-send", "V2-offsets", "V2-commit"],
)
async def test_s42_a_slow_transaction_is_aborted_and_the_next_one_succeeds(
    broker_factory: BrokerFactory, topic: str, level: int, notices_by: str
) -> None:
    """KIP-588: if no other producer has taken over after a timeout, this producer continues. Before V2 the producer
    notices the timeout only when it writes, because the coordinator's responses do not distinguish a timeout from a
    replaced producer.
    """
    broker = broker_factory({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}).start()
    await create(broker.address, topic)
    options = {"transactional_id": new_id(), "transaction_timeout_ms": 1500, "retry_backoff_ms": 10}
    async with Producer(broker.address, **options) as producer, Admin(broker.address) as admin:
        with pytest.raises(AbortableError):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"too slow", partition=0)
                await until_aborted(admin, TopicPartition(topic, 0))
                if notices_by == "send":
                    await producer.send_and_wait(topic, b"too late", partition=0)
                elif notices_by == "offsets":
                    nobody = ConsumerGroupMetadata(topic, -1, "", None)
                    await producer.send_offsets({TopicPartition(topic, 0): 1}, nobody)
        async with producer.transaction():
            await producer.send(topic, b"in time", partition=0)
        assert await committed(broker.address, topic, producer) == [[b"in time"], [], []]


async def until_aborted(admin: Admin, partition: TopicPartition) -> None:
    """Wait until a marker follows the only record."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await admin.list_offsets({partition: LATEST_TIMESTAMP}))[partition].offset < 2:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)


@pytest.mark.crossed("level", "moment")
@pytest.mark.parametrize("moment", ["before the sends", "after the sends", "at the commit"])
async def test_s38_a_transaction_survives_a_killed_broker(
    broker_factory: BrokerFactory, topic: str, level: int, moment: str
) -> None:
    broker = broker_factory().start()
    await create(broker.address, topic)
    options: dict[str, Any] = {"transactional_id": new_id(), "retry_backoff_ms": 10, "reconnect_backoff_ms": 10}
    async with Producer(broker.address, **options) as producer:

        async def again() -> None:
            broker.kill()
            await asyncio.to_thread(broker.start)

        async def transact(number: int, moment: str) -> None:
            producer.begin_transaction()
            if moment == "before the sends":
                await again()
            for partition in range(PARTITIONS):
                await producer.send(topic, b"%d" % number, partition=partition)
            if moment == "after the sends":
                await producer.flush()
                await again()
            ending = asyncio.ensure_future(producer.commit_transaction())
            if moment == "at the commit":
                await asyncio.sleep(0)
                await again()
            await ending

        for number in range(3):
            try:
                await transact(number, moment if number == 1 else "")
            except AbortableError:
                await producer.abort_transaction()
                await transact(number, "")
        values = [b"0", b"1", b"2"]
        assert await committed(broker.address, topic, producer) == [values] * PARTITIONS


async def test_s45_calls_in_a_wrong_state_are_refused(producing: Producer, address: str, topic: str) -> None:
    await create(address, topic)
    for wrong in (
        producing.send(topic, b"v"),
        producing.commit_transaction(),
        producing.abort_transaction(),
        producing.send_offsets({}, ConsumerGroupMetadata("group", -1, "", None)),
    ):
        with pytest.raises(KafkaError, match="READY"):
            await wrong
    producing.begin_transaction()
    with pytest.raises(KafkaError, match="IN_TRANSACTION"):
        producing.begin_transaction()
    await producing.abort_transaction()


async def test_s36_the_last_record_without_a_key_goes_to_another_partition(
    address: str, level: int, topic: str
) -> None:
    """Each record fills a batch, and the next record goes to another partition, which must become part of the
    transaction.
    """
    await create(address, topic)
    options: dict[str, Any] = {"transactional_id": new_id(), "batch_size": 100, "retry_backoff_ms": 10}
    async with asyncio.timeout(TIMEOUT_SECONDS), Producer(address, **options) as producer:
        for number in range(10):
            async with producer.transaction():
                for _ in range(1 + number % 2):
                    await producer.send(topic, b"v" * 100)
        found = await committed(address, topic, producer)
    assert sum(map(len, found)) == 15


async def test_s45_a_record_waiting_for_room_does_not_join_the_next_transaction(
    address: str, level: int, topic: str
) -> None:
    """The record that is waiting fails, and later records do not."""
    await create(address, topic)
    options: dict[str, Any] = {"transactional_id": new_id(), "batch_size": 200, "buffer_memory": 200, "linger_ms": 5000}
    async with asyncio.timeout(TIMEOUT_SECONDS), Producer(address, **options) as producer:
        for begins_next in (True, False):
            producer.begin_transaction()
            await producer.send(topic, b"first", partition=0)
            waiting = asyncio.create_task(producer.send(topic, b"second", partition=1))
            await asyncio.sleep(0)
            await producer.abort_transaction()
            if begins_next:
                producer.begin_transaction()
            with pytest.raises(InvalidTransactionState):
                await waiting
            if not begins_next:
                producer.begin_transaction()
            await producer.send(topic, b"kept", partition=0)
            await producer.commit_transaction()
        assert await committed(address, topic, producer) == [[b"kept"] * 2, [], []]


@pytest.mark.crossed("level", "commits")
@pytest.mark.parametrize("commits", [True, False])
async def test_s38_a_commit_survives_a_broker_killed_before_its_answer(
    broker_factory: BrokerFactory, topic: str, level: int, commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was killed after it had ended the transaction, so nothing is left to do when the producer
    reconnects.
    """
    broker = broker_factory().start()
    await create(broker.address, topic)
    start, killed = BrokerConnection.start, list[str]()

    def last_words(connection: BrokerConnection, request: Any, *arguments: Any) -> Any:
        answer = start(connection, request, *arguments)
        if isinstance(request, EndTxnRequest) and not killed:
            killed.append(topic)
            answer.add_done_callback(lambda _: broker.kill())
            answer.add_done_callback(lambda _: connection.close())
        return answer

    options: dict[str, Any] = {"transactional_id": new_id(), "retry_backoff_ms": 10, "reconnect_backoff_ms": 10}
    async with Producer(broker.address, **options) as producer:
        producer.begin_transaction()
        await producer.send_and_wait(topic, b"first", partition=0)
        with monkeypatch.context() as patch:
            patch.setattr(BrokerConnection, "start", last_words)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
        assert killed
        await asyncio.to_thread(broker.start)
        assert await committed(broker.address, topic, producer) == [[b"first"] if commits else [], [], []]


async def test_s60_cancelled_while_it_commits_it_can_be_called_again(
    producing: Producer, address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is cancelled while its commit is in progress; the commit takes effect, and the input records of the
    transaction are not processed again.
    """
    source = topic + "-in"
    await create(address, topic)
    await create(address, source, 1)
    async with producing.transaction():
        await producing.send(source, b"once")
    start, cancelled = BrokerConnection.start, list[str]()

    def cancelling(connection: BrokerConnection, request: Any, *arguments: Any, **options: Any) -> Any:
        answer = start(connection, request, *arguments, **options)
        if isinstance(request, EndTxnRequest) and not cancelled:
            cancelled.append(topic)
            running.cancel()
        return answer

    async def process(records: list[Any]) -> None:
        for record in records:
            await producing.send(topic, record.value, partition=0)
        if records[-1].value == b"twice":
            stop.set()

    stop = asyncio.Event()
    options: dict[str, Any] = {"group_id": topic, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        Consumer(address, isolation_level="read_committed", **options) as consumer,
    ):
        consumer.subscribe([source])
        with monkeypatch.context() as patch:
            patch.setattr(BrokerConnection, "start", cancelling)
            running = asyncio.create_task(consume_process_produce(consumer, producing, process))
            with pytest.raises(asyncio.CancelledError):
                await running
        assert cancelled
        async with Producer(address) as other:
            await other.send_and_wait(source, b"twice")
        await consume_process_produce(consumer, producing, process, stop=stop)
    assert await committed(address, topic, producing) == [[b"once", b"twice"], [], []]


async def test_s60_the_consumer_rewinds_although_the_broker_is_away(
    broker_factory: BrokerFactory, topic: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer returns to the committed offsets however long the broker is down, even longer than a call may take,
    and skips no record.
    """
    broker = broker_factory().start()
    source, failures = topic + "-in", list[asyncio.Task[Any]]()
    await create(broker.address, topic)
    await create(broker.address, source, 1)
    fast = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 10}
    read: dict[str, Any] = {"group_id": topic, "enable_auto_commit": False, "auto_offset_reset": "earliest", **fast}
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        Producer(broker.address, transactional_id=new_id(), **fast) as producer,
        Consumer(broker.address, isolation_level="read_committed", default_api_timeout_ms=200, **read) as consumer,
    ):
        for value in (b"first", b"second"):
            async with producer.transaction():
                await producer.send(source, value)

        async def process(records: list[Any]) -> None:
            if not failures:
                broker.kill()
                failures.append(asyncio.create_task(later()))
                raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "for now")
            for record in records:
                await producer.send(topic, record.value, partition=0)
            if records[-1].value == b"second":
                stop.set()

        async def later() -> None:
            await tried.wait()
            await asyncio.to_thread(broker.start)

        async def poll(consumer: Consumer, *arguments: Any) -> Any:
            is_away = bool(failures)
            try:
                return await unwatched(consumer, *arguments)
            finally:
                if is_away:
                    tried.set()

        stop, tried, unwatched = asyncio.Event(), asyncio.Event(), Consumer.poll
        monkeypatch.setattr(Consumer, "poll", poll)
        consumer.subscribe([source])
        await consume_process_produce(consumer, producer, process, max_records=1, stop=stop)
        await failures[0]
        assert await committed(broker.address, topic, producer) == [[b"first", b"second"], [], []]


async def test_s37_late_offsets_do_not_join_the_next_transaction(
    producing: Producer, address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of offsets whose response was lost arrives late: it must not reset the offsets that the next transaction
    commits.
    """
    await create(address, topic)
    source = TopicPartition(topic, 0)
    start, late = BrokerConnection.start, list[tuple[Any, ...]]()

    def losing(connection: BrokerConnection, request: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(request, TxnOffsetCommitRequest) or late:
            return start(connection, request, *arguments, **options)
        late.append((connection.address, request, *arguments))
        nothing: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        nothing.set_exception(ConnectionFailed("the connection is lost, and the request is on its way"))
        return nothing

    async with Consumer(address, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.assign([source])
        group = ConsumerGroupMetadata(topic, -1, "", None)
        with monkeypatch.context() as patch:
            patch.setattr(BrokerConnection, "start", losing)
            async with producing.transaction():
                await producing.send(topic, b"first", partition=1)
                await producing.send_offsets({source: 1}, group)
        async with producing.transaction():
            await producing.send(topic, b"second", partition=1)
            await producing.send_offsets({source: 2}, group)
            assert producing._pool is not None
            address, *request = late[0]
            await start(await producing._pool._open(address), *request)
        found = (await consumer.committed([source]))[source]
    assert found is not None
    assert found.offset == 2


async def test_s38_a_producer_is_closed_while_its_commit_fails(producing: Producer, address: str, topic: str) -> None:
    """When the producer is closed, its transaction is aborted immediately, and not only after its timeout."""
    await create(address, topic, max_message_bytes="1000")
    producing.begin_transaction()
    await producing.send_and_wait(topic, b"small", partition=0)
    await producing.send(topic, b"large" * 1000, partition=1)
    committing = asyncio.create_task(producing.commit_transaction())
    await asyncio.sleep(0)
    await producing.close()
    with pytest.raises(AbortableError):
        await committing
    async with Producer(address) as other, Consumer(address, isolation_level="read_committed") as consumer:
        await other.send_and_wait(topic, b"plain", partition=0)
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        async with asyncio.timeout(40):
            while not (found := await consumer.poll(1000)):
                pass
    assert [record.value for records in found.values() for record in records] == [b"plain"]


async def test_s38_a_producer_is_closed_in_time_though_its_commit_is_not_answered(
    broker_factory: BrokerFactory, topic: str, level: int
) -> None:
    broker = broker_factory().start()
    await create(broker.address, topic)
    producer = Producer(broker.address, transactional_id=new_id(), max_block_ms=3000)
    await producer.start()
    producer.begin_transaction()
    await producer.send_and_wait(topic, b"v", partition=0)
    broker.kill()
    with pytest.raises(EndNotKnown):
        await producer.commit_transaction()
    async with asyncio.timeout(TIMEOUT_SECONDS / 2):
        await producer.close()


async def test_s38_an_unsent_record_fails_the_commit(producing: Producer, address: str, topic: str) -> None:
    """The commit fails even if no caller has awaited `send`."""
    await create(address, topic)
    for wrong in ({"topic": "not a topic"}, {"topic": topic, "partition": PARTITIONS}):
        producing.begin_transaction()
        await producing.send(topic, b"torn", partition=0)
        with pytest.raises(KafkaError):
            await producing.send(value=b"not there", **wrong)  # type: ignore[arg-type]
        with pytest.raises(AbortableError):
            await producing.commit_transaction()
        await producing.abort_transaction()
    assert await committed(address, topic, producing) == [[], [], []]


async def test_s45_a_record_that_waits_does_not_come_into_the_next_transaction(
    producing: Producer, address: str, topic: str
) -> None:
    await create(address, topic)
    producing.begin_transaction()
    waiting = asyncio.ensure_future(producing.send(topic, b"of the first", partition=0))
    await asyncio.sleep(0)  # give `send` time to request the topic's metadata
    await producing.commit_transaction()
    producing.begin_transaction()
    with pytest.raises(InvalidTransactionState):
        await waiting
    await producing.commit_transaction()
    assert await committed(address, topic, producing) == [[], [], []]


async def test_s41_the_error_of_a_fenced_producer_does_not_grow(producing: Producer, address: str, topic: str) -> None:
    await create(address, topic)
    producing.begin_transaction()
    await producing.send_and_wait(topic, b"v", partition=0)
    async with Producer(address, transactional_id=producing.config.transactional_id):
        pass
    with pytest.raises(ProducerFenced):
        await producing.commit_transaction()
        await producing.abort_transaction()
    depths = set()
    for _ in range(10):
        with pytest.raises(ProducerFenced) as raised:
            producing.begin_transaction()
        depths.add(len(list(traceback.walk_tb(raised.value.__traceback__))))
    assert len(depths) == 1


@pytest.mark.crossed("level", "commits")
@pytest.mark.parametrize("commits", [True, False])
async def test_a_process_that_knows_a_transaction_ends_it(level: int, address: str, topic: str, commits: bool) -> None:
    """The producer of the transaction is already closed at that time. A repeated request to end the transaction, or a
    request for the opposite outcome, returns the actual outcome.
    """
    await create(address, topic)
    async with Producer(address, transactional_id=new_id()) as producer:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            await producer.send(topic, b"prepared", partition=partition)
        prepared = await producer.prepare_transaction()
    assert prepared is not None
    async with Admin(address) as admin, Producer(address, transactional_id=new_id()) as other:
        described = (await admin.transactions.describe([prepared.transactional_id]))[prepared.transactional_id]
        assert (described.state, described.producer_id, described.producer_epoch) == ("Ongoing", *prepared[1:3])
        assert prepared.is_v2 is (level == V2)
        for _ in range(2):
            assert await admin.transactions.end(prepared, commits=commits)
        assert not await admin.transactions.end(prepared, commits=not commits)
        assert await committed(address, topic, other) == [[b"prepared"] * commits] * PARTITIONS
        await admin.transactions.fence([prepared.transactional_id])
        assert not await admin.transactions.end(prepared, commits=True)
