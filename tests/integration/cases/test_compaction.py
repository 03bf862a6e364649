"""Tests compacted topics on a live broker that librdkafka fills and reads, also with a `kill -9` during a cleaning."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from broker_process import BrokerFactory, BrokerProcess
from foreign_clients import Received, Record
from librdkafka_client import Librdkafka
from raw_client import PRODUCE_VERSION, RawClient, produce_request

from oncelog_protocol.api import ApiKey
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record as BatchRecord
from oncelog_protocol.records.record import read_records

SEED = 20_250_117
DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.05
KILLS = 5
EAGER = {"log.cleaner.backoff.ms": "50", "auto.create.topics.enable": "false"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "8000",
    "min.cleanable.dirty.ratio": "0",
    "file.delete.delay.ms": "0",
}
Written = dict[int, tuple[bytes, bytes | None]]
"""Maps each offset to the key and value of its record."""


def wait_until(condition: Callable[[], bool], what: str, poll_seconds: float = POLL_SECONDS) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_SECONDS} s"
        time.sleep(poll_seconds)


def unfinished(broker: BrokerProcess, topic: str) -> bool:
    """Return whether a cleaned segment is being written or is replacing its originals."""
    return any(path.suffix in (".cleaned", ".swap") for path in (broker.data / f"{topic}-0").iterdir())


def active_base(data: Path, topic: str) -> int:
    return max(int(path.name.removesuffix(".log")) for path in (data / f"{topic}-0").glob("*.log"))


def compacted_up_to(data: Path, topic: str) -> int:
    checkpoint = data / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), default=0)


def wait_until_compacted(broker: BrokerProcess, topic: str) -> int:
    """Wait until the topic is compacted. Returns the base offset of the active segment: all records below this offset
    are compacted.
    """
    wait_until(lambda: compacted_up_to(broker.data, topic) == active_base(broker.data, topic), "compaction")
    return active_base(broker.data, topic)


def produce(
    client: Librdkafka, topic: str, pairs: Iterable[tuple[bytes, bytes | None]], codec: str, into: Written
) -> None:
    pairs = list(pairs)
    placed = client.produce(topic, [Record(value, key) for key, value in pairs], compression=codec)
    into.update({place.offset: pair for place, pair in zip(placed, pairs, strict=True)})


def left_after(written: Written, end: int) -> Written:
    """Return the records that remain after compaction of all offsets below `end`."""
    last = {written[offset][0]: offset for offset in sorted(written) if offset < end}
    return {offset: pair for offset, pair in written.items() if offset >= end or last[pair[0]] == offset}


def table(written: Written) -> dict[bytes, bytes]:
    found: dict[bytes, bytes | None] = {written[offset][0]: written[offset][1] for offset in sorted(written)}
    return {key: value for key, value in found.items() if value is not None}


def by_offset(received: Iterable[Received]) -> Written:
    return {record.offset: (record.key or b"", record.value) for record in received}


def read_all(broker: BrokerProcess, topic: str, start: int = 0) -> Written:
    """Return all records, with raw fetches, each of which must return the next existing batch."""
    found: Written = {}
    with RawClient(broker.port) as raw:
        end, _ = raw.list_offset(topic, 0)
        while start < end:
            fetched = raw.fetch(topic, 0, start)
            assert fetched, f"nothing at offset {start} of {end}"
            assert fetched[0].last_offset >= start
            for batch in fetched:
                found.update({record.offset: (record.key or b"", record.value) for record in read_records(batch)})
                start = batch.next_offset
    return found


@pytest.mark.parametrize("codec", ["none", "lz4", "gzip"])
def test_the_last_value_of_each_key_stays_and_readers_never_fail(broker_factory: BrokerFactory, codec: str) -> None:
    with broker_factory(EAGER) as broker, RawClient(broker.port) as raw:
        client, rng, topic = Librdkafka(broker.address), random.Random(SEED), f"compacted-{codec}"
        client.create_topic(topic, configs=COMPACTED)
        written: Written = {}
        for turn in range(12):
            pairs = [
                (b"key-%d" % rng.randrange(40), None if rng.random() < 0.05 else b"%d-%d" % (turn, n) * 5)
                for n in range(200)
            ]
            produce(client, topic, pairs, codec, written)
            for offset in rng.sample(sorted(written), 20):
                (first, *_) = raw.fetch(topic, 0, offset)
                assert first.last_offset >= offset, "while the cleaner is at work"
        end = wait_until_compacted(broker, topic)
        expected = left_after(written, end)
        assert 0 < end <= max(written)
        assert len(expected) < len(written) / 2
        assert by_offset(client.consume(topic, len(expected))) == expected
        assert client.offsets(topic) == (0, max(written) + 1)
        for offset in rng.sample(range(max(written)), 25):
            following = min(at for at in expected if at >= offset)
            assert client.consume(topic, 1, offset=offset)[0].offset == following
        client.close()
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


def read_while_it_shrinks(client: Librdkafka, broker: BrokerProcess, topic: str) -> Written:
    """Return all records; reading starts again if the broker deletes the beginning of the log in the meantime."""
    while True:
        start = client.offsets(topic)[0]
        try:
            return read_all(broker, topic, start)
        except AssertionError:
            if client.offsets(topic)[0] == start:
                raise


def test_compact_and_delete_work_together(broker_factory: BrokerFactory) -> None:
    settings = {**EAGER, "log.retention.check.interval.ms": "100"}
    with broker_factory(settings) as broker:
        client, topic = Librdkafka(broker.address), "both"
        client.create_topic(
            topic, configs={**COMPACTED, "cleanup.policy": "compact,delete", "retention.bytes": "20000"}
        )
        written: Written = {}
        for turn in range(10):
            produce(client, topic, [(b"key-%d-%d" % (turn, n), b"v" * 30) for n in range(100)], "none", written)
            produce(client, topic, [(b"again", b"%d" % n) for n in range(20)], "none", written)
        wait_until(lambda: client.offsets(topic)[0] > 0, "retention")
        wait_until_compacted(broker, topic)
        found = read_while_it_shrinks(client, broker, topic)
        assert found.items() <= written.items()
        assert table(found)[b"again"] == b"19"
        client.close()


def test_the_log_cleaner_can_be_switched_off(broker_factory: BrokerFactory) -> None:
    """If another background task has run, an enabled cleaner would certainly have run before."""
    settings = {**EAGER, "log.cleaner.enable": "false", "log.retention.check.interval.ms": "300"}
    with broker_factory(settings) as broker:
        client, topic = Librdkafka(broker.address), "kept"
        client.create_topic(topic, configs=COMPACTED)
        client.create_topic("expiring", configs={"segment.bytes": "8000", "retention.bytes": "0"})
        written: Written = {}
        for _ in range(3):
            produce(client, topic, [(b"k", b"v" * 50)] * 100, "none", written)
            produce(client, "expiring", [(b"k", b"v" * 50)] * 100, "none", {})
        wait_until(lambda: client.offsets("expiring")[0] > 0, "retention")
        assert read_all(broker, topic) == written
        assert compacted_up_to(broker.data, topic) == 0 < active_base(broker.data, topic)
        client.close()
        assert broker.stop() == 0
        broker.settings["log.cleaner.enable"] = "true"
        broker.start()
        wait_until_compacted(broker, topic)


def test_kill_9_during_cleaning_loses_nothing(broker_factory: BrokerFactory) -> None:
    """The cleaner is throttled, so that the kills interrupt its work; the topic grows between one kill and the next."""
    rng = random.Random(SEED)
    settings = {**EAGER, "log.cleaner.io.max.bytes.per.second": "400000"}
    broker, topic, written = broker_factory(settings), "killed", Written()
    broker.start()
    Librdkafka(broker.address).create_topic(topic, configs={**COMPACTED, "segment.bytes": "20000"})
    interrupted = 0
    for kill in range(KILLS):
        client = Librdkafka(broker.address)
        for turn in range(4):
            pairs = [
                (b"key-%d" % rng.randrange(60), None if rng.random() < 0.03 else b"%d.%d.%d" % (kill, turn, n) * 4)
                for n in range(400)
            ]
            produce(client, topic, pairs, rng.choice(["none", "lz4", "zstd"]), written)
        client.close()
        if kill % 2 == 0:
            wait_until(
                lambda: (
                    unfinished(broker, topic) or compacted_up_to(broker.data, topic) == active_base(broker.data, topic)
                ),
                "a segment is cleaned",
                poll_seconds=0.001,
            )
        else:
            time.sleep(rng.uniform(0.02, 0.4))
        broker.kill()
        interrupted += unfinished(broker, topic)
        broker.start()
        found = read_all(broker, topic)
        assert found.items() <= written.items(), "nothing that was never written"
        assert table(found) == table(written), "no last value is lost, none comes back"
    assert interrupted, "no kill fell into the writing of a cleaned segment"
    end = wait_until_compacted(broker, topic)
    assert read_all(broker, topic) == left_after(written, end)
    assert not unfinished(broker, topic)
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.mark.parametrize("records", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_many_records_of_ten_thousand_keys_are_compacted(broker_factory: BrokerFactory, records: int) -> None:
    keys, per_batch = 10_000, 1000
    rng = random.Random(SEED)
    with broker_factory(EAGER) as broker, RawClient(broker.port) as raw:
        client, topic = Librdkafka(broker.address), "many"
        client.create_topic(topic, configs={**COMPACTED, "segment.bytes": str(1 << 20), "cleanup.policy": "delete"})
        last: dict[bytes, list[int]] = {}
        now = time.time_ns() // 1_000_000
        for first in range(0, records, per_batch):
            batch = []
            for offset in range(first, first + per_batch):
                key = b"%d" % rng.randrange(keys)
                last.setdefault(key, []).append(offset)
                batch.append(BatchRecord(0, now, key, b"%030d" % offset, []))
            produced = build_batch(batch, compression=Compression.LZ4)
            answer = raw.call(produce_request(topic, 0, produced), ApiKey.PRODUCE, PRODUCE_VERSION)
            assert answer.responses[0].partition_responses[0].error_code == 0
        client.alter_configs(topic, {**COMPACTED, "segment.bytes": str(1 << 20)})
        end = wait_until_compacted(broker, topic)
        expected = [offset for offsets in last.values() for offset in offsets if offset >= end]
        expected += [max(below) for offsets in last.values() if (below := [o for o in offsets if o < end])]
        received = client.consume(topic, len(expected))
        assert [record.offset for record in received] == sorted(expected)
        assert all(record.value == b"%030d" % record.offset for record in received)
        for offset in rng.sample(range(records), 20):
            following = min((at for at in expected if at >= offset), default=None)
            if following is not None:
                assert client.consume(topic, 1, offset=offset)[0].offset == following
        client.close()
