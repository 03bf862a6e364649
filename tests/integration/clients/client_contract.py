"""Tests the contract that every Kafka client must fulfil when it uses the broker.

The test class of each client inherits `ClientContract`, and supplies the `client` fixture. The tests compare refusals
by Kafka's error code.
"""

from __future__ import annotations

import random
import time

import pytest
from foreign_clients import (
    BROKERS,
    COMPRESSIONS,
    CREATE_TIME,
    LOG_APPEND_TIME,
    ForeignClient,
    Record,
    Refused,
    content_of,
    eventually,
)

from oncelog_protocol.errors import ErrorCode

MINUTE_MS = 60_000
MEGABYTE = 1 << 20


def now_ms() -> int:
    return int(time.time() * 1000)


def varied_records(client: ForeignClient, count: int = 40) -> list[Record]:
    """Return records with keys, headers, nulls, empty values and text of many kinds, as far as the client supports
    them.
    """
    rng = random.Random(count)
    base = now_ms() - 10 * MINUTE_MS
    nothing = None if client.sends_null_headers else b"-"
    kinds = [
        Record(b"plain"),
        Record(b"keyed", b"key"),
        Record(None, b"tombstone"),
        Record(b""),
        Record(b"", b"empty value"),
        Record(b"empty key", b""),
        Record(b"x", b"k", (("one", b"1"), ("nothing", nothing), ("empty", b""))),
        Record(b"x", b"k", (("again", b"1"), ("again", b"2"), ("again", b"1"))),
        Record("größer ✓".encode(), b"\x00\xff", (("größe", b"\x00\xff"),)),
        Record(rng.randbytes(3000), rng.randbytes(40)),
        Record(b"a" * 3000, b"compresses well"),
    ]
    if not client.refuses_empty_record:
        kinds.append(Record(None))
    return [
        Record(kind.value, kind.key, kind.headers, base + 1000 * index)
        for index, kind in enumerate(kinds[index % len(kinds)] for index in range(count))
    ]


def need(client: ForeignClient, compression: str | None) -> None:
    if compression not in client.compressions:
        pytest.skip(f"{client.name} has no {compression}")


def timed_records(base_ms: int, count: int = 20, step_ms: int = 10) -> list[Record]:
    return [Record(b"v%d" % index, timestamp_ms=base_ms + step_ms * index) for index in range(count)]


def is_led(client: ForeignClient, topic: str) -> bool:
    try:
        client.offsets(topic)
    except Refused:
        return False
    return True


