"""Tests checkpoints whose last entries are missing, torn or older, with a live Spark: each row is written once, or the
start is refused.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from streams import Stream, committed_values, create, produce, values

from oncelog import Admin

ROWS = 40
"""The number of records in each batch; a batch has all records that were written since the previous batch."""


class Query:
    """A query that reads all new records as one batch at each start."""

    def __init__(self, spark: Any, stream: Stream) -> None:
        self.spark = spark
        self.stream = stream
        self.produced = 0

    def fill(self) -> None:
        produce(self.stream.address, self.stream.source, values(ROWS, self.produced))
        self.produced += ROWS

    def run(self) -> None:
        self.stream.run(self.spark)

    def batches(self, count: int) -> None:
        for _ in range(count):
            self.fill()
            self.run()

    def entry(self, log: str, number: int) -> Path:
        return Path(self.stream.checkpoint) / log / str(number)

    def lose(self, log: str, number: int) -> None:
        """Remove one entry from one of the checkpoint's logs."""
        self.entry(log, number).unlink()
        (Path(self.stream.checkpoint) / log / f".{number}.crc").unlink(missing_ok=True)

    @property
    def is_right(self) -> bool:
        """Return whether each row that was produced is visible exactly once."""
        return committed_values(self.stream.address, self.stream.target) == Counter(values(self.produced))

    def is_refused(self, sentence: str) -> None:
        before = committed_values(self.stream.address, self.stream.target)
        for _ in range(2):  # every later start must be refused as well
            with pytest.raises(StreamingQueryException, match=sentence):
                self.run()
        assert committed_values(self.stream.address, self.stream.target) == before


@pytest.fixture
def query(spark: Any, address: str, topic: str, checkpoint: str) -> Query:
    target = f"{topic}-out"
    create(address, topic, target)
    return Query(spark, Stream(address, topic, target, checkpoint))


@pytest.mark.parametrize("delivery", ["exactly-once", pytest.param("exactly-once-per-task", marks=pytest.mark.soak)])
def test_a_checkpoint_without_its_last_entry_loses_nothing(query: Query, delivery: str) -> None:
    """S1: the sink has decided to commit batch 1. A power cut has then removed the checkpoint entries of the batch, and
    100 more records arrive.
    """
    query.stream = replace(query.stream, writes={"delivery": delivery})
    query.batches(2)
    query.lose("offsets", 1)
    query.lose("commits", 1)
    query.fill()
    query.run()
    assert query.is_right
    query.batches(1)
    assert query.is_right


@pytest.mark.soak
def test_a_checkpoint_without_its_last_commit_loses_nothing(query: Query) -> None:
    query.batches(2)
    query.lose("commits", 1)
    query.fill()
    query.run()
    assert query.is_right


def test_a_checkpoint_without_its_last_offsets_loses_nothing(query: Query) -> None:
    """Spark repeats the previous batch, because its checkpoint entries are missing; the sink finds that this batch is
    committed, and the query continues.
    """
    query.batches(3)
    query.lose("offsets", 2)
    query.fill()
    query.is_refused("CONCURRENT_STREAM_LOG_UPDATE")
    query.lose("commits", 2)
    query.lose("commits", 1)
    query.run()
    assert query.is_right


def test_a_torn_last_entry_loses_nothing(query: Query) -> None:
    """Spark refuses a torn file of the checkpoint; when the file is removed, the query continues."""
    query.batches(2)
    query.lose("commits", 1)
    entry = query.entry("offsets", 1)
    query.lose("offsets", 1)
    entry.write_bytes(b"")
    query.fill()
    query.is_refused("Incomplete log file|" + str(entry))
    entry.unlink()
    query.run()
    assert query.is_right


@pytest.mark.parametrize("back", [2, pytest.param(10, marks=pytest.mark.soak)])
def test_an_older_checkpoint_loses_nothing(query: Query, tmp_path: Path, back: int) -> None:
    query.batches(1)
    backup = tmp_path / "backup"
    shutil.copytree(query.stream.checkpoint, backup)
    query.batches(back)
    shutil.rmtree(query.stream.checkpoint)
    backup.rename(query.stream.checkpoint)
    query.fill()
    query.run()
    assert query.is_right
    query.batches(1)
    assert query.is_right


def test_a_checkpoint_without_its_first_entry_is_refused(query: Query) -> None:
    """If the first checkpoint entry is missing, the id of the stream is lost, so the sink can no longer distinguish new
    records from the records of a decided batch.
    """
    query.batches(1)
    query.lose("offsets", 0)
    query.lose("commits", 0)
    query.fill()
    query.is_refused(
        r"BatchDiffers: query .*, batch 0: the batch is decided, with 40 rows.*start with a new checkpoint with"
    )


def delete_topic(address: str, topic: str) -> None:
    async def command() -> None:
        async with Admin(address) as admin:
            await admin.delete_topics([topic])

    asyncio.run(command())


@pytest.mark.parametrize("delivery", ["exactly-once", pytest.param("exactly-once-per-task", marks=pytest.mark.soak)])
def test_a_deleted_state_topic_is_noticed(query: Query, delivery: str) -> None:
    states = f"{query.stream.source}-state"
    query.stream = replace(query.stream, writes={"stateTopic": states, "delivery": delivery})
    query.batches(2)
    query.lose("commits", 1)
    delete_topic(query.stream.address, states)
    query.is_refused("StateLost: query .*state reset .* --batch 0")


@pytest.mark.parametrize("first", ["exactly-once", pytest.param("exactly-once-per-task", marks=pytest.mark.soak)])
def test_a_delivery_changed_before_the_replay_is_refused(query: Query, first: str) -> None:
    then = {"exactly-once": "exactly-once-per-task", "exactly-once-per-task": "exactly-once"}[first]
    query.stream = replace(query.stream, writes={"delivery": first})
    query.batches(1)
    query.lose("commits", 0)
    changed = replace(query.stream, writes={"delivery": then})
    before, query.stream = query.stream, changed
    query.is_refused(f"StateLost: query .*delivery={first}")
    query.stream = before
    query.run()
    query.stream = changed  # the changed options apply from the next batch on
    query.batches(1)
    assert query.is_right


@pytest.mark.parametrize("delivery", ["exactly-once", pytest.param("exactly-once-per-task", marks=pytest.mark.soak)])
def test_another_state_topic_is_noticed(query: Query, delivery: str) -> None:
    query.stream = replace(query.stream, writes={"stateTopic": f"{query.stream.source}-state", "delivery": delivery})
    query.batches(1)
    query.lose("commits", 0)
    before, query.stream = query.stream, replace(query.stream, writes={"delivery": delivery})
    query.is_refused(f"StateLost: query .* keeps its state in the topic {before.source}-state")
    query.stream = before
    query.run()
    assert query.is_right
