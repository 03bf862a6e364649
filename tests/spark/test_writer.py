"""Tests how the sink handles the rows of tasks, without a Spark: the tests call the writers as Spark does."""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)
from streams import committed, committed_values, create, open_transactions

from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.sink import unnamed
from oncelog_pipeline.sink.cluster import KafkaCluster
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.operations import TakenOver
from oncelog_pipeline.sink.state import Batch
from oncelog_pipeline.spark import identity, writers
from oncelog_pipeline.spark.data_source import OncelogDataSource
from oncelog_pipeline.spark.identity import Attempt
from oncelog_pipeline.spark.row_sender import BadRow

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", StringType()),
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
    ]
)
VALUES = StructType([StructField("value", BinaryType())])
ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("headers", pa.list_(HEADER)),
        ("topic", pa.string()),
        ("partition", pa.int32()),
    ]
)


class Spark:
    """Simulates Spark for tasks: it tells them their query, run, batch and attempt."""

    def __init__(self, address: str, topic: str | None) -> None:
        self.options = {"kafka.bootstrap.servers": address} | ({"topic": topic} if topic else {})
        self.query = Query(uuid.uuid4().hex)
        self.run = str(uuid.uuid4())
        self.number = 0
        self.attempt = Attempt(0, 0, 0)

    def writer(self, schema: StructType = VALUES) -> Any:
        """Return a new writer as another process receives it."""
        return pickle.loads(pickle.dumps(OncelogDataSource(dict(self.options)).streamWriter(schema, False)))

    def task(self, partition: int, *batches: pa.RecordBatch, attempt: int = 0, schema: StructType = VALUES) -> Any:
        self.attempt = Attempt(partition, attempt, 10 * partition + attempt)
        return pickle.loads(pickle.dumps(self.writer(schema).write(iter(batches))))


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Spark]]:
    told: list[Spark] = []
    monkeypatch.setattr(writers, "this_attempt", lambda: told[-1].attempt)
    monkeypatch.setattr(writers, "stream_batch", lambda: Batch(told[-1].query, told[-1].run, told[-1].number))
    yield told


@pytest.fixture
def spark_of(patched: list[Spark], address: str) -> Any:
    def make(topic: str | None) -> Spark:
        patched.append(Spark(address, topic))
        return patched[-1]

    return make


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])


def test_a_write_is_invisible_before_the_commit_and_complete_afterwards(
    spark_of: Any, address: str, topic: str
) -> None:
    create(address, topic)
    spark = spark_of(topic)
    messages = [spark.task(0, rows(b"a", b"b"), rows(b"c")), spark.task(1, rows(b"d")), spark.task(2)]
    assert len(open_transactions(address)) == 2
    spark.task(1, rows(b"not this"), attempt=1)  # this is a speculative attempt of the task, whose result Spark drops
    spark.writer().commit(messages, 0)
    assert committed_values(address, topic) == Counter([b"a", b"b", b"c", b"d"])
    spark.run = str(uuid.uuid4())  # the query is started again, and the batch is replayed
    again = [spark.task(0, rows(b"a", b"b", b"c")), spark.task(1, rows(b"d")), spark.task(2)]
    spark.writer().commit(again, 0)
    assert committed_values(address, topic) == Counter([b"a", b"b", b"c", b"d"])


def test_an_abort_leaves_nothing(spark_of: Any, address: str, topic: str) -> None:
    create(address, topic)
    spark = spark_of(topic)
    messages = [spark.task(0, rows(b"a")), None]
    spark.task(1, rows(b"b"))
    spark.writer().abort(messages, 0)
    assert not committed_values(address, topic)
    spark.writer().abort([None, None], 0)
    spark.writer().commit([], 0)


