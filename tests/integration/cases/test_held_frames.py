"""Tests requests of real clients that reach the broker late or changed: a proxy in front of the broker delays and
alters them, as a network might (E1, E2, S67).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import confluent_kafka
import kafka
import kafka.errors
import pytest
from broker_process import BrokerFactory
from committed_reader import Watch, committed_values
from foreign_clients import TIMEOUT_SECONDS, eventually
from raw_client import RawClient
from raw_transactions import content, is_stable

from oncelog import Producer
from oncelog.errors import KafkaError
from oncelog_protocol.api import ApiKey

Sabotage = Callable[[str], None]

HOLDS = """
import asyncio, os, pathlib
from oncelog_broker.server.dispatch.dispatcher import Dispatcher

lock, log = pathlib.Path({lock!r}), pathlib.Path({lock!r} + ".held")
held = []
handle = Dispatcher.handle

def hold(self, connection, frame):
    if len(held) < {most} and int.from_bytes(frame[:2], "big") == {api_key} and lock.exists():
        held.append((self, connection, memoryview(bytearray(frame))))
        if len(held) == 1:
            waiting.append(asyncio.get_running_loop().create_task(release()))
    else:
        handle(self, connection, frame)

waiting = []

async def release():
    while lock.exists():
        await asyncio.sleep(0.01)
    for frame in held:
        handle(*frame)
    log.write_text(str(len(held)))

Dispatcher.handle = hold
"""


class Door:
    """A part of the proxy that can delay requests on their way to the broker. While the door is shut, up to `most`
    requests of an API wait in the proxy; when it opens, the proxy forwards them, even if their clients have
    disconnected.
    """

    def __init__(self, path: Path, sabotage: Sabotage, api_key: ApiKey, most: int = 1000) -> None:
        self._lock = path
        self._log = Path(f"{path}.held")
        sabotage(HOLDS.format(lock=str(path), api_key=int(api_key), most=most))

    def shut(self) -> None:
        self._lock.touch()

    def open(self) -> int:
        """Forward the delayed requests, and return their number."""
        self._lock.unlink()
        text = eventually(lambda: self._log.read_text() if self._log.exists() else "", "what was held back has come in")
        return int(text)


def fails_with_oncelog(address: str, topic: str, door: Door) -> Callable[[], None]:
    """Return a function that writes a transaction whose record is delayed for too long: the transaction is aborted, and
    the client can only begin the next one.
    """
    runner = asyncio.Runner()

    async def fail() -> Producer:
        producer = Producer(
            address, transactional_id=topic, linger_ms=0, request_timeout_ms=1000, delivery_timeout_ms=2000
        )
        await producer.start()
        producer.begin_transaction()
        await producer.send_and_wait(topic, b"dropped", partition=1)
        door.shut()
        with pytest.raises(KafkaError):
            await producer.send_and_wait(topic, b"held back", partition=0)
        await producer.abort_transaction()
        return producer

    producer = runner.run(fail())

    async def go_on() -> None:
        async with producer.transaction():
            for partition in (0, 1):
                await producer.send(topic, b"kept", partition=partition)
        await producer.close()

    def finish() -> None:
        runner.run(go_on())
        runner.close()

    return finish


def fails_with_librdkafka(address: str, topic: str, door: Door) -> Callable[[], None]:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": topic,
            "transaction.timeout.ms": 60_000,
            "linger.ms": 0,
            "message.timeout.ms": 3000,
            "socket.timeout.ms": 1000,
        }
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"dropped", partition=1)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    door.shut()
    failures: list[object] = []
    producer.produce(topic, b"held back", partition=0, on_delivery=lambda error, _: failures.append(error))
    producer.flush(TIMEOUT_SECONDS)
    assert failures[0] is not None
    producer.abort_transaction(TIMEOUT_SECONDS)

    def finish() -> None:
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"kept", partition=partition)
        producer.commit_transaction(TIMEOUT_SECONDS)

    return finish


@pytest.mark.parametrize("fails", [fails_with_oncelog, fails_with_librdkafka], ids=["oncelog", "librdkafka"])
def test_e2_a_client_gives_up_on_a_record_that_comes_in_the_end(
    broker_factory: BrokerFactory,
    sabotage: Sabotage,
    tmp_path: Path,
    topic: str,
    fails: Callable[[str, str, Door], Callable[[], None]],
) -> None:
    """KAFKA-14402 with its real sequence of events: the delivery timeout passes, the transaction is aborted, and then
    the record arrives.
    """
    door = Door(tmp_path / "lock", sabotage, ApiKey.PRODUCE)
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic, 2)
        with Watch(broker.port, topic, 0, 1) as watch:
            finish = fails(broker.address, topic, door)
            assert door.open() >= 1
            for partition in (0, 1):
                eventually(lambda: is_stable(client, topic, partition), "the transaction is aborted", 1.0)  # noqa: B023
            assert "data" not in content(client, topic, 0)
            finish()
            for partition in (0, 1):
                eventually(lambda: is_stable(client, topic, partition), "the next one is complete")  # noqa: B023
                assert watch.values(client, partition) == [b"kept"]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("late_commits", [True, False], ids=["late commit", "late abort"])
async def test_e1_the_end_of_a_transaction_comes_after_its_retry(
    broker_factory: BrokerFactory, sabotage: Sabotage, tmp_path: Path, topic: str, commits: bool, late_commits: bool
) -> None:
    """KAFKA-17754 as it was first reported: the first EndTxn is delayed, its retry ends the transaction, and the
    delayed EndTxn arrives in the middle of the next transaction.
    """
    door = Door(tmp_path / "lock", sabotage, ApiKey.END_TXN, most=1)
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic, 2)
        async with Producer(broker.address, transactional_id=topic, linger_ms=0, request_timeout_ms=1500) as producer:
            producer.begin_transaction()
            await producer.send(topic, b"first", partition=0)
            await producer.flush()
            door.shut()
            if late_commits:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
            producer.begin_transaction()
            await producer.send_and_wait(topic, b"second a", partition=0)
            assert door.open() == 1
            await producer.send_and_wait(topic, b"second b", partition=1)
            if commits:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        for partition in (0, 1):
            eventually(lambda: is_stable(client, topic, partition), "all is complete")  # noqa: B023
        assert committed_values(client, topic, 0) == [b"first"] * late_commits + [b"second a"] * commits
        assert committed_values(client, topic, 1) == [b"second b"] * commits


# --- S67

CHANGES_A_SEQUENCE = """
from struct import Struct
from crc32c import crc32c
from oncelog_broker.log.partition_log import PartitionLog

