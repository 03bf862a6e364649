"""Tests share consumers (KIP-932) of librdkafka and oncelog on a live broker: records are shared, released, rejected,
and not lost.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from broker_process import BrokerFactory, BrokerProcess
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from oncelog import Admin, Consumer, ShareRecord
from oncelog import ShareConsumer as OncelogShareConsumer
from oncelog import errors as oncelog_errors
from oncelog.admin import AlterConfig, ConfigResource

TIMEOUT_SECONDS = 60.0
QUICK = {"group.share.min.record.lock.duration.ms": "500", "group.share.assignment.interval.ms": "100"}

Key = tuple[int, int]
"""Partition and offset of a record."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("shares") / "data", QUICK)
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()


class Shares:
    """A topic with records, and a share group that reads it from the beginning."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str, partitions: int = 2) -> None:
        self.broker = broker
        self.topic = topic
        self.group = group
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_SECONDS)
        self.partitions = partitions
        self.set("share.auto.offset.reset", "earliest")

    def set(self, name: str, value: str) -> None:
        asyncio.run(self._set(name, value))

    async def _set(self, name: str, value: str) -> None:
        async with Admin(self.broker.address) as admin:
            await admin.incremental_alter_configs({ConfigResource.group(self.group): [AlterConfig(name, value)]})

    def produce(self, count: int) -> set[Key]:
        producer = Producer({"bootstrap.servers": self.broker.address})
        keys: set[Key] = set()
        for number in range(count):
            producer.produce(
                self.topic,
                str(number),
                partition=number % self.partitions,
                callback=lambda error, message: keys.add((message.partition(), message.offset())),
            )
        assert producer.flush(TIMEOUT_SECONDS) == 0
        return keys

    def consumer(self, mode: str = "explicit") -> ShareConsumer:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": self.group,
                "share.acknowledgement.mode": mode,
            }
        )
        consumer.subscribe([self.topic])
        return consumer


@pytest.fixture
def shares(broker: BrokerProcess, topic: str, group: str) -> Shares:
    return Shares(broker, topic, group)


def key_of(message: Message) -> Key:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def poll_until(
    consumers: list[ShareConsumer], is_enough: Callable[[], bool], take: Callable[[int, Message], None]
) -> None:
    """Poll the consumers in rotation; `take` is called with the index of the consumer and each message."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_enough():
        assert time.monotonic() < deadline
        for index, consumer in enumerate(consumers):
            for message in consumer.poll(0.2):
                assert message.error() is None, message.error()
                take(index, message)


def accept(consumer: ShareConsumer, message: Message) -> None:
    consumer.acknowledge(message, AcknowledgeType.ACCEPT)


def committed(outcomes: dict[TopicPartition, object]) -> bool:
    assert all(error is None for error in outcomes.values()), outcomes
    return bool(outcomes)


def test_each_record_is_at_one_member_and_all_are_accepted(shares: Shares) -> None:
    produced = shares.produce(300)
    consumers = [shares.consumer(), shares.consumer(), shares.consumer()]
    got: Counter[Key] = Counter()
    members: set[int] = set()

    def take(index: int, message: Message) -> None:
        got[key_of(message)] += 1
        members.add(index)
        accept(consumers[index], message)
        committed(consumers[index].commit_sync(TIMEOUT_SECONDS))

    poll_until(consumers, lambda: set(got) == produced, take)
    for consumer in consumers:
        consumer.close()
    assert set(got.values()) == {1}
    late = shares.consumer()
    more = shares.produce(10)
    again: set[Key] = set()
    poll_until([late], lambda: again == more, lambda _, message: (again.add(key_of(message)), accept(late, message))[0])
    late.close()


def test_implicit_acknowledgement_accepts_with_the_next_poll(shares: Shares) -> None:
    produced = shares.produce(50)
    got: set[Key] = set()
    consumer = shares.consumer("implicit")
    poll_until([consumer], lambda: got == produced, lambda _, message: got.add(key_of(message)))
    consumer.commit_sync(TIMEOUT_SECONDS)
    consumer.close()
    more, rest = shares.produce(1), set[Key]()
    late = shares.consumer("implicit")
    poll_until([late], lambda: bool(rest), lambda _, message: rest.add(key_of(message)))
    late.close()
    assert rest == more


