"""Tests what every supported version of PySpark must do: `make test-sparks` runs this module with each version.

No test in this module limits a batch, and AvailableNow may run a single batch, because Spark before 4.2 supports no
more in a Python source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driver_process import Application, dies, succeeds
from dying import has_died
from foreign_clients import eventually
from pyspark.errors import StreamingQueryException
from streams import Stream, again_if_late, committed, committed_values, create, produce, seen_values, values

from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.source.data_loss import DataLoss
from oncelog_pipeline.spark import identity
from oncelog_pipeline.spark.data_source import OncelogDataSource
from oncelog_pipeline.spark.older_reader import OlderStreamReader, UnknownPosition
from oncelog_pipeline.spark.pyspark_api import HAS_READ_LIMITS

ROWS = 300
WAIT_SECONDS = 90.0


@pytest.fixture
def stream(address: str, topic: str, checkpoint: str) -> Stream:
    """A stream of 300 records, which three tasks read and write."""
    create(address, topic, f"{topic}-out")
    produce(address, topic, values(ROWS))
    return Stream(address, topic, f"{topic}-out", checkpoint, {"minPartitions": "3"})


def dying(stream: Stream, died: Path, **options: str) -> Stream:
    """Return the stream with the options that make a process die in the sink."""
    return replace(stream, writes={"dieFile": str(died)} | options)


def run_until_all_is_read(spark: Any, stream: Stream) -> None:
    """Run the query twice, because a start that completes an older batch may end after that batch."""
    stream.run(spark)
    stream.run(spark)


@contextmanager
def going_on(spark: Any, stream: Stream) -> Iterator[Callable[[int], None]]:
    """Run the query continuously; yield a function that waits for this many rows in its target."""
    query = stream.start(spark, trigger={"processingTime": "0 seconds"})

    def until(rows: int) -> None:
        def look() -> bool:
            assert query.isActive or query.exception() is None, query.exception()
            return sum(seen_values(stream.address, stream.target).values()) >= rows

        eventually(look, f"{rows} rows are written", WAIT_SECONDS)

    try:
        yield until
    finally:
        query.stop()


def test_a_query_goes_on_and_is_started_again(spark: Any, stream: Stream) -> None:
    """The query reads one batch after another, and after a restart also the records that arrived in between; keys are
    copied.
    """
    with going_on(spark, stream) as until:
        until(ROWS)
        produce(stream.address, stream.source, values(10, ROWS))
        until(ROWS + 10)
    produce(stream.address, stream.source, values(10, ROWS + 10))
    with going_on(spark, stream) as until:
        until(ROWS + 20)
        produce(stream.address, stream.source, values(10, ROWS + 20))
        until(ROWS + 30)
    records = committed(stream.address, stream.target)
    assert Counter(record.value for record in records) == Counter(values(ROWS + 30))
    assert {record.key for record in records} == {b"key %d" % number for number in range(17)}


def test_available_now_reads_the_existing_records(spark: Any, stream: Stream) -> None:
    stream.run(spark)
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))
    produce(stream.address, stream.source, values(10, ROWS))
    stream.run(spark)
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS + 10))


def test_a_killed_task_loses_nothing(spark: Any, stream: Stream, tmp_path: Path) -> None:
    dying(stream, tmp_path / "died", dieAt="rows flushed", diePart="0").run(spark)
    assert has_died(tmp_path / "died") == 1
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))


@pytest.mark.parametrize(("point", "seen"), [("decision", 0), ("decided", ROWS)])
def test_a_killed_committer_loses_nothing(spark: Any, stream: Stream, tmp_path: Path, point: str, seen: int) -> None:
    """The process that commits is killed, and the query fails; after a restart the query repeats the same batch, then
    reads newer records.
    """
    with pytest.raises(StreamingQueryException):
        dying(stream, tmp_path / "died", dieAt=point).run(spark)
    assert has_died(tmp_path / "died") == 1
    assert sum(committed_values(stream.address, stream.target).values()) == seen
    produce(stream.address, stream.source, values(10, ROWS))
    run_until_all_is_read(spark, stream)
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS + 10))


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_a_killed_driver_loses_nothing(stream: Stream, tmp_path: Path) -> None:
    dies(Application(dying(stream, tmp_path / "died", dieAt="decided", dieHow="driver")))
    assert has_died(tmp_path / "died") == 1
    succeeds(Application(stream))
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))


def test_a_first_batch_is_replayed_from_where_it_began(spark: Any, stream: Stream, tmp_path: Path) -> None:
    """A query that begins at "latest" fails in its first batch; after a restart it reads the records that arrived in
    between.
    """
    latest = replace(stream, reads={"startingOffsets": "latest"})
    with pytest.raises(Exception, match=r"before the rows"):
        dying(latest, tmp_path / "died", dieAt="before the rows", dieHow="raise", dieTimes="99").run(spark)
    produce(stream.address, stream.source, values(5, ROWS))
    run_until_all_is_read(spark, latest)
    assert committed_values(stream.address, stream.target) == Counter(values(5, ROWS))


def test_a_topic_that_comes_later_is_read_from_its_beginning(spark: Any, stream: Stream) -> None:
    pattern = replace(stream, reads={"subscribePattern": f"{stream.source}(-later)?"})
    pattern.run(spark)
    create(stream.address, f"{stream.source}-later")
    produce(stream.address, f"{stream.source}-later", values(10, ROWS))
    pattern.run(spark)
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS + 10))


def test_a_table_is_written_and_read(spark: Any, address: str, topic: str) -> None:
    create(address, topic)
    servers = {"kafka.bootstrap.servers": address}
    table = spark.range(100).selectExpr("cast(id as string) as value", "cast(id % 7 as string) as key")
    for _ in range(2):
        writer = table.write.format("oncelog").options(**servers, topic=topic, writeId=topic).mode("append")
        again_if_late(writer.save)
    read = spark.read.format("oncelog").options(**servers, subscribe=topic).load()
    found = again_if_late(lambda: read.selectExpr("cast(value as string) as value").collect())
    assert Counter(row.value for row in found) == Counter(map(str, range(100)))


def test_sql_reads_a_topic(spark: Any, stream: Stream) -> None:
    options = f"`kafka.bootstrap.servers` '{stream.address}', subscribe '{stream.source}'"
    spark.sql(f"create or replace temporary view found using oncelog options ({options})")
    (row,) = again_if_late(spark.sql("select count(*) as rows from found where partition = 1").collect)
    assert row.rows == ROWS // 2


def test_foreach_batch_writes_once(spark: Any, stream: Stream) -> None:
    """Spark reports the batch and the query, and describes the job as the job of a stream."""
    described: list[str] = []

    def write(table: Any, number: int) -> None:
        described.append(spark.sparkContext.getLocalProperty(identity.DESCRIPTION))
        options = {"kafka.bootstrap.servers": stream.address, "topic": stream.target, "writeId": "only"}
        table.select("key", "value").write.format("oncelog").options(**options).mode("append").save()

    def run() -> None:
        reads = {"kafka.bootstrap.servers": stream.address, "subscribe": stream.source, "startingOffsets": "earliest"}
        table = spark.readStream.format("oncelog").options(**reads).load()
        query = table.writeStream.foreachBatch(write).option("checkpointLocation", stream.checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    again_if_late(run)
    produce(stream.address, stream.source, values(10, ROWS))
    again_if_late(run)
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS + 10))
    assert all(identity.OF_STREAM.search(each) for each in described)


def test_windows_with_a_watermark_are_written(spark: Any, stream: Stream) -> None:
    """Each record is one second later in event time; a minute's count appears after the watermark has passed that
    minute.
    """
    counted = replace(stream, sums=True)
    with going_on(spark, counted) as until:
        until(3)
        produce(stream.address, stream.source, values(120, ROWS))
        until(5)
    # The records are the seconds 0 to 419. The watermark is 60 s behind second 419, so minutes 0 to 4 have ended.
    assert committed_values(stream.address, stream.target) == Counter(b"%d: 60" % minute for minute in range(5))


# --- the calls that PySpark 4.0 and 4.1 make, without a running Spark


def older(address: str, topic: str, **options: str) -> OlderStreamReader:
    given = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"} | options
    made: Any = OncelogDataSource(given).streamReader(None)
    return OlderStreamReader(made._options)


def ranges(reader: OlderStreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    return [tuple(each.value[1:]) for each in reader.partitions(start, end)]


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_limits_are_refused_before_4_2(address: str, topic: str, option: str) -> None:
    with pytest.raises(OptionError, match=rf"{option} needs PySpark 4\.2 or newer; this is "):
        older(address, topic, **{option: "100"})


@pytest.mark.parametrize(("where", "first"), [("earliest", [(0, 0, 10), (1, 0, 10)]), ("latest", [])])
def test_a_new_query_begins_where_its_options_say(
    address: str, topic: str, where: str, first: list[tuple[int, int, int]]
) -> None:
    """The query begins at the offsets of the first `latestOffset` call, although Spark requests the beginning only
    after this call.
    """
    create(address, topic)
    produce(address, topic, values(20))
    reader = older(address, topic, startingOffsets=where)
    end = reader.latestOffset()
    produce(address, topic, values(20))
    start = reader.initialOffset()
    assert ranges(reader, start, end) == first
    reader._ends.forget()
    assert ranges(reader, end, reader.latestOffset()) == [(0, 10, 20), (1, 10, 20)]


def test_a_continued_query_gets_its_position(address: str, topic: str) -> None:
    """Spark first plans an empty batch, which begins and ends at the end of its log."""
    create(address, topic)
    produce(address, topic, values(20))
    position = older(address, topic).latestOffset()
    produce(address, topic, values(20))
    reader = older(address, topic)
    assert ranges(reader, position, position) == []
    end = reader.latestOffset()
    assert "_from" not in end
    assert ranges(reader, position, end) == [(0, 10, 20), (1, 10, 20)]


def test_another_order_of_calls_is_refused_before_anything_is_read(address: str, topic: str) -> None:
    create(address, topic)
    produce(address, topic, values(20))
    position = older(address, topic).latestOffset()
    reader = older(address, topic)
    end = reader.latestOffset()
    for start in (position, end):
        with pytest.raises(UnknownPosition, match="nothing was read"):
            reader.partitions(start, end)


def test_a_deleted_position_is_reported(address: str, topic: str) -> None:
    create(address, topic)
    produce(address, topic, values(20))
    position = older(address, topic).latestOffset()
    reader = older(address, topic)
    reader.partitions(position, position)
    reader._position = position | {topic: {"0": 10, "1": 99}}
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        reader.latestOffset()


def test_this_spark_has_limits_from_4_2_on() -> None:
    import pyspark

    major, minor = map(int, pyspark.__version__.split(".")[:2])
    assert HAS_READ_LIMITS is ((major, minor) >= (4, 2))
