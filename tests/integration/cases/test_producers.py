"""Tests idempotent and transactional batches against a live broker with raw requests, over lost connections and
restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka_client import Aiokafka
from broker_process import BrokerFactory, BrokerProcess
from foreign_clients import ForeignClient, Record, eventually
from kafka_python_client import KafkaPython
from librdkafka_client import Librdkafka
from lossy_proxy import LossyProxy
from oncelog_client import Oncelog
from raw_client import RawClient, produce_request
from tests.support.producers import ABORT, COMMIT, mark, produce, sequenced
from tests.support.storage import append, open_log

from oncelog import Producer
from oncelog_broker.log.config import LogConfig
from oncelog_broker.runtime.clock import SystemClock
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.records.record import read_records

PRODUCE_VERSION = 9
READ_COMMITTED = 1
RECORDS = 200
PID = 42
NO_COORDINATOR = {"transaction.partition.verification.enable": "false"}

Answer = ProduceResponse.TopicProduceResponse.PartitionProduceResponse


def send(
    client: RawClient, topic: str, *batches: bytes | bytearray, transactional_id: str | None = None, version: int = 9
) -> list[Answer]:
    """Send one request for each batch, so that all are in flight; return the responses."""
    for batch in batches:
        request = produce_request(topic, 0, batch)
        request.transactional_id = transactional_id
        client.send(request, ApiKey.PRODUCE, version)
    return [client.receive().responses[0].partition_responses[0] for _ in batches]


def values(client: RawClient, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    while batches := client.fetch(topic, 0, offset):
        for batch in batches:
            found += [record.value for record in read_records(batch)]
            offset = batch.next_offset
    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Start a broker that does not verify transactions with a coordinator, because these tests invent their
    transactions.
    """
    settings = {"log.segment.bytes": "1048576", **NO_COORDINATOR}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as process:
        yield process


def five(start: int = 0) -> list[bytearray]:
    """Return five batches of different sizes with consecutive sequences."""
    firsts = [start, start + 1, start + 4, start + 6, start + 11]
    return [sequenced(PID, first, count) for first, count in zip(firsts, (1, 3, 2, 5, 1), strict=True)]


def test_s8_e15_five_in_flight_on_a_lost_connection_get_their_offsets_again(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    raw.create_topic(topic)
    lost = RawClient(broker.port)
    for batch in five():
        lost.send(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    eventually(lambda: raw.list_offset(topic, 0)[0] == 12, "all five are in the log")
    lost.socket.close()
    answers = send(raw, topic, *five())
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 4), (0, 6), (0, 11)]
    assert [answer.log_start_offset for answer in answers] == [0] * 5
    assert raw.list_offset(topic, 0)[0] == 12
    assert values(raw, topic) == [b"%d/%d" % (PID, n) for n in range(12)]


def test_s12_e15_a_duplicate_from_before_the_window_is_called_one(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    send(raw, topic, *five(), *five(12))
    (answer,) = send(raw, topic, sequenced(PID, 0))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert raw.list_offset(topic, 0)[0] == 24


@pytest.mark.parametrize("version", [3, 8, 9, 11])
def test_t8_producer_errors_have_the_code_of_each_version(raw: RawClient, topic: str, version: int) -> None:
    raw.create_topic(topic)
    answers = send(
        raw,
        topic,
        sequenced(PID, 0, epoch=3),
        sequenced(PID, 2, epoch=3),
        sequenced(PID, 1, epoch=2),
        sequenced(PID, 1, epoch=4),
        sequenced(PID, 1, epoch=3),
        version=version,
    )
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.NONE,
    ]
    assert [answer.base_offset for answer in answers] == [0, -1, -1, -1, 1]


def test_s9_e16_unknown_producers_get_the_error_of_kafka_2_0(broker_factory: BrokerFactory, topic: str) -> None:
    broker = broker_factory({"idempotence.unknown.producer": "legacy-2.0"}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        (answer,) = send(client, topic, sequenced(PID, 7))
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, 0)
        assert send(client, topic, sequenced(PID, 0))[0].error_code == 0


