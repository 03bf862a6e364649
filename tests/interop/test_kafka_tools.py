"""Tests that Kafka's own tools find no fault in a directory that oncelog's broker wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kafka_history as history
import pytest
from apache_kafka import ApacheKafka
from broker_process import BrokerProcess
from client_contract import MINUTE_MS, now_ms, varied_records
from conftest import RELEASES, or_skip
from foreign_clients import COMPRESSIONS
from librdkafka_client import Librdkafka

DUMP = "kafka.tools.DumpLogSegments"
COUNT = 40
WRONG = ("Mismatch", "mismatch", "corrupt", "Non-consecutive", "invalid", "Exception", "Error", "isvalid: false")
"""Words that DumpLogSegments prints if something is wrong; its exit code is 0 all the same."""


@pytest.fixture(scope="module", params=RELEASES)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ApacheKafka:
    """An installation of Apache Kafka that is not started: the tests use only its command line tools."""
    return or_skip(lambda: ApacheKafka(request.param, tmp_path_factory.mktemp("tools") / "data"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of a stopped oncelog broker: several segments with every codec, append time, 3 partitions."""
    data = tmp_path_factory.mktemp("ours") / "data"
    with BrokerProcess(data) as broker:
        client = Librdkafka(broker.address)
        client.create_topic("segments", configs=history.TINY_SEGMENTS)
        for batch in range(COUNT):
            records = history.compressible(now_ms() - 10 * MINUTE_MS + 1000 * batch, 5)
            client.produce("segments", records, compression=COMPRESSIONS[batch % 5], idempotent=batch % 2 == 0)
        client.create_topic("varied", 3, configs={"message.timestamp.type": "LogAppendTime"})
        for partition in range(3):
            client.produce("varied", varied_records(client), partition=partition, compression="zstd")
        client.close()
    yield data


def dumped(kafka: ApacheKafka, files: list[Path], *options: str) -> str:
    text = kafka.tool(DUMP, ["--files", ",".join(map(str, files)), *options])
    for word in WRONG:
        assert word not in text, text[:4000]
    return text


def test_segments_are_read(kafka: ApacheKafka, directory: Path) -> None:
    files = sorted(directory.glob("*/*.log"))
    assert len(files) > 6, "several segments"
    text = dumped(kafka, files, "--print-data-log", "--deep-iteration")
    assert text.count("payload: v") == COUNT * 5
    assert text.count("compresscodec: ") >= COUNT
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in text.lower(), codec


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes_are_sane(kafka: ApacheKafka, directory: Path, suffix: str, option: str) -> None:
    files = sorted(directory.glob(f"*/*.{suffix}"))
    assert files
    text = dumped(kafka, files, option)
    if option == "--index-sanity-check":
        assert text.count("passed sanity check") + text.count("is empty.") == len(files)
