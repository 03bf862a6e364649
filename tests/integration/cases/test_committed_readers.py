"""Tests, with oncelog's consumer and other libraries against a live broker, what readers of transactions are
guaranteed, and the limits of these guarantees (S53, S54, S58).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka_client import Aiokafka
from broker_process import BrokerProcess
from committed_reader import committed_values
from foreign_clients import ForeignClient, eventually
from kafka_python_client import KafkaPython
from librdkafka_client import Librdkafka
from oncelog_client import Oncelog
from raw_client import RawClient
from raw_transactions import BOTH, RawTransactions, content, is_stable

from oncelog import Consumer, TopicPartition
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest
from oncelog_protocol.messages.fetch import FetchRequest

READERS = [Oncelog, Librdkafka, Aiokafka, KafkaPython]
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "300",
    "min_cleanable_dirty_ratio": "0",
    "delete_retention_ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", {"log.cleaner.backoff.ms": "20"}) as process:
        yield process
    assert "Traceback" not in process.log.read_text()


@pytest.fixture(params=READERS, ids=lambda library: library.name)
def reader(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[ForeignClient]:
    client = request.param(broker.address)
    yield client
    client.close()


def values(reader: ForeignClient, topic: str, count: int, **options: object) -> list[bytes | None]:
    return [record.value for record in reader.consume(topic, count, **options)]  # type: ignore[arg-type]


def ended(client: RawClient, topic: str, *partitions: int) -> None:
    for partition in partitions or (0,):
        eventually(lambda: is_stable(client, topic, partition), "the transaction is complete")  # noqa: B023


def delete_before(client: RawClient, topic: str, offset: int) -> None:
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    partition = asked.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[asked(name=topic, partitions=[partition])], timeout_ms=5000)
    (deleted,) = client.call(request, ApiKey.DELETE_RECORDS, 2).topics[0].partitions
    assert (deleted.error_code, deleted.low_watermark) == (0, offset)


# --- S53, S54: filtering


@BOTH
def test_s53_a_log_that_begins_with_an_abort_marker(
    raw: RawClient, reader: ForeignClient, topic: str, is_v2: bool
) -> None:
    """aiokafka#781: a marker ends a transaction that has no records left in the log. The next records of the same
    producer are nevertheless visible.
    """
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic, is_v2=is_v2)
    txn.take_over()
    txn.write(topic, value=b"dropped")
    assert txn.end(False) == 0
    ended(raw, topic)
    delete_before(raw, topic, 1)
    assert content_from(raw, topic, 1) == ["abort"]
    txn.write(topic, value=b"kept")
    assert txn.end(True) == 0
    ended(raw, topic)
    assert values(reader, topic, 1, offset=1, isolation="read_committed") == [b"kept"]


def test_s53_a_marker_without_records_is_read_over(raw: RawClient, reader: ForeignClient, topic: str) -> None:
    """A partition that was added to a transaction gets a marker even if no record was written to it."""
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    assert txn.add(topic) == 0
    assert txn.end(False) == 0
    eventually(lambda: content(raw, topic) == ["abort"], "the marker is written")
    txn.write(topic, value=b"kept")
    assert txn.end(True) == 0
    ended(raw, topic)
    assert values(reader, topic, 1, isolation="read_committed") == [b"kept"]


def content_from(client: RawClient, topic: str, offset: int) -> list[str]:
    return ["data" if not batch.is_control else "abort" for batch in client.fetch(topic, 0, offset)]


@BOTH
def test_s53_concurrent_transactions_are_read_correctly(
    raw: RawClient, reader: ForeignClient, topic: str, is_v2: bool
) -> None:
    """Two producers write to one partition. Their records are interleaved, and each producer aborts every second
    transaction. A reader may begin at any offset, also in the middle of a transaction.
    """
    raw.create_topic(topic)
    txns = [RawTransactions(raw, f"{topic}-{number}", is_v2=is_v2) for number in range(2)]
    for txn in txns:
        txn.take_over()
    kept: list[tuple[int, bytes]] = []
    for turn in range(6):
        written: list[tuple[int, int, bytes]] = []
        for step in range(3):
            for number, txn in enumerate(txns):
                value = b"%d/%d/%d" % (turn, step, number)
                txn.write(topic, value=value)
                written.append((raw.list_offset(topic, 0)[0] - 1, number, value))
        commits = [(turn + number) % 2 == 0 for number in range(2)]
        for number, txn in enumerate(txns):
            assert txn.end(commits[number]) == 0
        ended(raw, topic)
        kept += [(offset, value) for offset, number, value in written if commits[number]]
    assert values(reader, topic, len(kept), isolation="read_committed") == [value for _, value in kept]
    for start in (kept[1][0], kept[4][0] + 1, kept[10][0] - 1):
        expected = [value for offset, value in kept if offset >= start]
        assert values(reader, topic, len(expected), offset=start, isolation="read_committed") == expected


async def test_s54_consumers_read_uncommitted_by_default(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    """By default, as in Kafka, consumers read open and aborted records; they never see markers, although markers use
    offsets.
    """
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    for value, commits in ((b"committed", True), (b"aborted", False)):
        txn.write(topic, value=value)
        assert txn.end(commits) == 0
        ended(raw, topic)
    txn.write(topic, value=b"open")
    partition = TopicPartition(topic, 0)
    seen: dict[str, list[bytes | None]] = {}
    for name, settings in (("default", {}), ("committed", {"isolation_level": "read_committed"})):
        async with Consumer(broker.address, **settings) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = (await consumer.end_offsets([partition]))[partition]
            seen[name] = []
            async with asyncio.timeout(40):
                while await consumer.position(partition) < end:
                    seen[name] += [record.value for record in (await consumer.poll(500)).get(partition, [])]
    assert seen == {"default": [b"committed", b"aborted", b"open"], "committed": [b"committed"]}
    fetched = read_uncommitted(raw, topic)
    # only read_committed responses have the list of aborted transactions (S52)
    assert fetched.aborted_transactions is None
    txn.end(False)


def read_uncommitted(client: RawClient, topic: str) -> object:
    asked = FetchRequest.FetchTopic
    wanted = asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 16)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[asked(topic=topic, partitions=[wanted])])
    (answer,) = client.call(request, ApiKey.FETCH, 12).responses[0].partitions
    assert answer.error_code == ErrorCode.NONE
    return answer


# --- S58: events through which a read_committed consumer sees only a part of a committed transaction


@pytest.fixture
def committed(raw: RawClient, topic: str) -> RawTransactions:
    """Return a producer that has committed `a`, `b` and `c` to partition 0 and `x` to partition 1 in one
    transaction.
    """
    raw.create_topic(topic, 2)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    for value in (b"a", b"b", b"c"):
        txn.write(topic, 0, value=value)
    txn.write(topic, 1, value=b"x")
    assert txn.end() == 0
    ended(raw, topic, 0, 1)
    return txn


def test_s58_a_seek_splits_a_transaction(committed: RawTransactions, reader: ForeignClient, topic: str) -> None:
    assert values(reader, topic, 1, offset=2, isolation="read_committed") == [b"c"]


def test_s58_retention_splits_a_transaction(
    raw: RawClient, committed: RawTransactions, reader: ForeignClient, topic: str
) -> None:
    delete_before(raw, topic, 2)
    assert reader.offsets(topic)[0] == 2
    assert values(reader, topic, 1, offset=2, isolation="read_committed") == [b"c"]


def test_s58_a_reader_of_some_partitions_sees_some_of_a_transaction(
    committed: RawTransactions, reader: ForeignClient, topic: str
) -> None:
    assert values(reader, topic, 1, partition=1, isolation="read_committed") == [b"x"]


def test_s58_compaction_splits_a_transaction(raw: RawClient, reader: ForeignClient, topic: str) -> None:
    raw.create_topic(topic, **COMPACTED)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    for keys in ((b"a", b"b"), (b"a",), (b"c",), (b"d",)):
        for key in keys:
            txn.write(topic, key=key, value=b"%s, of %d" % (key, len(keys)))
        assert txn.end() == 0
        ended(raw, topic)
    eventually(lambda: b"a, of 2" not in committed_values(raw, topic), "the log is compacted")
    assert values(reader, topic, 2, isolation="read_committed") == [b"b, of 2", b"a, of 1"]
