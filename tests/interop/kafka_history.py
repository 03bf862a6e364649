"""Writes topics of every kind to Apache Kafka, and collects a broker's responses about these topics, so that the
responses of two brokers can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from client_contract import MINUTE_MS, now_ms, timed_records, varied_records
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AlterConfigOpType
from foreign_clients import COMPRESSIONS, TIMEOUT_SECONDS, Received, Record, eventually
from librdkafka_client import Librdkafka, received_from
from raw_client import FETCH_VERSION, RawClient

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.fetch import FetchRequest

GROUP: Final = "a group of the history"
PARTITIONS: Final = 3
WEEK_MS: Final = "604800000"
SETTINGS: Final = {"log.flush.start.offset.checkpoint.interval.ms": "200", "log.initial.task.delay.ms": "500"}
"""Settings of the Apache Kafka to which the history is written: with the default settings, a kill would lose the
effects of DeleteRecords in the last minute.
"""
TINY_SEGMENTS: Final = {"segment.index.bytes": "64", "index.interval.bytes": "0"}
"""Topic settings with a tiny index: Kafka rolls a segment when its index is full, here after a few batches. Kafka 4
does not allow a segment size that small.
"""
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


def compressible(base_ms: int, count: int = 20) -> list[Record]:
    """Return records 10 ms apart that can be compressed, because librdkafka compresses a batch only if it becomes
    smaller.
    """
    return [Record(b"v%d " % index * 40, timestamp_ms=base_ms + 10 * index) for index in range(count)]


@dataclass
class Partition:
    """The responses of a broker about one partition: batches, offsets and producers."""

    begin: int
    end: int
    raw: bytes
    """The batches, byte for byte, as Fetch returned them."""
    records: list[Received]
    by_time: dict[int, tuple[int, int]]
    """Requested timestamp -> (offset, timestamp) found; negative timestamps are ListOffsets' special cases."""


def write(address: str) -> list[tuple[str, int]]:
    """Write topics of every kind to Apache Kafka, and return their partitions."""
    client = Librdkafka(address)
    try:
        topics = [
            *_codecs(client),
            _segments(client),
            _append_time(client),
            _idempotent(client),
            _transactions(client),
            _deleted_records(client),
            _compacted(client),
        ]
        _keyed(client)
        _committed_offsets(client)
    finally:
        client.close()
    return [(name, 0) for name in topics] + [("keyed", index) for index in range(PARTITIONS)]


def _codecs(client: Librdkafka) -> list[str]:
    """Write batches that librdkafka compresses and the broker keeps, and batches that the broker compresses itself."""
    names = []
    for compression in COMPRESSIONS:
        kept = f"sent-{compression or 'plain'}"
        client.create_topic(kept)
        for _ in range(3):
            client.produce(kept, varied_records(client), compression=compression)
        names.append(kept)
        if compression is not None:
            made = f"made-{compression}"
            client.create_topic(made, configs={"compression.type": compression})
            client.produce(made, varied_records(client))
            names.append(made)
    return names


def _segments(client: Librdkafka) -> str:
    client.create_topic("segments", configs=TINY_SEGMENTS)
    base = now_ms() - 10 * MINUTE_MS
    for batch in range(40):
        client.produce("segments", compressible(base + 1000 * batch, 5), compression=COMPRESSIONS[batch % 5])
    return "segments"


def _append_time(client: Librdkafka) -> str:
    configs = {"message.timestamp.type": "LogAppendTime", **TINY_SEGMENTS}
    client.create_topic("append-time", configs=configs)
    for batch in range(10):
        client.produce("append-time", compressible(now_ms() - MINUTE_MS), compression=COMPRESSIONS[batch % 5])
    return "append-time"


def _idempotent(client: Librdkafka) -> str:
    client.create_topic("idempotent")
    for _ in range(2):  # use two producers, so that the log has two producer ids
        client.produce("idempotent", timed_records(now_ms()), idempotent=True)
    return "idempotent"


def _transactions(client: Librdkafka) -> str:
    """Write transactions that are committed, aborted, concurrent, or span several segments, and one that
    remains open.
    """
    client.create_topic("transactions", configs=TINY_SEGMENTS)
    producers = [
        client.producer(**{"transactional.id": f"writer-{index}", "transaction.timeout.ms": 900_000})
        for index in range(3)
    ]
    for producer in producers:
        producer.init_transactions(TIMEOUT_SECONDS)
    for turn in range(6):
        for number, producer in enumerate(producers[:2]):
            producer.begin_transaction()
            for index in range(4):
                producer.produce("transactions", b"%d %d %d" % (turn, number, index), partition=0)
            assert producer.flush(TIMEOUT_SECONDS) == 0
        producers[0].commit_transaction(TIMEOUT_SECONDS)
        producers[1].abort_transaction(TIMEOUT_SECONDS)
        client.produce("transactions", [Record(b"of no transaction")])
    producers[2].begin_transaction()
    producers[2].produce("transactions", b"still open", partition=0)
    assert producers[2].flush(TIMEOUT_SECONDS) == 0
    client.produce("transactions", [Record(b"behind the open one")])
    return "transactions"


