"""What the source says to Spark, without a Spark: where batches begin and end, and which ranges tasks read."""

from __future__ import annotations

import asyncio
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from streams import create, produce, values

from oncelog import Admin, NewTopic
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
    """Ten records in each of two partitions."""
    create(address, topic)
    produce(address, topic, values(20))
    return topic


def without_ids(offsets: dict[str, Any]) -> dict[str, Any]:
    """What each offset tells beside the ids of its topics, of which each is 16 bytes."""
    assert all(len(each) == 22 for each in offsets["_ids"].values())
    return {key: value for key, value in offsets.items() if key != "_ids"}


def through(offsets: Any) -> Any:
    """As it comes back from Spark's log."""
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


def test_available_now_reads_what_was_there(address: str, filled: str) -> None:
    reader = stream(address, subscribe=filled, startingOffsets="earliest", minOffsetsPerTrigger="1000")
    reader.prepareForTriggerAvailableNow()
    produce(address, filled, values(4))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end[filled] == {"0": 10, "1": 10}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_an_idle_query_learns_of_a_record_from_the_broker(
    address: str, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the clock: no look is due before the test would have failed."""
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
    """A query would feed itself."""
    create(address, f"{filled}-state")
    told = {"subscribePattern": f"{filled}.*", "startingOffsets": "earliest"}
    assert set(stream(address, **told).initialOffset()) == {filled, f"{filled}-state", "_ids", "_initial"}
    assert set(stream(address, **told, stateTopic=f"{filled}-state").initialOffset()) == {filled, "_ids", "_initial"}


def test_offsets_that_are_gone(address: str, filled: str) -> None:
    reader = stream(address, subscribe=filled)
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        reader.latestOffset({filled: {"0": 10, "1": 99}}, ReadAllAvailable())


def test_a_topic_made_anew_is_never_read_on_at_the_old_offset(address: str, filled: str) -> None:
    """It has more records than the one before: by its offsets alone nobody could tell."""
    reader = stream(address, subscribe=filled, startingOffsets="earliest")
    planned = reader.latestOffset(through(reader.initialOffset()), ReadAllAvailable())
    make_anew(address, filled)
    produce(address, filled, values(60))
    for again in (stream(address, subscribe=filled), stream(address, subscribe=filled)):
        with pytest.raises(DataLoss, match="of a topic that was deleted"):
            again.latestOffset(through(planned), ReadAllAvailable())
        with pytest.raises(DataLoss, match="of a topic that was deleted"):  # a batch that is replayed
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


def test_what_is_not_there_is_told(address: str, filled: str) -> None:
    with pytest.raises(NoSuchTopic, match=f"there is no {filled}-x: create it first"):
        stream(address, subscribe=f"{filled},{filled}-x").initialOffset()
    with pytest.raises(OptionError, match="for all partitions that are read"):
        stream(address, subscribe=filled, startingOffsets=json.dumps({filled: {"0": 1}})).initialOffset()
    with pytest.raises(OptionError, match="endingOffsets is for batch queries"):
        stream(address, subscribe=filled, endingOffsets="latest")


def test_a_batch_is_bounded_by_about_so_many_bytes(address: str, topic: str) -> None:
    create(address, topic)
    for _ in range(10):  # batches of their own, so that compression and headers of batches do not blur the mean
        produce(address, topic, [b"x" * 1000] * 2)
    reader = stream(address, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="5500")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(5500)
    end = reader.latestOffset(through(reader.initialOffset()), ReadMaxBytes(5500))
    assert sum(end[topic].values()) in (4, 5)