sequence, crc = Struct(">i"), Struct(">I")
append = PartitionLog.append_as_leader
changed = []

def append_changed(self, batch, **options):
    if self.name.startswith("test-") and sequence.unpack_from(batch, 53)[0] == 1 and not changed:
        changed.append(1)
        altered = bytearray(batch)
        sequence.pack_into(altered, 53, 111)
        crc.pack_into(altered, 17, crc32c(altered[21:]))
        return append(self, memoryview(altered), **options)
    return append(self, batch, **options)

PartitionLog.append_as_leader = append_changed
"""


def one_by_one_with_oncelog(address: str, topic: str, values: list[bytes]) -> None:
    async def produce() -> None:
        async with Producer(address, linger_ms=0) as producer:
            for value in values:
                await producer.send_and_wait(topic, value, partition=0)

    asyncio.run(produce())


def one_by_one_with_librdkafka(address: str, topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
        assert producer.flush(TIMEOUT_SECONDS) == 0


def one_by_one_with_kafka_python(address: str, topic: str, values: list[bytes]) -> None:
    with closing(kafka.KafkaProducer(bootstrap_servers=address, enable_idempotence=True)) as producer:
        for value in values:
            producer.send(topic, value, partition=0).get(TIMEOUT_SECONDS)


def test_s67_our_producer_recovers_from_a_changed_sequence(
    broker_factory: BrokerFactory, sabotage: Sabotage, topic: str
) -> None:
    """The second record arrives with the sequence 111 instead of 1, and is refused. The producer continues with the
    next epoch and sequence 0, and each record is in the log once and in order.
    """
    sabotage(CHANGES_A_SEQUENCE)
    broker = broker_factory().start()
    values = [b"%d" % number for number in range(5)]
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        one_by_one_with_oncelog(broker.address, topic, values)
        (first, *others) = client.fetch(topic, 0, 0)
        assert (first.producer_epoch, first.base_sequence) == (0, 0)
        assert [(batch.producer_epoch, batch.base_sequence) for batch in others] == [(1, 0), (1, 1), (1, 2), (1, 3)]
        assert committed_values(client, topic) == values


@pytest.mark.parametrize("produce", [one_by_one_with_librdkafka, one_by_one_with_kafka_python])
def test_s67_other_producers_report_a_changed_sequence(
    broker_factory: BrokerFactory, sabotage: Sabotage, topic: str, produce: Callable[[str, str, list[bytes]], None]
) -> None:
    """The producers of the other libraries do not retry: they report an error, and the log has the acknowledged
    records.
    """
    sabotage(CHANGES_A_SEQUENCE)
    broker = broker_factory().start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        with pytest.raises((confluent_kafka.KafkaException, kafka.errors.OutOfOrderSequenceNumberError)):
            produce(broker.address, topic, [b"0", b"1", b"2"])
        assert committed_values(client, topic) == [b"0"]