def test_a_released_record_comes_again_and_a_rejected_one_does_not(shares: Shares) -> None:
    produced = sorted(shares.produce(20))
    released, rejected = produced[3], produced[7]
    got: Counter[Key] = Counter()
    consumer = shares.consumer()

    def take(_: int, message: Message) -> None:
        key = key_of(message)
        got[key] += 1
        if key == released and got[key] == 1:
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
        else:
            kind = AcknowledgeType.REJECT if key == rejected else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, kind)

    poll_until([consumer], lambda: got[released] == 2 and len(got) == 20, take)
    committed(consumer.commit_sync(TIMEOUT_SECONDS))
    consumer.close()
    assert {key: count for key, count in got.items() if count != 1} == {released: 2}


def test_records_come_to_another_member_when_the_lock_runs_out(broker: BrokerProcess, topic: str, group: str) -> None:
    shares = Shares(broker, topic, group, partitions=1)
    shares.set("share.record.lock.duration.ms", "1000")
    produced = shares.produce(10)
    first, got = shares.consumer(), set[Key]()
    poll_until([first], lambda: got == produced, lambda _, message: got.add(key_of(message)))
    second, again = shares.consumer(), set[Key]()
    poll_until(
        [second],
        lambda: again == produced,
        lambda _, message: (again.add(key_of(message)), accept(second, message))[0],
    )
    second.close()
    first.close()


def test_a_record_is_delivered_as_often_as_the_limit_says(shares: Shares) -> None:
    shares.set("share.delivery.count.limit", "2")
    produced = sorted(shares.produce(2))
    got: Counter[Key] = Counter()
    consumer = shares.consumer()

    def take(_: int, message: Message) -> None:
        key = key_of(message)
        got[key] += 1
        kind = AcknowledgeType.RELEASE if key == produced[0] else AcknowledgeType.ACCEPT
        consumer.acknowledge(message, kind)

    poll_until([consumer], lambda: got[produced[0]] == 2, take)
    last = sorted(shares.produce(2))
    poll_until([consumer], lambda: set(last) <= set(got), take)
    consumer.close()
    assert got[produced[0]] == 2