def _compacted(client: Librdkafka) -> str:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **TINY_SEGMENTS}
    client.create_topic("compacted", configs=configs)
    base = now_ms() - 10 * MINUTE_MS
    for batch in range(20):
        client.produce(
            "compacted",
            [
                Record(None if index == 3 else b"%d " % batch * 50, b"key-%d" % index, (), base + 1000 * batch + index)
                for index in range(5)
            ],
            compression=COMPRESSIONS[batch % 5],
        )
    eventually(lambda: len(_all_records(client, [("compacted", 0)])["compacted", 0]) < 60, "Kafka has compacted")
    # From now on the compacted topic must not change, because otherwise the responses of two brokers could not be
    # compared.
    client.alter_configs_incrementally("compacted", [("min.compaction.lag.ms", AlterConfigOpType.SET, WEEK_MS)])
    count, stable_since = 0, time.monotonic()
    while time.monotonic() - stable_since < 1:
        if count != (count := len(_all_records(client, [("compacted", 0)])["compacted", 0])):
            stable_since = time.monotonic()
    return "compacted"


def _deleted_records(client: Librdkafka) -> str:
    client.create_topic("deleted-records")
    for _ in range(2):
        client.produce("deleted-records", timed_records(now_ms()))
    assert client.delete_records("deleted-records", 7) == 7
    return "deleted-records"


def _keyed(client: Librdkafka) -> None:
    client.create_topic("keyed", PARTITIONS)
    client.produce("keyed", [Record(b"%d" % index, b"key-%d" % index) for index in range(60)], partition=None)


def _committed_offsets(client: Librdkafka) -> None:
    consumer = client.consumer(**{"group.id": GROUP})
    consumer.commit(offsets=[TopicPartition("keyed", 0, 5)], asynchronous=False)
    consumer.close()


def served(address: str, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Partition]:
    """Return the broker's responses about these partitions."""
    client = Librdkafka(address)
    try:
        records = _all_records(client, partitions)
        with RawClient(int(address.rpartition(":")[2])) as raw:
            return {key: _served(raw, key[0], key[1], records[key]) for key in partitions}
    finally:
        client.close()


def _served(raw: RawClient, topic: str, partition: int, records: list[Received]) -> Partition:
    begin, _ = raw.list_offset(topic, partition, EARLIEST)
    end, _ = raw.list_offset(topic, partition, LATEST)
    times = {EARLIEST, LATEST, MAX_TIMESTAMP, 0, 1 << 42}
    for record in records[:: max(1, len(records) // 12)] + records[-1:]:
        times |= {record.timestamp_ms + step for step in (-1, 0, 1)}
    by_time = {at: raw.list_offset(topic, partition, at) for at in sorted(times)}
    return Partition(begin, end, _all_bytes(raw, topic, partition, begin, end), records, by_time)


def _all_bytes(raw: RawClient, topic: str, partition: int, begin: int, end: int) -> bytes:
    """Fetch repeatedly, each time from the end of the previous response, and return all bytes."""
    parts = []
    while begin < end:
        asked = FetchRequest.FetchTopic
        wanted = asked.FetchPartition(partition=partition, fetch_offset=begin, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[asked(topic=topic, partitions=[wanted])]
        )
        (answer,) = raw.call(request, ApiKey.FETCH, FETCH_VERSION).responses[0].partitions
        assert answer.error_code == 0, answer
        data = bytes(answer.records or b"")
        if not data:
            break
        at = 0
        while at + 61 <= len(data):
            size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            if at + size > len(data):
                break
            begin = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big") + 1
            at += size
        parts.append(data[:at])
    return b"".join(parts)


def _all_records(
    client: Librdkafka, partitions: Sequence[tuple[str, int]], isolation: str = "read_uncommitted"
) -> dict[tuple[str, int], list[Received]]:
    """Return all records of these partitions, from the beginning to the end."""
    consumer: Consumer = client.consumer(
        **{"enable.partition.eof": True, "isolation.level": isolation, "auto.offset.reset": "earliest"}
    )
    found: dict[tuple[str, int], list[Received]] = {key: [] for key in partitions}
    unfinished = set(partitions)
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in partitions])
        while unfinished:
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, f"{unfinished}: neither a record nor the end"
            if message.error() is None:
                found[message.topic(), message.partition()].append(received_from(message))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                unfinished.remove((message.topic(), message.partition()))
    finally:
        consumer.close()
    return found


def committed_records(address: str, topic: str, partition: int) -> list[Received]:
    """Return the records that a read_committed consumer gets."""
    client = Librdkafka(address)
    try:
        return _all_records(client, [(topic, partition)], "read_committed")[topic, partition]
    finally:
        client.close()
