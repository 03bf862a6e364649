"""Tests what the source returns to Spark, without a Spark: the limits of batches, and the ranges of tasks."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from broker_process import BrokerFactory
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from streams import create, produce, values

from oncelog import Admin, NewTopic
from oncelog.errors import ErrorCode, error_for
from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.source import ends
from oncelog_pipeline.source.data_loss import DataLoss
from oncelog_pipeline.spark import stream_reader
from oncelog_pipeline.spark.data_source import OncelogDataSource
from oncelog_pipeline.spark.offset_lookup import NoSuchTopic


def source(address: str, **options: str) -> OncelogDataSource:
    return OncelogDataSource({"kafka.bootstrap.servers": address} | options)


def stream(address: str, **options: str) -> Any:
    made = source(address, **options)
    return made.streamReader(None)


@pytest.fixture
def filled(address: str, topic: str) -> str:
    """Return a topic with ten records in each of two partitions."""
    create(address, topic)
    produce(address, topic, values(20))
    return topic


def without_ids(offsets: dict[str, Any]) -> dict[str, Any]:
    """Return the offsets without topic ids, which have 16 bytes each, and without the id of the stream."""
    assert all(len(each) == 22 for each in offsets["_ids"].values())
    return {key: value for key, value in offsets.items() if key not in ("_ids", "_stream")}


def through(offsets: Any) -> Any:
    """Return the offsets in the form in which Spark's log returns them."""
    return json.loads(json.dumps(offsets))


def ranges(reader: Any, start: Any, end: Any) -> list[tuple[Any, ...]]:
    return [tuple(partition.value) for partition in reader.partitions(through(start), through(end))]


def test_the_first_batch_says_where_it_begins(address: str, filled: str) -> None:
    reader = stream(address, subscribe=filled)
    start = reader.initialOffset()
    assert without_ids(start) == {filled: {"0": 10, "1": 10}, "_initial": True}
    first = reader.latestOffset(through(start), ReadAllAvailable())
    assert without_ids(first) == {filled: {"0": 10, "1": 10}, "_from": {filled: {"0": 10, "1": 10}}}
    produce(address, filled, values(4))
    again = stream(address, subscribe=filled)
    assert ranges(again, again.initialOffset(), first) == []
    second = again.latestOffset(through(first), ReadAllAvailable())
    assert without_ids(second) == {filled: {"0": 12, "1": 12}}
    assert ranges(again, first, second) == [(filled, 0, 10, 12), (filled, 1, 10, 12)]
    assert again.latestOffset(through(second), ReadAllAvailable()) == second
    assert again.reportLatestOffset() == without_ids(second)


def test_a_batch_is_bounded_and_cut(address: str, filled: str) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6", "minPartitions": "4"}
    reader = stream(address, subscribe=filled, **options)
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(6))
    assert end[filled] == {"0": 3, "1": 3}
    assert ranges(reader, start, end) == [(filled, 0, 0, 1), (filled, 0, 1, 3), (filled, 1, 0, 1), (filled, 1, 1, 3)]
    copy = pickle.loads(pickle.dumps(reader))
    rows = [row for partition in reader.partitions(start, end) for row in copy.read(partition)]
    assert sum(batch.num_rows for batch in rows) == 6