class ClientContract:
    # --- records

    @pytest.mark.parametrize("compression", COMPRESSIONS)
    def test_produced_records_are_consumed(self, client: ForeignClient, topic: str, compression: str | None) -> None:
        need(client, compression)
        client.create_topic(topic)
        records = varied_records(client)
        placed = client.produce(topic, records, compression=compression)
        assert [place.offset for place in placed] == list(range(len(records)))
        received = client.consume(topic, len(records))
        assert [record.content for record in received] == content_of(records)
        assert [record.timestamp_ms for record in received] == [record.timestamp_ms for record in records]
        assert {record.timestamp_type for record in received} == {CREATE_TIME}

    def test_records_of_a_megabyte_are_written_and_read(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic, configs={"max.message.bytes": "3000000", "segment.bytes": "8000000"})
        records = [Record(random.Random(seed).randbytes(MEGABYTE), b"k") for seed in range(2)]
        client.produce(topic, records)
        assert [record.content for record in client.consume(topic, 2)] == content_of(records)

    def test_a_record_beyond_the_limit_is_refused(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        with pytest.raises(Refused) as refusal:
            client.produce(topic, [Record(bytes(MEGABYTE + 1000))])
        assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
        client.produce(topic, [Record(b"small enough")])
        assert client.offsets(topic) == (0, 1)

    @pytest.mark.parametrize("acks", [0, 1, -1])
    def test_every_acks_setting_works(self, client: ForeignClient, topic: str, acks: int) -> None:
        client.create_topic(topic)
        eventually(
            lambda: is_led(client, topic), "the leader has heard of the topic: with acks=0 nobody would try again"
        )
        placed = client.produce(topic, [Record(b"one"), Record(b"two")], acks=acks)
        assert [place.offset for place in placed] == ([-1, -1] if acks == 0 else [0, 1])
        assert [record.value for record in client.consume(topic, 2)] == [b"one", b"two"]

    def test_an_idempotent_producer_writes_once(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        for _ in range(2):  # create two producers at the same time, which have different producer ids
            client.produce(topic, timed_records(now_ms()), idempotent=True, compression="gzip")
        assert client.offsets(topic) == (0, 40)
        assert [record.offset for record in client.consume(topic, 40)] == list(range(40))

    def test_read_committed_sees_non_transactional_records(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        client.produce(topic, timed_records(now_ms()))
        assert len(client.consume(topic, 20, isolation="read_committed")) == 20

    def test_keys_choose_partitions(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic, 5)
        keys = [b"key-%d" % (index % 17) for index in range(60)]
        records = [Record(b"%d" % index, key) for index, key in enumerate(keys)]
        placed = client.produce(topic, records, partition=None, compression="snappy")
        assert [place.partition for place in placed] == [client.partition_for(key, 5) for key in keys]
        for partition in range(5):
            expected = content_of([r for r, place in zip(records, placed, strict=True) if place.partition == partition])
            received = client.consume(topic, len(expected), partition=partition)
            assert [record.content for record in received] == expected

    def test_a_topic_is_created_by_producing_to_it(self, client: ForeignClient, topic: str) -> None:
        client.produce(topic, [Record(b"first")])
        assert client.consume(topic, 1)[0].value == b"first"
        assert topic in client.topics()

    # --- time and offsets

    def test_the_append_time_replaces_the_producers(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
        before = now_ms()
        client.produce(topic, timed_records(before - 10 * MINUTE_MS), compression="gzip")
        received = client.consume(topic, 20)
        after = now_ms()
        assert {record.timestamp_type for record in received} == {LOG_APPEND_TIME}
        assert all(before <= record.timestamp_ms <= after for record in received)
        assert client.offset_for_time(topic, before - MINUTE_MS) == 0
        assert client.offset_for_time(topic, after + MINUTE_MS) is None

    @pytest.mark.parametrize("compression", COMPRESSIONS)
    def test_a_consumer_seeks_by_time(self, client: ForeignClient, topic: str, compression: str | None) -> None:
        need(client, compression)
        client.create_topic(topic)
        base = now_ms() - 10 * MINUTE_MS
        for batch in range(3):
            client.produce(topic, timed_records(base + 1000 * batch), compression=compression)
        assert client.offset_for_time(topic, base - MINUTE_MS) == 0
        assert client.offset_for_time(topic, base) == 0
        assert client.offset_for_time(topic, base + 1000 + 70) == 27
        assert client.offset_for_time(topic, base + 1000 + 65) == 27
        assert client.offset_for_time(topic, base + 1000 + 191) == 40
        assert client.offset_for_time(topic, base + 2000 + 190) == 59
        assert client.offset_for_time(topic, base + 2000 + 191) is None

    def test_a_consumer_seeks_by_time_although_time_runs_backwards(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        base = now_ms() - 10 * MINUTE_MS
        times = [base + 500, base + 100, base + 900, base + 300]
        client.produce(topic, [Record(b"%d" % at, timestamp_ms=at) for at in times], compression="zstd")
        assert [record.timestamp_ms for record in client.consume(topic, 4)] == times
        assert client.offset_for_time(topic, base + 101) == 0
        assert client.offset_for_time(topic, base + 501) == 2
        assert client.offset_for_time(topic, base + 901) is None

    @pytest.mark.parametrize("compression", [None, "gzip", "lz4"])
    def test_a_consumer_seeks_into_a_batch(self, client: ForeignClient, topic: str, compression: str | None) -> None:
        need(client, compression)
        client.create_topic(topic)
        for _ in range(2):
            client.produce(topic, timed_records(now_ms()), compression=compression)
        for offset in (0, 7, 19, 20, 33, 39):
            (record,) = client.consume(topic, 1, offset=offset)
            assert (record.offset, record.value) == (offset, b"v%d" % (offset % 20))

    def test_begin_and_end_offsets_are_reported(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic, 2)
        assert client.offsets(topic, 1) == (0, 0)
        client.produce(topic, timed_records(now_ms()), partition=1)
        assert client.offsets(topic, 1) == (0, 20)
        assert client.offsets(topic, 0) == (0, 0)

    def test_an_offset_beyond_the_end_is_out_of_range(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        client.produce(topic, [Record(b"one")])
        with pytest.raises(Refused) as refusal:
            client.consume(topic, 1, offset=5)
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    # --- topics

    def test_a_topic_is_listed_and_described(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic, 3)
        eventually(lambda: topic in client.topics(), "the broker has heard of the topic")
        assert client.partition_count(topic) == 3

    def test_validate_only_creates_nothing(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic, validate_only=True)
        assert topic not in client.topics()

    def test_a_topic_that_exists_is_not_created_again(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        with pytest.raises(Refused) as refusal:
            client.create_topic(topic)
        assert refusal.value.code == ErrorCode.TOPIC_ALREADY_EXISTS

    @pytest.mark.parametrize("name", ["with space", "slash/y", "..", "x" * 250])
    def test_an_invalid_name_is_refused(self, client: ForeignClient, name: str) -> None:
        with pytest.raises(Refused) as refusal:
            client.create_topic(name)
        assert refusal.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_more_replicas_than_brokers_are_refused(self, client: ForeignClient, topic: str) -> None:
        with pytest.raises(Refused) as refusal:
            client.create_topic(topic, replication_factor=BROKERS + 1)
        assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR

    @pytest.mark.parametrize(
        ("key", "value"), [("retention.ms", "soon"), ("cleanup.policy", "burn"), ("no.such.key", "1")]
    )
    def test_an_invalid_config_is_refused(self, client: ForeignClient, topic: str, key: str, value: str) -> None:
        with pytest.raises(Refused) as refusal:
            client.create_topic(topic, configs={key: value})
        assert refusal.value.code == ErrorCode.INVALID_CONFIG
        assert topic not in client.topics()

    def test_configs_are_described_and_altered(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic, configs={"retention.ms": "3600000"})
        eventually(lambda: topic in client.topics(), "the broker has heard of the topic")
        configs = client.configs(topic)
        assert configs["retention.ms"] == "3600000"
        assert configs["cleanup.policy"] == "delete"
        assert configs["max.message.bytes"] == "1048588"
        client.alter_configs(topic, {"retention.ms": "7200000", "max.message.bytes": "2000"})
        eventually(lambda: client.configs(topic)["retention.ms"] == "7200000", "the new value is described")

        def refused() -> int:  # the leader may learn of the change later than the broker that has described it
            try:
                client.produce(topic, [Record(bytes(3000))])
            except Refused as refusal:
                return refusal.code
            return 0

        assert eventually(refused, "the leader has heard of the limit") == ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(Refused) as refusal:
            client.alter_configs(topic, {"retention.ms": "never"})
        assert refusal.value.code == ErrorCode.INVALID_CONFIG

    def test_partitions_are_added(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        client.produce(topic, [Record(b"before")])
        client.create_partitions(topic, 4)
        eventually(lambda: client.partition_count(topic) == 4, "four partitions")
        client.produce(topic, [Record(b"after")], partition=3)
        assert client.consume(topic, 1, partition=3)[0].value == b"after"
        assert client.offsets(topic) == (0, 1)
        for total in (2, 4):
            with pytest.raises(Refused) as refusal:
                client.create_partitions(topic, total)
            assert refusal.value.code == ErrorCode.INVALID_PARTITIONS

    def test_a_deleted_topic_is_gone_and_its_name_is_free(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        client.produce(topic, timed_records(now_ms()))
        client.delete_topic(topic)
        eventually(lambda: topic not in client.topics(), "the topic is gone")
        with pytest.raises(Refused) as refusal:
            client.delete_topic(topic)
        assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        client.create_topic(topic, 2)
        eventually(lambda: is_led(client, topic), "the leader has heard of the new one")
        assert client.offsets(topic) == (0, 0)
        assert client.produce(topic, [Record(b"new")])[0].offset == 0
        assert client.consume(topic, 1)[0].value == b"new"

    def test_records_are_deleted(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        for _ in range(2):
            client.produce(topic, timed_records(now_ms()))
        assert client.delete_records(topic, 7) == 7
        assert client.offsets(topic) == (7, 40)
        assert client.consume(topic, 1, offset=7)[0].offset == 7
        with pytest.raises(Refused) as refusal:
            client.consume(topic, 1, offset=6)
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        with pytest.raises(Refused) as refusal:
            client.delete_records(topic, 41)
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert client.delete_records(topic, -1) == 40
        assert client.offsets(topic) == (40, 40)
        assert client.produce(topic, [Record(b"next")])[0].offset == 40

    def test_the_cluster_is_described(self, client: ForeignClient, address: str) -> None:
        assert {f"{host}:{port}" for _, host, port in client.brokers()} == set(address.split(","))