def test_a_write_without_a_name_that_is_retried_is_there_once(
    patched: list[Spark], address: str, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S2: the driver died after it had ended one transaction and before it ended the next. The transactions that the
    dead driver has decided to commit are committed before the next driver writes a row.
    """
    monkeypatch.setattr(unnamed, "LOOK_SECONDS", 0.02)
    create(address, topic)
    patched.append(Spark(address, topic))
    monkeypatch.setattr(writers, "batch_of", lambda write: write.batch)

    def planned(**options: str) -> Any:
        return OncelogDataSource(patched[0].options | options).writer(VALUES, False)

    def messages_of(writer: Any) -> list[Any]:
        messages = []
        for partition in range(3):
            patched[0].attempt = Attempt(partition, 0, partition)
            messages.append(pickle.loads(pickle.dumps(writer)).write(iter([rows(b"%d" % partition)])))
        return messages

    first = planned()
    messages = messages_of(first)
    end = KafkaCluster.end

    async def end_one(cluster: KafkaCluster, transactions: Any, *, commits: bool) -> list[bool]:
        await end(cluster, transactions[:1], commits=commits)
        raise ConnectionError  # stop at this point, as if the driver had died

    with monkeypatch.context() as patch:
        patch.setattr(KafkaCluster, "end", end_one)
        with pytest.raises(ConnectionError):
            first.commit(messages)
    assert len(open_transactions(address)) == 2
    second = planned()
    assert committed_values(address, topic) == Counter([b"0", b"1", b"2"])
    second.commit(messages_of(second))
    assert committed_values(address, topic) == Counter([b"0", b"1", b"2"])
    third = planned()
    # the second write is complete, so a third write of the same rows counts as a separate write
    third.commit(messages_of(third))
    assert committed_values(address, topic) == Counter({b"0": 2, b"1": 2, b"2": 2})
    warned = [record for record in caplog.records if "this write has no writeId" in record.message]
    assert len(warned) == 3
    caplog.clear()
    planned(writeId=f"load-{topic}")
    planned(delivery="at-least-once")
    assert not caplog.records


def test_an_older_run_learns_that_it_was_replaced(spark_of: Any, address: str, topic: str) -> None:
    create(address, topic)
    spark = spark_of(topic)
    older, messages = spark.run, [spark.task(0, rows(b"old"))]
    spark.run = str(uuid.uuid4())
    newer = [spark.task(0, rows(b"new"))]
    with pytest.raises(TakenOver):
        spark.writer().commit(messages, 0)
    spark.writer().commit(newer, 0)
    assert committed_values(address, topic) == Counter([b"new"])
    assert older != spark.run


def test_each_row_goes_to_its_topic_and_partition(spark_of: Any, address: str, topic: str) -> None:
    """The topic column, the partition column, or else the key determines where a row goes; the other rows of an Arrow
    batch all go to one partition.
    """
    other = f"{topic}-b"
    create(address, topic, other)
    spark = spark_of(None)
    table = [
        {"key": b"k", "value": "1", "headers": [{"key": "h", "value": None}], "topic": topic, "partition": 1},
        {"key": b"k", "value": None, "headers": None, "topic": other, "partition": None},
        {"key": b"k", "value": "ü", "headers": [], "topic": other, "partition": None},
        {"key": None, "value": "4", "headers": None, "topic": other, "partition": 0},
    ]
    message = spark.task(0, pa.RecordBatch.from_pylist(table, schema=ARROW), schema=SCHEMA)
    spark.writer(SCHEMA).commit([message], 0)
    (only,) = committed(address, topic)
    assert (only.partition, only.key, only.value, list(only.headers)) == (1, b"k", b"1", [("h", None)])
    found = {record.value: record for record in committed(address, other)}
    assert found.keys() == {None, "ü".encode(), b"4"}
    assert found[None].partition == found["ü".encode()].partition
    assert (found[b"4"].partition, found[b"4"].key, list(found[b"4"].headers)) == (0, None, [])


def test_a_row_without_a_topic_fails_its_task(spark_of: Any, address: str, topic: str) -> None:
    create(address, topic)
    spark = spark_of(None)
    schema = StructType([StructField("value", BinaryType()), StructField("topic", StringType())])
    arrow = pa.schema([("value", pa.binary()), ("topic", pa.string())])
    bad = pa.RecordBatch.from_pylist([{"value": b"1", "topic": topic}, {"value": b"2", "topic": None}], schema=arrow)
    with pytest.raises(BadRow, match='null in the column "topic"'):
        spark.task(0, bad, schema=schema)
    assert not committed_values(address, topic)


def test_tables_without_record_columns_are_refused() -> None:
    def refused(topic: str | None, *fields: StructField) -> str:
        options = {"kafka.bootstrap.servers": "localhost:1"} | ({"topic": topic} if topic else {})
        with pytest.raises(OptionError) as raised:
            OncelogDataSource(options).streamWriter(StructType(list(fields)), False)
        return str(raised.value)

    value = StructField("value", BinaryType())
    assert "'valeu' is none of key, value, headers, topic, partition, timestamp: did you mean 'value'?" in refused(
        "t", StructField("valeu", BinaryType())
    )
    assert "'value' is bigint, and must be string or binary: cast it" in refused("t", StructField("value", LongType()))
    assert 'the column "value" is missing' in refused("t", StructField("key", BinaryType()))
    assert 'set .option("topic", ...)' in refused(None, value)
    assert "'headers' is string, and must be array" in refused("t", value, StructField("headers", StringType()))


def test_inside_foreach_batch_a_write_needs_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    run = str(uuid.uuid4())
    told = {identity.QUERY_ID: "q", identity.BATCH_ID: "7", identity.RUN_ID: run}
    monkeypatch.setattr(identity, "_property", told.get)
    named = identity.batch_of(identity.BatchWrite("w", "own"))
    assert named == Batch(Query("q.w"), run, 7)
    with pytest.raises(OptionError, match="writeId"):
        identity.batch_of(identity.BatchWrite(None, "own"))
    told[identity.RUN_ID] = "a group of the user's"
    with pytest.raises(identity.UnknownQuery, match="setJobGroup"):
        identity.stream_batch()
    told.clear()
    assert identity.batch_of(identity.BatchWrite(None, run)) == Batch(Query(f"batch-{run}"), run, 0)


@pytest.mark.parametrize(
    "told",
    [
        {identity.QUERY_ID: "q"},
        {identity.BATCH_ID: "7"},
        {identity.DESCRIPTION: "counts\nid = 1-2\nrunId = 3-4\nbatch = 7"},
    ],
)
def test_a_pyspark_with_other_names_is_found_out(monkeypatch: pytest.MonkeyPatch, told: dict[str, str]) -> None:
    """A write inside foreachBatch must not be treated as a write outside of a stream."""
    monkeypatch.setattr(identity, "_property", told.get)
    for asked in (identity.stream_batch, lambda: identity.batch_of(identity.BatchWrite("w", "own"))):
        with pytest.raises(identity.UnknownQuery, match=rf"PySpark {pyspark.__version__}\) does not tell"):
            asked()


def test_a_job_with_a_description_is_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_property", {identity.DESCRIPTION: "nightly batch = 7"}.get)
    assert identity.batch_of(identity.BatchWrite("w", "own")).query == Query("w")
    with pytest.raises(identity.UnknownQuery, match="is not supported"):
        identity.stream_batch()
