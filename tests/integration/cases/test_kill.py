"""Tests that acknowledged records survive `kill -9` during producing, repeatedly on the same data, and the orderly
stop.

The raw producer shows exactly which records were acknowledged: it has no retries and no idempotence, and several
requests in flight. Each record contains its partition and a sequence number, which is also its timestamp, so that
offsets, content and time index can be compared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from broker_process import BrokerFactory, BrokerProcess
from raw_client import FETCH_VERSION, PRODUCE_VERSION, RawClient, frame, produce_request

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record, read_records

SEED = 20_240_611
IN_FLIGHT = 5
TOPICS = {"kill-a": 1, "kill-b": 3}
BASE_TIMESTAMP = 1_700_000_000_000
STEP_MS = 10
CODECS = (Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD, Compression.SNAPPY)
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"

# Small segments and dense indexes, so that kills also interrupt the rolling of segments and the writing of index
# entries.
SETTINGS = {
    "log.segment.bytes": "20000",
    "log.index.interval.bytes": "200",
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
}


@dataclass
class Sent:
    """One request with one batch; `offset` is set when the batch is acknowledged."""

    first_sequence: int
    count: int
    offset: int | None = None


@dataclass
class PartitionHistory:
    """All records that were ever sent to one partition, in the order of sending."""

    topic: str
    partition: int
    sent: list[Sent] = field(default_factory=list)
    next_sequence: int = 0

    @property
    def acknowledged(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.offset is not None]

    def value(self, sequence: int) -> bytes:
        return b"%s/%d/%d" % (self.topic.encode(), self.partition, sequence)

    def next_batch(self, rng: random.Random) -> tuple[Sent, bytes]:
        sent = Sent(self.next_sequence, rng.randint(1, 8))
        self.next_sequence += sent.count
        self.sent.append(sent)
        records = [
            Record(0, BASE_TIMESTAMP + STEP_MS * sequence, None, self.value(sequence) + b"." * rng.randint(0, 300), [])
            for sequence in range(sent.first_sequence, self.next_sequence)
        ]
        return sent, bytes(build_batch(records, compression=rng.choice(CODECS)))


class Producer:
    """Keeps requests in flight on one connection until the broker dies."""

    def __init__(self, broker: BrokerProcess, histories: list[PartitionHistory], rng: random.Random) -> None:
        self.client = RawClient(broker.port)
        self.histories = histories
        self.rng = rng
        self.waiting: list[Sent] = []

    def send(self) -> None:
        history = self.rng.choice(self.histories)
        sent, batch = history.next_batch(self.rng)
        self.waiting.append(sent)
        self.client.send(produce_request(history.topic, history.partition, batch), ApiKey.PRODUCE, PRODUCE_VERSION)

    def send_part_of_a_frame(self) -> None:
        """Send only a part of a request, so that the broker never gets the entire record."""
        history = self.rng.choice(self.histories)
        _, batch = history.next_batch(self.rng)
        data = frame(produce_request(history.topic, history.partition, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
        self.client.socket.sendall(data[: self.rng.randint(1, len(data) - 1)])

    def receive(self) -> None:
        (answer,) = self.client.receive().responses[0].partition_responses
        assert answer.error_code == 0, answer
        self.waiting.pop(0).offset = answer.base_offset

    def run_until(self, broker: BrokerProcess, acknowledgements: int) -> None:
        """Kill the broker after `acknowledgements` responses, with requests in flight, and read the responses that
        still arrive.
        """
        for _ in range(acknowledgements):
            while self.client.unanswered < IN_FLIGHT:
                self.send()
            self.receive()
        for _ in range(self.rng.randint(0, 3)):
            self.send()
        if self.rng.random() < 0.5:
            self.send_part_of_a_frame()
        broker.kill()
        try:
            while self.waiting:
                self.receive()
        except OSError:
            pass  # the connection ended: the remaining requests stay unacknowledged, as this test intends
        self.client.socket.close()


def whole_log(client: RawClient, history: PartitionHistory) -> list[RecordBatch]:
    found: list[RecordBatch] = []
    offset = 0
    while part := client.fetch(history.topic, history.partition, offset):
        found += part
        offset = part[-1].next_offset
    return found


def check_log(client: RawClient, history: PartitionHistory) -> None:
    """Check that the log contains every acknowledged batch once, in order and at its offset, every other batch entirely
    or not at all, and nothing else.
    """
    log = whole_log(client, history)
    next_offset = 0
    at_offset: dict[int, list[int]] = {}
    for batch in log:
        assert batch.crc_is_valid(), batch
        assert batch.base_offset == next_offset, "offsets have no gaps"
        next_offset = batch.next_offset
        records = list(read_records(batch))
        sequences = [(record.timestamp - BASE_TIMESTAMP) // STEP_MS for record in records]
        for sequence, record in zip(sequences, records, strict=True):
            assert record.value is not None
            assert record.value.rstrip(b".") == history.value(sequence)
        at_offset[batch.base_offset] = sequences
    stored = [sequence for sequences in at_offset.values() for sequence in sequences]
    assert stored == sorted(set(stored)), "each record once, in the order of sending"
    for sent in history.acknowledged:
        assert sent.offset is not None
        assert at_offset[sent.offset] == list(range(sent.first_sequence, sent.first_sequence + sent.count))
    assert {sequences[0]: len(sequences) for sequences in at_offset.values()}.items() <= {
        sent.first_sequence: sent.count for sent in history.sent
    }.items(), "no batch is torn"
    assert client.list_offset(history.topic, history.partition) == (next_offset, -1)
    check_indexes(client, history, stored)


def check_indexes(client: RawClient, history: PartitionHistory, stored: list[int]) -> None:
    """Check the indexes; `stored[offset]` is the sequence number, and so the timestamp, of the record at each
    offset.
    """
    for offset in range(0, len(stored), max(1, len(stored) // 40)):
        timestamp = BASE_TIMESTAMP + STEP_MS * stored[offset]
        assert client.list_offset(history.topic, history.partition, timestamp) == (offset, timestamp)
        just_before = client.list_offset(history.topic, history.partition, timestamp - STEP_MS + 1)
        assert just_before == (offset, timestamp)
        batch = client.fetch(history.topic, history.partition, offset, max_bytes=1)[0]
        assert batch.base_offset <= offset <= batch.last_offset


def check_newest(client: RawClient, history: PartitionHistory) -> None:
    """Check after a restart that the newest acknowledged batch exists, and that the log ends after it."""
    if not history.acknowledged:
        return
    newest = history.acknowledged[-1]
    assert newest.offset is not None
    batch = client.fetch(history.topic, history.partition, newest.offset)[0]
    assert batch.crc_is_valid()
    assert (batch.base_offset, batch.records_count) == (newest.offset, newest.count)
    end, _ = client.list_offset(history.topic, history.partition)
    assert end >= batch.next_offset


def create_topics(broker: BrokerProcess) -> list[PartitionHistory]:
    with RawClient(broker.port) as client:
        for name, partitions in TOPICS.items():
            client.create_topic(name, partitions)
    return [PartitionHistory(name, partition) for name, count in TOPICS.items() for partition in range(count)]


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.soak)])
def test_kills_lose_nothing(broker_factory: BrokerFactory, kills: int) -> None:
    rng = random.Random(SEED)
    broker = broker_factory(SETTINGS).start()
    histories = create_topics(broker)
    for _ in range(kills):
        Producer(broker, histories, rng).run_until(broker, rng.randint(0, 60))
        broker.start()
        with RawClient(broker.port) as client:
            for history in histories:
                check_newest(client, history)
    with RawClient(broker.port) as client:
        for history in histories:
            assert len(history.acknowledged) > kills
            check_log(client, history)
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


def test_a_kill_during_recovery_loses_nothing(broker_factory: BrokerFactory) -> None:
    """The broker may also be killed during recovery, at any point; the next recovery completes the work."""
    rng = random.Random(SEED + 1)
    broker = broker_factory(SETTINGS).start()
    histories = create_topics(broker)
    for _ in range(5):
        Producer(broker, histories, rng).run_until(broker, 40)
        broker.start()
        broker.kill()
        broker.start()
    with RawClient(broker.port) as client:
        for history in histories:
            check_log(client, history)


def test_a_clean_stop_is_marked_and_spares_the_scan(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    rng = random.Random(SEED + 2)
    broker = broker_factory(SETTINGS).start()
    histories = create_topics(broker)
    producer = Producer(broker, histories, rng)
    for _ in range(40):
        producer.send()
        producer.receive()
    producer.client.socket.close()
    assert not (broker.data / CLEAN_SHUTDOWN_MARKER).exists()
    assert broker.stop() == 0
    assert (broker.data / CLEAN_SHUTDOWN_MARKER).exists()

    logged_before = len(broker.log.read_text())
    broker.start()
    assert "recovering" not in broker.log.read_text()[logged_before:].lower()
    assert not (broker.data / CLEAN_SHUTDOWN_MARKER).exists(), "a marker that stays would cover up the next crash"
    with RawClient(broker.port) as client:
        for history in histories:
            check_log(client, history)


def test_a_stop_ends_waiting_requests(broker_factory: BrokerFactory) -> None:
    """A Fetch that waits for records, or a request that is only half sent, does not delay the broker's stop."""
    broker = broker_factory(SETTINGS).start()
    create_topics(broker)
    with RawClient(broker.port) as polling, RawClient(broker.port) as half_sent:
        wanted = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        polling.send(
            FetchRequest(
                max_wait_ms=60_000,
                min_bytes=1,
                topics=[FetchRequest.FetchTopic(topic="kill-a", partitions=[wanted])],
            ),
            ApiKey.FETCH,
            FETCH_VERSION,
        )
        half_sent.socket.sendall(b"\x00\x00\x10\x00half")
        assert broker.stop() == 0