def test_aborted_records_are_not_delivered_where_the_group_reads_committed_ones(shares: Shares) -> None:
    shares.set("share.isolation.level", "read_committed")
    producer = Producer({"bootstrap.servers": shares.broker.address, "transactional.id": shares.group})
    producer.init_transactions(TIMEOUT_SECONDS)
    for value, commits in ((b"aborted", False), (b"committed", True), (b"aborted", False), (b"last", True)):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(shares.topic, value, partition=number % 2)
        producer.flush(TIMEOUT_SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(TIMEOUT_SECONDS)
    values: Counter[bytes | str | None] = Counter()
    consumer = shares.consumer()

    def take(_: int, message: Message) -> None:
        values[message.value()] += 1
        accept(consumer, message)

    poll_until([consumer], lambda: sum(values.values()) == 10, take)
    committed(consumer.commit_sync(TIMEOUT_SECONDS))
    consumer.close()
    assert values == {b"committed": 5, b"last": 5}


def test_what_was_accepted_stays_so_when_the_broker_is_killed(
    broker_factory: BrokerFactory, topic: str, group: str
) -> None:
    with broker_factory(QUICK) as broker:
        shares = Shares(broker, topic, group, partitions=1)
        produced = sorted(shares.produce(40))
        consumer = shares.consumer()
        got: dict[Key, Message] = {}
        poll_until([consumer], lambda: len(got) == 40, lambda _, message: got.setdefault(key_of(message), message))
        for key in produced[:10] + produced[20:30]:
            accept(consumer, got[key])
        assert committed(consumer.commit_sync(TIMEOUT_SECONDS))
        broker.kill()
        broker.start()
        again: set[Key] = set()
        late = shares.consumer()
        poll_until(
            [late],
            lambda: len(again) == 20,
            lambda _, message: (again.add(key_of(message)), accept(late, message))[0],
        )
        assert sorted(again) == produced[10:20] + produced[30:]
        late.close()
        consumer.close()


async def gathered(consumer: OncelogShareConsumer, count: int) -> list[ShareRecord]:
    """Poll until `count` records have arrived, and return them."""
    records: list[ShareRecord] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(records) < count:
            records += await consumer.poll(1_000)
    return records


def test_our_consumer_shares_records_and_says_what_became_of_each(shares: Shares) -> None:
    produced = shares.produce(100)

    async def run() -> None:
        options = {"group_id": shares.group, "share_acknowledgement_mode": "explicit"}
        async with OncelogShareConsumer(shares.broker.address, **options) as consumer:  # type: ignore[arg-type]
            consumer.subscribe([shares.topic])
            records = await gathered(consumer, 100)
            assert {(record.partition, record.offset) for record in records} == produced
            assert {record.delivery_count for record in records} == {1}
            with pytest.raises(ValueError, match="100 records of the last poll were not acknowledged"):
                await consumer.poll()
            for number, record in enumerate(records):
                (record.release if number < 10 else record.reject if number < 20 else record.accept)()
            with pytest.raises(ValueError, match="acknowledged already"):
                records[0].accept()
            outcomes = await consumer.commit()
            assert set(outcomes.values()) == {None}
            assert {partition.partition for partition in outcomes} == {0, 1}
            again = await gathered(consumer, 10)
            assert {record.delivery_count for record in again} == {2}
            assert {(r.partition, r.offset) for r in again} == {(r.partition, r.offset) for r in records[:10]}
            for record in again:
                record.renew()
            assert set((await consumer.commit()).values()) == {None}
            for record in again:
                record.accept()
            assert await consumer.poll(300) == []

    asyncio.run(run())


def test_our_consumer_accepts_implicitly_and_gives_back_what_was_not_seen(shares: Shares) -> None:
    produced = shares.produce(60)

    async def run() -> None:
        async with OncelogShareConsumer(
            shares.broker.address, group_id=shares.group, max_poll_records=10, share_acquire_mode="record_limit"
        ) as consumer:
            consumer.subscribe([shares.topic])
            seen = await gathered(consumer, 20)
        async with OncelogShareConsumer(shares.broker.address, group_id=shares.group) as other:
            other.subscribe([shares.topic])
            rest = await gathered(other, 60 - len(seen))
            assert await other.poll(300) == []
        keys = [(record.partition, record.offset) for record in (*seen, *rest)]
        assert sorted(keys) == sorted(produced)

    asyncio.run(run())


def test_our_consumer_continues_when_the_broker_was_killed(
    broker_factory: BrokerFactory, topic: str, group: str
) -> None:
    with broker_factory(QUICK) as broker:
        shares = Shares(broker, topic, group)
        produced = shares.produce(40)

        async def run() -> None:
            async with OncelogShareConsumer(broker.address, group_id=group, reconnect_backoff_max_ms=200) as consumer:
                consumer.subscribe([topic])
                first = await gathered(consumer, 40)
                assert set((await consumer.commit()).values()) == {None}
                broker.kill()
                broker.start()
                more = await asyncio.to_thread(shares.produce, 10)
                got = await gathered(consumer, 10)
                keys = {(record.partition, record.offset) for record in got}
                assert keys == more
                assert {(record.partition, record.offset) for record in first} == produced

        asyncio.run(run())


def test_a_member_of_a_group_of_another_protocol_is_told_so(shares: Shares, group: str) -> None:
    async def run() -> None:
        async with Consumer(shares.broker.address, group_id="other-" + group, group_protocol="consumer") as member:
            member.subscribe([shares.topic])
            await member.poll(1_000)
            async with OncelogShareConsumer(shares.broker.address, group_id="other-" + group) as consumer:
                consumer.subscribe([shares.topic])
                with pytest.raises(oncelog_errors.KafkaError) as raised:
                    await gathered(consumer, 1)
                assert raised.value.code is oncelog_errors.ErrorCode.GROUP_ID_NOT_FOUND

    asyncio.run(run())
