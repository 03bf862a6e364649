"""Tests the sink on two releases of Apache Kafka, 3.9 (transactions of KIP-98) and 4.1 (KIP-890): whichever process
dies, each record is written once.

Each release needs another JVM, so `make spark-tests` runs these tests. The tests are skipped if Maven's registry is not
reachable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafka
from dying import has_died
from foreign_clients import eventually
from maven import Unavailable
from pyspark.errors import StreamingQueryException
from streams import Stream, committed_values, create, is_over, produce, values

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

RELEASES = ("4.1.0", "3.9.1")
ROWS = 600
BATCH = 300


@pytest.fixture(scope="module", params=RELEASES)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    try:
        kafka = ApacheKafka(request.param, tmp_path_factory.mktemp("kafka") / "data")
    except Unavailable as reason:
        pytest.skip(str(reason))
    with kafka:
        yield kafka


@pytest.fixture
def stream(kafka: ApacheKafka, topic: str, checkpoint: str) -> Stream:
    """A stream of 600 records in batches of 300, which three tasks read and write."""
    create(kafka.address, topic, f"{topic}-out")
    produce(kafka.address, topic, values(ROWS))
    reads = {"maxOffsetsPerTrigger": str(BATCH), "minPartitions": "3"}
    return Stream(kafka.address, topic, f"{topic}-out", checkpoint, reads)


def dying(stream: Stream, died: Path, **options: str) -> Stream:
    return replace(stream, writes=dict(stream.writes) | {"dieFile": str(died)} | options)


def settled(stream: Stream) -> Counter[bytes]:
    eventually(lambda: is_over(stream.address, stream.target), "nothing is open")
    return committed_values(stream.address, stream.target)


def test_a_killed_task_loses_nothing(spark: Any, stream: Stream, tmp_path: Path) -> None:
    """Another attempt of the task writes its rows; the rows of the dead attempt are aborted."""
    dying(stream, tmp_path / "died", dieAt="rows flushed", diePart="0").run(spark)
    assert has_died(tmp_path / "died") == 1
    assert settled(stream) == Counter(values(ROWS))


@pytest.mark.parametrize("point", ["decision", "decided", "one ended"])
def test_a_killed_committer_loses_nothing(spark: Any, stream: Stream, tmp_path: Path, point: str) -> None:
    """Either the entire batch is visible or none of it, and the query continues when it is restarted."""
    with pytest.raises(StreamingQueryException):
        dying(stream, tmp_path / "died", dieAt=point).run(spark)
    assert has_died(tmp_path / "died") == 1
    assert sum(settled(stream).values()) == (0 if point == "decision" else BATCH)
    stream.run(spark)
    assert settled(stream) == Counter(values(ROWS))


def test_a_decided_timed_out_batch_is_written_again(spark: Any, stream: Stream, tmp_path: Path) -> None:
    """Neither the process that commits nor the process that aborts ends the decided transactions before Kafka has
    aborted them, so the replay writes the batch again.
    """
    told = {"kafka.transaction.timeout.ms": "60000"}
    died = tmp_path / "died"
    with pytest.raises(StreamingQueryException):
        dying(stream, died, dieAt="committing", dieTimes="99", **told).run(spark)
    assert has_died(died) > 1
    eventually(lambda: is_over(stream.address, stream.target), "Kafka aborts it", 180)
    assert not committed_values(stream.address, stream.target)
    stream.run(spark)
    assert settled(stream) == Counter(values(ROWS))


def test_at_least_once_writes_duplicates(spark: Any, stream: Stream, tmp_path: Path) -> None:
    """With the delivery at-least-once, in which the driver decides nothing, the same kill causes duplicates, which
    proves that these tests can fail.
    """
    dying(stream, tmp_path / "died", dieAt="rows flushed", diePart="0", delivery="at-least-once").run(spark)
    seen = settled(stream)
    assert set(seen) == set(values(ROWS))
    assert sum(seen.values()) > ROWS
