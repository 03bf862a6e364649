"""Tests streams from topic to topic through a live Spark: whichever process is killed, each record is written once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dying import has_died
from pyspark.errors import StreamingQueryException
from streams import Stream, committed, committed_values, create, produce, seen_values, values

ROWS = 600
BATCH = 300
PIECE = 75
"""The number of offsets of the first task: half of the 150 offsets of partition 0."""


@pytest.fixture
def stream(address: str, topic: str, checkpoint: str) -> Stream:
    """A stream of 600 records in batches of 300, which three tasks read and write."""
    target = f"{topic}-out"
    create(address, topic, target)
    produce(address, topic, values(ROWS))
    return Stream(address, topic, target, checkpoint, {"maxOffsetsPerTrigger": str(BATCH), "minPartitions": "3"})


def dying(stream: Stream, tmp_path: Path, **options: str) -> Stream:
    """Return the stream with the options that make a process die in the sink."""
    writes = dict(stream.writes) | {"dieFile": str(tmp_path / "died")} | options
    return Stream(stream.address, stream.source, stream.target, stream.checkpoint, stream.reads, writes)


def test_a_stream_continues_where_it_was(spark: Any, stream: Stream) -> None:
    """The restarted stream reads only the newer records, and the stream copies keys."""
    assert [progress["numInputRows"] for progress in stream.run(spark)][:2] == [BATCH, BATCH]
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))
    produce(stream.address, stream.source, values(10, ROWS))
    progress = stream.run(spark)
    assert sum(each["numInputRows"] for each in progress) == 10
    records = committed(stream.address, stream.target)
    assert Counter(record.value for record in records) == Counter(values(ROWS + 10))
    assert {record.key for record in records} == {b"key %d" % number for number in range(17)}
    by_key: dict[bytes, set[int]] = {}
    for record in records:
        by_key.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())


@pytest.mark.parametrize(
    "point", [pytest.param("rows sent", marks=pytest.mark.soak, id="K1"), pytest.param("rows flushed", id="K2")]
)
def test_a_killed_task_loses_nothing(spark: Any, stream: Stream, tmp_path: Path, point: str) -> None:
    """Another attempt of the task writes its rows; the rows of the dead attempt are aborted."""
    dying(stream, tmp_path, dieAt=point, diePart="0").run(spark)
    assert has_died(tmp_path / "died") == 1
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))


@pytest.mark.soak
def test_k3_a_task_that_raises_once_loses_nothing(spark: Any, stream: Stream, tmp_path: Path) -> None:
    dying(stream, tmp_path, dieAt="rows flushed", dieHow="raise", diePart="0").run(spark)
    assert has_died(tmp_path / "died") == 1
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))


@pytest.mark.soak
def test_k3_a_task_that_always_raises_fails_the_query(spark: Any, stream: Stream, tmp_path: Path) -> None:
    """The query fails before any row of its batch is visible; after a restart the query writes the batch."""
    with pytest.raises(StreamingQueryException, match="rows flushed"):
        dying(stream, tmp_path, dieAt="rows flushed", dieHow="raise", dieTimes="99", diePart="0").run(spark)
    assert has_died(tmp_path / "died") == 3
    assert not seen_values(stream.address, stream.target)
    stream.run(spark)
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))


@pytest.mark.parametrize(
    ("point", "how"),
    [
        pytest.param("decision", "kill", marks=pytest.mark.soak, id="K4"),
        pytest.param("decided", "kill", id="K5"),
        pytest.param("one ended", "kill", marks=pytest.mark.soak, id="K6"),
        pytest.param("all ended", "kill", marks=pytest.mark.soak, id="K7"),
        pytest.param("decision", "raise", marks=pytest.mark.soak, id="K8-before"),
        pytest.param("decided", "raise", marks=pytest.mark.soak, id="K8-after"),
    ],
)
def test_a_killed_committer_loses_nothing(spark: Any, stream: Stream, tmp_path: Path, point: str, how: str) -> None:
    """The query fails; either its entire batch is visible or none of it, and the query continues when it is
    restarted.
    """
    with pytest.raises(StreamingQueryException):
        dying(stream, tmp_path, dieAt=point, dieHow=how).run(spark)
    assert has_died(tmp_path / "died") == 1
    seen = committed_values(stream.address, stream.target)
    assert sum(seen.values()) == (0 if point == "decision" else BATCH)
    stream.run(spark)
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))


def test_k22_at_least_once_writes_duplicates(spark: Any, stream: Stream, tmp_path: Path) -> None:
    """With the delivery at-least-once, in which the driver decides nothing, the same kill causes duplicates, which
    proves that these tests can fail.
    """
    options = {"dieAt": "rows flushed", "diePart": "0", "delivery": "at-least-once"}
    dying(stream, tmp_path, **options).run(spark)
    assert has_died(tmp_path / "died") == 1
    seen = committed_values(stream.address, stream.target)
    assert set(seen) == set(values(ROWS))
    assert sum(seen.values()) == ROWS + PIECE


def test_k21_a_killed_reader_loses_nothing(spark: Any, stream: Stream, tmp_path: Path) -> None:
    """The killed task had read records; the sink aborts them with the task's attempt, and another attempt reads them
    again.
    """
    reads = dict(stream.reads) | {"dieAt": "reading", "dieFile": str(tmp_path / "died")}
    Stream(stream.address, stream.source, stream.target, stream.checkpoint, reads).run(spark)
    assert has_died(tmp_path / "died") == 1
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))


@pytest.mark.soak
def test_k21_a_first_batch_is_replayed_from_where_it_began(spark: Any, stream: Stream, tmp_path: Path) -> None:
    """A query that begins at "latest" fails in its first batch; after a restart it reads the records that arrived in
    between.
    """
    reads = dict(stream.reads) | {"startingOffsets": "latest"}
    latest = Stream(stream.address, stream.source, stream.target, stream.checkpoint, reads)
    with pytest.raises(Exception, match=r"before the rows"):
        dying(latest, tmp_path, dieAt="before the rows", dieHow="raise", dieTimes="99").run(spark)
    produce(stream.address, stream.source, values(5, ROWS))
    latest.run(spark)
    assert committed_values(stream.address, stream.target) == Counter(values(5, ROWS))