def test_s12_kafkas_own_answer_can_be_had(broker_factory: BrokerFactory, topic: str) -> None:
    broker = broker_factory({"idempotence.duplicate.classification": "kafka"}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        answers = send(client, topic, *five(), *five(12), sequenced(PID, 0))
        assert answers[-1].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("transactional", "transactional_id", "code"),
    [
        (True, None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (False, "mine", ErrorCode.INVALID_RECORD),
        (True, "mine", ErrorCode.NONE),
    ],
)
def test_e28_transactional_ids_and_transactional_records_go_together(
    raw: RawClient, topic: str, transactional: bool, transactional_id: str | None, code: ErrorCode
) -> None:
    raw.create_topic(topic)
    (answer,) = send(raw, topic, sequenced(PID, 0, transactional=transactional), transactional_id=transactional_id)
    assert answer.error_code == code
    assert raw.list_offset(topic, 0)[0] == (1 if code is ErrorCode.NONE else 0)


def test_e28_a_transactional_request_has_one_producer(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic, 2)
    data = ProduceRequest.TopicProduceData
    batches = [bytes(sequenced(pid, 0, transactional=True)) for pid in (1, 2)]
    partitions = [data.PartitionProduceData(index=n, records=batch) for n, batch in enumerate(batches)]
    request = ProduceRequest(
        transactional_id="mine",
        acks=-1,
        timeout_ms=1000,
        topic_data=[data(name=topic, partition_data=partitions)],
    )
    answers = raw.call(request, ApiKey.PRODUCE, PRODUCE_VERSION).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_RECORD] * 2


def test_s50_e24_an_open_transaction_holds_back_committed_readers(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    send(raw, topic, sequenced(1, 0))
    send(raw, topic, sequenced(PID, 0, transactional=True), transactional_id="mine")
    send(raw, topic, sequenced(1, 1))
    asked = FetchRequest.FetchTopic
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=READ_COMMITTED,
        topics=[
            asked(
                topic=topic, partitions=[asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)]
            )
        ],
    )
    (answer,) = raw.call(request, ApiKey.FETCH, 12).responses[0].partitions
    assert (answer.high_watermark, answer.last_stable_offset, answer.aborted_transactions) == (3, 1, [])
    assert len(answer.records) == len(sequenced(1, 0))
    wanted = ListOffsetsRequest.ListOffsetsTopic
    partition = wanted.ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)
    latest = ListOffsetsRequest(
        replica_id=-1, isolation_level=READ_COMMITTED, topics=[wanted(name=topic, partitions=[partition])]
    )
    assert raw.call(latest, ApiKey.LIST_OFFSETS, 7).topics[0].partitions[0].offset == 1
    assert raw.list_offset(topic, 0)[0] == 3


@pytest.mark.parametrize("end", [BrokerProcess.kill, BrokerProcess.stop])
def test_s55_e15_the_window_survives_a_restart(
    broker_factory: BrokerFactory, topic: str, end: Callable[[BrokerProcess], object]
) -> None:
    broker = broker_factory({"log.segment.bytes": "1000", **NO_COORDINATOR}).start()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        send(client, topic, *five(), *five(12))
        send(client, topic, sequenced(7, 0, transactional=True), transactional_id="open")
    end(broker)
    broker.start()
    with RawClient(broker.port) as client:
        answers = send(client, topic, *five(12))
        assert [(answer.error_code, answer.base_offset) for answer in answers] == [
            (0, 12), (0, 13), (0, 16), (0, 18), (0, 23),
        ]  # fmt: skip
        old, gap, following = send(client, topic, sequenced(PID, 0), sequenced(PID, 25), sequenced(PID, 24))
        assert old.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (following.error_code, following.base_offset) == (0, 25)
        (plain,) = send(client, topic, sequenced(7, 1))
        assert plain.error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("library", [Librdkafka, Aiokafka, KafkaPython, Oncelog])
def test_s8_each_record_is_written_once_though_answers_are_lost(
    broker_factory: BrokerFactory, topic: str, library: type[ForeignClient]
) -> None:
    with LossyProxy(one_in=4) as proxy:
        broker = broker_factory({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}).start()
        port = broker.port
        proxy.forward_to(port)
        with RawClient(port) as client:
            client.create_topic(topic)
        records = [Record(b"record %d" % n) for n in range(RECORDS)]
        produce_one_by_one(library, f"127.0.0.1:{proxy.port}", topic, records)
        assert proxy.lost > 5
        with RawClient(port) as client:
            assert values(client, topic) == [record.value for record in records]
        broker.stop()


