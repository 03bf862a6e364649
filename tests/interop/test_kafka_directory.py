"""Tests that oncelog's broker opens and serves a log directory that Apache Kafka wrote, and that Kafka can open the
directory again afterwards.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import kafka_history as history
import pytest
from apache_kafka import CLUSTER_ID, NODE_ID, ApacheKafka
from broker_process import BrokerFactory, BrokerProcess
from conftest import RELEASES, or_skip
from foreign_clients import Received, Record, content_of
from librdkafka_client import Librdkafka

STOPPED, KILLED = "stopped", "killed"


@dataclass
class Written:
    """The responses of Apache Kafka before it ended, and the log directory that it left."""

    release: str
    directory: Path
    served: dict[tuple[str, int], history.Partition]
    committed: list[Received]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return list(self.served)


@pytest.fixture(scope="module", params=RELEASES)
def histories(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """Return a history in Kafka's own files for each way in which Kafka ended: killed, and, after another start,
    stopped.
    """
    place = tmp_path_factory.mktemp("written")
    kafka = or_skip(lambda: ApacheKafka(request.param, place / "data", history.SETTINGS))
    found = {}
    with kafka:
        partitions = history.write(kafka.address)
        for ending, leave in ((KILLED, kafka.kill), (STOPPED, kafka.stop)):
            if not kafka.is_running:
                kafka.start()
            served = history.served(kafka.address, partitions)
            committed = history.committed_records(kafka.address, "transactions", 0)
            leave()
            shutil.copytree(kafka.data, place / ending)
            found[ending] = Written(request.param, place / ending, served, committed)
    return found


@pytest.fixture(params=[STOPPED, KILLED])
def written(request: pytest.FixtureRequest, histories: dict[str, Written]) -> Written:
    return histories[request.param]


@pytest.fixture
def broker(written: Written, tmp_path: Path, broker_factory: BrokerFactory) -> BrokerProcess:
    """Start oncelog's broker on a copy of the directory that Kafka left."""
    shutil.copytree(written.directory, tmp_path / "data")
    broker = broker_factory({"node.id": str(NODE_ID)}, tmp_path / "data")
    with pytest.raises(AssertionError, match="have no note of their metadata store") as refused:
        broker.start()
    broker.kill()  # the process has ended, but its pipe can still be read
    broker.settings["start.accept"] = re.findall(r"start\.accept=(\S+)", str(refused.value))[-1]
    return broker.start()


def assert_served_alike(
    ours: dict[tuple[str, int], history.Partition], theirs: dict[tuple[str, int], history.Partition]
) -> None:
    for key, expected in theirs.items():
        found = ours[key]
        assert (found.begin, found.end) == (expected.begin, expected.end), key
        assert found.records == expected.records, key
        assert found.raw == expected.raw, key
        if key != ("compacted", 0):
            assert found.by_time == expected.by_time, key


def first_not_before(records: list[Received], timestamp_ms: int) -> tuple[int, int]:
    return next(((r.offset, r.timestamp_ms) for r in records if r.timestamp_ms >= timestamp_ms), (-1, -1))


def test_all_records_of_kafka_are_served(broker: BrokerProcess, written: Written) -> None:
    ours = history.served(broker.address, written.partitions)
    assert_served_alike(ours, written.served)
    # Kafka takes the file's modification time as the newest timestamp of a segment that compaction emptied. Kafka then
    # searches only this segment, and reports that it found no record. oncelog's broker also searches the other
    # segments.
    compacted = ours["compacted", 0]
    for at, found in compacted.by_time.items():
        assert at < 0 or found == first_not_before(compacted.records, at), at
    assert "Traceback" not in broker.log.read_text()


def test_the_cluster_keeps_its_id_and_its_topics(broker: BrokerProcess, written: Written) -> None:
    client = Librdkafka(broker.address)
    assert client.admin.list_topics(timeout=10).cluster_id == CLUSTER_ID
    assert {topic for topic, _ in written.partitions} <= client.topics()
    assert client.partition_count("keyed") == history.PARTITIONS
    client.close()


def test_producing_continues_on_a_kafka_directory(broker: BrokerProcess, written: Written) -> None:
    client = Librdkafka(broker.address)
    for (topic, partition), before in written.served.items():
        for idempotent in (False, True):
            (placed,) = client.produce(
                topic, [Record(b"new", b"key")], partition=partition, compression="gzip", idempotent=idempotent
            )
            assert placed.offset == before.end + idempotent
        received = client.consume(topic, 2, partition=partition, offset=before.end)
        assert [record.content for record in received] == content_of([Record(b"new", b"key")] * 2)
    client.close()


def test_the_directory_goes_back_to_kafka(broker: BrokerProcess, written: Written) -> None:
    """oncelog's broker has left Kafka's metadata log unchanged, so Kafka must open the directory and serve the records
    that oncelog has appended.
    """
    client = Librdkafka(broker.address)
    for topic, partition in written.partitions:
        client.produce(topic, [Record(b"from the other broker", b"key")], partition=partition, compression="lz4")
    client.close()
    ours = history.served(broker.address, written.partitions)
    broker.stop()
    with ApacheKafka(written.release, broker.data) as kafka:
        assert_served_alike(history.served(kafka.address, written.partitions), ours)
        client = Librdkafka(kafka.address)
        for (topic, partition), before in ours.items():
            (placed,) = client.produce(topic, [Record(b"and back", b"key")], partition=partition)
            assert placed.offset == before.end, topic
        client.close()
    assert "ERROR" not in kafka.log.read_text()


def test_committed_records_are_told_apart(broker: BrokerProcess, written: Written) -> None:
    assert history.committed_records(broker.address, "transactions", 0) == written.committed


def test_topics_keep_their_settings(broker: BrokerProcess) -> None:
    """Only Kafka's metadata log contains these settings; without them retention would apply to compacted topics."""
    client = Librdkafka(broker.address)
    for topic, name, value in (
        ("compacted", "cleanup.policy", "compact"),
        ("compacted", "min.cleanable.dirty.ratio", "0.01"),
        ("segments", "segment.index.bytes", "64"),
        ("append-time", "message.timestamp.type", "LogAppendTime"),
        ("made-zstd", "compression.type", "zstd"),
        ("__consumer_offsets", "cleanup.policy", "compact"),
    ):
        assert client.configs(topic)[name] == value, topic
    client.close()