def test_available_now_reads_existing_records(address: str, filled: str) -> None:
    reader = stream(address, subscribe=filled, startingOffsets="earliest", minOffsetsPerTrigger="1000")
    reader.prepareForTriggerAvailableNow()
    produce(address, filled, values(4))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end[filled] == {"0": 10, "1": 10}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_an_idle_query_learns_of_a_record_from_the_broker(
    address: str, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker reports the record in its response to the waiting Fetch; no periodic lookup is due before the end of the
    test.
    """
    monkeypatch.setattr(ends, "FRESH_SECONDS", 1000)
    monkeypatch.setattr(ends, "LONGEST_SECONDS", 1000)
    monkeypatch.setattr(stream_reader, "WAIT_SECONDS", 1000)
    reader = stream(address, subscribe=filled, startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(reader.latestOffset, start, ReadAllAvailable())
        produce(address, filled, values(1))
        end = asked.result()
    assert sum(end[filled].values()) == 21


def test_a_topic_that_comes_later_is_read_from_its_beginning(address: str, filled: str) -> None:
    reader = stream(address, subscribePattern=f"{filled}.*", startingOffsets="latest")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    create(address, f"{filled}-b")
    produce(address, f"{filled}-b", values(6))
    reader._ends.forget()
    later = reader.latestOffset(through(end), ReadAllAvailable())
    assert later[f"{filled}-b"] == {"0": 3, "1": 3}
    assert ranges(reader, end, later) == [(f"{filled}-b", 0, 0, 3), (f"{filled}-b", 1, 0, 3)]


def test_a_pattern_never_means_the_states_of_sinks(address: str, filled: str) -> None:
    """A topic pattern must not match the state topic, because a query would otherwise read the state of
    its own sink.
    """
    create(address, f"{filled}-state")
    told = {"subscribePattern": f"{filled}.*", "startingOffsets": "earliest"}
    assert set(stream(address, **told).initialOffset()) == {
        filled,
        f"{filled}-state",
        *("_ids", "_initial", "_stream"),
    }
    others = stream(address, **told, stateTopic=f"{filled}-state").initialOffset()
    assert set(others) == {filled, "_ids", "_initial", "_stream"}


def test_deleted_offsets_fail_the_query_or_are_skipped(address: str, filled: str) -> None:
    reader = stream(address, subscribe=filled)
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        reader.latestOffset({filled: {"0": 10, "1": 99}}, ReadAllAvailable())


def test_a_re_created_topic_is_never_read_on_at_the_old_offset(address: str, filled: str) -> None:
    """The new topic has more records than its predecessor, so offsets alone do not show that the topic was created
    again.
    """
    reader = stream(address, subscribe=filled, startingOffsets="earliest")
    planned = reader.latestOffset(through(reader.initialOffset()), ReadAllAvailable())
    make_anew(address, filled)
    produce(address, filled, values(60))
    for again in (stream(address, subscribe=filled), stream(address, subscribe=filled)):
        with pytest.raises(DataLoss, match="of a topic that was deleted"):
            again.latestOffset(through(planned), ReadAllAvailable())
        # Spark replays a planned batch with this call
        with pytest.raises(DataLoss, match="of a topic that was deleted"):
            ranges(again, planned, planned)
    lenient = stream(address, subscribe=filled, failOnDataLoss="false")
    end = lenient.latestOffset(through(planned), ReadAllAvailable())
    assert ranges(lenient, planned, end) == [(filled, 0, 0, 30), (filled, 1, 0, 30)]
    assert ranges(lenient, planned, planned) == []


def test_offsets_of_an_older_release_have_no_ids_and_are_read(address: str, filled: str) -> None:
    reader = stream(address, subscribe=filled)
    end = reader.latestOffset({filled: {"0": 2, "1": 3}}, ReadAllAvailable())
    assert without_ids(end) == {filled: {"0": 10, "1": 10}}
    assert ranges(reader, {filled: {"0": 2, "1": 3}}, {filled: {"0": 10, "1": 10}}) == [
        (filled, 0, 2, 10),
        (filled, 1, 3, 10),
    ]


class Checkpoint:
    """The entries that Spark's log has for a stream: the ends of its batches. Several readers may plan the batches, one
    after another.
    """

    def __init__(self, reader: Any) -> None:
        self.offsets = [through(reader.initialOffset())]

    def next_batch(self, reader: Any) -> list[tuple[Any, ...]]:
        """Plan a batch, and return its ranges. Returns an empty list if there is nothing new to read."""
        start = self.offsets[-1]
        end = through(reader.latestOffset(start, reader.getDefaultReadLimit()))
        if end == start:
            return []
        self.offsets.append(end)
        return ranges(reader, start, end)


def lost_entries(address: str, topic: str, lost: int, **options: str) -> tuple[Any, Checkpoint, list[Any]]:
    """Plan five batches of four records, write more records, and remove the last entries of the checkpoint. Returns a
    newly started reader, the checkpoint, and the batches whose entries are lost.
    """
    told = {"subscribe": topic, "startingOffsets": "earliest"} | options
    reader = stream(address, **told)
    checkpoint = Checkpoint(reader)
    batches = []
    for number in range(5):
        produce(address, topic, values(4, 4 * number))
        reader._ends.forget()
        batches.append(checkpoint.next_batch(reader))
    produce(address, topic, values(40, 20))
    del checkpoint.offsets[-lost:]
    return stream(address, **told), checkpoint, batches[-lost:]


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_batches_whose_entries_the_checkpoint_has_lost_are_planned_as_they_were(
    address: str, topic: str, lost: int
) -> None:
    create(address, topic)
    reader, checkpoint, batches = lost_entries(address, topic, lost)
    assert [checkpoint.next_batch(reader) for _ in range(lost)] == batches
    assert checkpoint.next_batch(reader) == [(topic, 0, 10, 30), (topic, 1, 10, 30)]
    assert checkpoint.next_batch(reader) == []
    del checkpoint.offsets[-lost - 1 :]  # a new reader of the same stream must plan the same batch
    reader = stream(address, subscribe=topic)
    assert [checkpoint.next_batch(reader) for _ in range(lost)] == batches


def test_the_last_plan_is_shown_with_where_a_new_checkpoint_begins(address: str, topic: str, tmp_path: Path) -> None:
    create(address, topic)
    _, checkpoint, _ = lost_entries(address, topic, 2)
    (tmp_path / "offsets").mkdir()
    for number, offsets in enumerate(checkpoint.offsets[1:]):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n-\n{json.dumps(offsets)}\n")
    command = [sys.executable, "-m", "oncelog", "pipeline", "state", "plan", "--bootstrap-server", address]
    done = subprocess.run([*command, str(tmp_path), "-o", "plain"], capture_output=True, text=True, check=True)
    assert [line.split("\t")[1:] for line in done.stdout.splitlines()] == [
        [topic, "0", "8", "10"],
        [topic, "1", "8", "10"],
    ]
    assert f'after it: {{"{topic}": {{"0": 10, "1": 10}}}}' in done.stderr
    assert f'before it: {{"{topic}": {{"0": 8, "1": 8}}}}' in done.stderr
    shutil.rmtree(tmp_path / "offsets")
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "oncelog groups list names" in done.stderr


def test_a_batch_that_may_not_be_as_large_any_more_is_planned_anew(address: str, topic: str) -> None:
    """If a batch takes too long, a user can make it smaller: the user removes its checkpoint entry and sets the
    option.
    """
    create(address, topic)
    _, checkpoint, _ = lost_entries(address, topic, 1)
    smaller = stream(address, subscribe=topic, maxOffsetsPerTrigger="2")
    assert checkpoint.next_batch(smaller) == [(topic, 0, 8, 9), (topic, 1, 8, 9)]


def test_a_plan_whose_records_are_gone_is_not_followed(address: str, topic: str) -> None:
    create(address, topic)
    _, checkpoint, _ = lost_entries(address, topic, 1)
    make_anew(address, topic)
    produce(address, topic, values(100))
    lenient = stream(address, subscribe=topic, failOnDataLoss="false")
    assert checkpoint.next_batch(lenient) == [(topic, 0, 0, 50), (topic, 1, 0, 50)]


def test_the_plans_of_two_streams_are_apart(address: str, topic: str) -> None:
    create(address, topic)
    produce(address, topic, values(4))
    first, second = (stream(address, subscribe=topic, startingOffsets="earliest") for _ in range(2))
    Checkpoint(first).next_batch(first)
    produce(address, topic, values(4))
    assert Checkpoint(second).next_batch(second) == [(topic, 0, 0, 4), (topic, 1, 0, 4)]


def test_a_checkpoint_of_an_older_release_gets_an_id_with_its_next_batch(address: str, topic: str) -> None:
    create(address, topic)
    _, checkpoint, _ = lost_entries(address, topic, 2)
    for offsets in checkpoint.offsets:
        offsets.pop("_stream")
    reader = stream(address, subscribe=topic)
    wide = checkpoint.next_batch(reader)
    assert wide == [(topic, 0, 6, 30), (topic, 1, 6, 30)]
    del checkpoint.offsets[-1]
    produce(address, topic, values(4))
    # another stream of the same topics does not have this stream's plan
    assert checkpoint.next_batch(stream(address, subscribe=topic)) != wide


def test_where_the_group_is_refused_batches_continue_with_a_warning(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    monkeypatch.setattr("oncelog.admin.groups.GroupAdmin.alter_offsets", refuse)
    create(address, topic)
    reader, checkpoint, _ = lost_entries(address, topic, 1)
    assert checkpoint.next_batch(reader) == [(topic, 0, 8, 30), (topic, 1, 8, 30)]
    assert [record.message for record in caplog.records if "give the right Read on groups" in record.message]


def make_anew(address: str, topic: str) -> None:
    async def command() -> None:
        async with Admin(address) as admin:
            await admin.delete_topics([topic])
            await admin.create_topics([NewTopic(topic, 2)])

    asyncio.run(command())


def test_a_time_stands_for_an_offset(address: str, topic: str) -> None:
    create(address, topic)
    for number in range(10):
        produce(address, topic, values(2), timestamp_ms=1_000 * (number + 1))
    reader = stream(address, subscribe=topic, startingTimestamp="4500")
    assert reader.initialOffset()[topic] == {"0": 4, "1": 4}
    reader = stream(address, subscribe=topic, startingOffsetsByTimestamp=json.dumps({topic: {"0": 2000, "1": 99999}}))
    with pytest.raises(OptionError, match=r"no record at or after the timestamp in .*1"):
        reader.initialOffset()
    told = {"startingTimestamp": "2000", "endingTimestamp": "4000"}
    partitions = source(address, subscribe=topic, **told).reader(None).partitions()
    assert [tuple(partition.value) for partition in partitions] == [(topic, 0, 1, 3), (topic, 1, 1, 3)]


def test_missing_topics_are_reported(address: str, filled: str) -> None:
    with pytest.raises(NoSuchTopic, match=f"unknown topic {filled}-x: create it first"):
        stream(address, subscribe=f"{filled},{filled}-x").initialOffset()
    with pytest.raises(OptionError, match="for all partitions that are read"):
        stream(address, subscribe=filled, startingOffsets=json.dumps({filled: {"0": 1}})).initialOffset()
    with pytest.raises(OptionError, match="endingOffsets is for batch queries"):
        stream(address, subscribe=filled, endingOffsets="latest")


def test_a_batch_is_bounded_by_about_so_many_bytes(address: str, topic: str) -> None:
    create(address, topic)
    for _ in range(10):  # write separate batches, so that compression and batch headers do not affect the mean size
        produce(address, topic, [b"x" * 1000] * 2)
    reader = stream(address, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="5500")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(5500)
    end = reader.latestOffset(through(reader.initialOffset()), ReadMaxBytes(5500))
    assert sum(end[topic].values()) in (4, 5)


def test_a_task_that_begins_while_its_broker_is_away_waits_for_it(
    broker_factory: BrokerFactory, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader has no cached connection, like a reader in a task that runs in a new process."""
    broker = broker_factory().start()
    create(broker.address, topic)
    produce(broker.address, topic, values(20))
    reader = stream(broker.address, subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    broker.kill()
    rows: list[int] = []

    def task() -> None:
        rows.extend(batch.num_rows for partition in partitions for batch in reader.read(partition))

    running = Thread(target=task)
    running.start()
    while running.is_alive() and "trying again for 120 s" not in caplog.text:
        running.join(0.05)
    assert not rows
    broker.start()
    running.join()
    assert sum(rows) == 20