def produce_one_by_one(library: type[ForeignClient], address: str, topic: str, records: list[Record]) -> None:
    """Let each library produce idempotently with many requests."""
    if library is Librdkafka:
        client = Librdkafka(address, **{"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20})
        producer = client.producer(
            **{"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 5, "retry.backoff.ms": 10}
        )
        for record in records:
            producer.produce(topic, record.value, partition=0)
        assert producer.flush(60) == 0
    elif library is KafkaPython:
        blocking = KafkaPython(address, reconnect_backoff_ms=10, reconnect_backoff_max_ms=20).producer(
            enable_idempotence=True, acks="all", retry_backoff_ms=10, batch_size=200, linger_ms=0
        )
        for future in [blocking.send(topic, record.value, partition=0) for record in records]:
            future.get(60)
        blocking.close()
    elif library is Aiokafka:
        asyncio.run(produce_with_aiokafka(address, topic, records))
    else:
        asyncio.run(produce_with_oncelog(address, topic, records))


async def produce_with_aiokafka(address: str, topic: str, records: list[Record]) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(
        bootstrap_servers=address, enable_idempotence=True, max_batch_size=200, retry_backoff_ms=10, linger_ms=0
    ) as producer:
        futures = [await producer.send(topic, record.value, partition=0) for record in records]
        await asyncio.wait_for(asyncio.gather(*futures), 60)


async def produce_with_oncelog(address: str, topic: str, records: list[Record]) -> None:
    async with Producer(
        address, batch_size=200, linger_ms=0, retry_backoff_ms=10, reconnect_backoff_ms=10, reconnect_backoff_max_ms=20
    ) as producer:
        futures = [await producer.send(topic, record.value, partition=0) for record in records]
        await asyncio.wait_for(asyncio.gather(*futures), 60)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Start a broker whose topic `finished` has committed, aborted and open transactions, mixed with plain records. The
    log is written while the broker is stopped, because there is no coordinator.
    """
    data = tmp_path_factory.mktemp("finished") / "data"
    broker = BrokerProcess(data, {"log.segment.bytes": "1500"}).start()
    with RawClient(broker.port) as client:
        client.create_topic("finished")
    broker.stop()
    mix_transactions(data / "finished-0")
    broker.start()
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


def mix_transactions(directory: Path) -> None:
    log = open_log(directory, LogConfig(segment_bytes=1500), clock=SystemClock())
    now = SystemClock().now_ms()
    for n in range(30):
        for pid in (1, 2):
            produce(log, pid, n, transactional=True, timestamp=now)
        append(log, b"plain %d" % n, timestamp=now)
        if n % 4 == 3:
            mark(log, 1, ABORT)
        if n % 5 == 4:
            mark(log, 2, COMMIT)
    produce(log, 3, 0, transactional=True, timestamp=now)
    append(log, b"behind the open one", timestamp=now)
    log.close()


PLAIN = [b"plain %d" % n for n in range(30)]
COMMITTED = [b"2/%d" % n for n in range(30)]
ABORTED = [b"1/%d" % n for n in range(28)]
OPEN = [b"1/28", b"1/29"]


@pytest.mark.parametrize("library", [Librdkafka, Aiokafka, KafkaPython, Oncelog])
def test_s52_s53_other_libraries_read_committed_records(finished: BrokerProcess, library: type[ForeignClient]) -> None:
    client = library(finished.address)
    # The open transaction of producer 1 begins with its record 28, so record 28 marks the end of the readable part.
    wanted = {*PLAIN[:28], *COMMITTED[:28]}
    received = client.consume("finished", len(wanted), isolation="read_committed")
    assert {record.value for record in received} == wanted
    everything = [*PLAIN, *COMMITTED, *ABORTED, *OPEN, b"3/0", b"behind the open one"]
    received = client.consume("finished", len(everything), isolation="read_uncommitted")
    assert {record.value for record in received} == set(everything)
    client.close()
