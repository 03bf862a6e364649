"""Each row goes to the partition that it names; without one, to the partition of its key; without a key, to the sticky
partition. Rows keep their order.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.pipeline.arrow_rows import Given, arrow_batch

from oncelog.producer.partitioner import partition_for_key
from oncelog_pipeline.arrow.record_columns import record_columns
from oncelog_pipeline.arrow.splitting import NoTopic, by_partition, by_topic, partitions
from oncelog_pipeline.sink.digest import digest_sum

STICKY = 1
KEY = st.none() | st.binary(max_size=6)
PARTITION = st.none() | st.integers(0, 4) | st.sampled_from([-1, 70_000])
ROW = st.tuples(
    st.none() | st.binary(max_size=3),
    KEY,
    st.lists(st.tuples(st.just("h"), st.binary(max_size=1)), max_size=1),
    st.integers(0, 50),
    st.sampled_from(["orders", "bills", "calls"]),
    PARTITION,
).map(lambda fields: Given(*fields))
ROWS = st.lists(ROW, min_size=1, max_size=40)


def plainly(rows: list[Given], count: int, *, columns: list[str], ignores_keys: bool) -> dict[Any, list[Given]]:
    found = defaultdict(list)
    for row in rows:
        partition = row.partition if "partition" in columns else None
        if partition is None:
            has_key = "key" in columns and not ignores_keys and row.key is not None
            partition = partition_for_key(row.key, count) if has_key else STICKY
        found[row.topic, partition].append(row)
    return dict(found)


@given(
    ROWS,
    st.integers(1, 20),
    st.sets(st.sampled_from(["key", "partition"])).map(sorted),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(0, 40),
)
@examples(200)
def test_each_row_goes_where_it_would_alone_and_in_order(
    rows: list[Given], count: int, columns: list[str], ignores_keys: bool, is_large: bool, cut: int | None
) -> None:
    """`cut` is the number of rows of the first of two Arrow batches; None means a single Arrow batch."""
    batch = arrow_batch(rows, [*columns, "topic", "headers", "timestamp"], is_large=is_large, skipped=1)
    table = record_columns(batch if cut is None else pa.Table.from_batches([batch.slice(0, cut), batch.slice(cut)]))
    found: dict[Any, list[Given]] = {}
    for topic, part in by_topic(table):
        whole, of_partitions = by_partition(part, partitions(part, count, STICKY, ignores_keys=ignores_keys))
        assert whole.digest(topic) == digest_sum(packed.digest(topic) for _, packed in of_partitions)
        for partition, packed in of_partitions:
            assert (topic, partition) not in found
            records = [packed.row(index, 0) for index in range(len(packed))]
            found[topic, partition] = [Given(value, key, headers, time) for time, key, value, headers in records]  # type: ignore[arg-type]
    expected = {
        where: [
            Given(row.value, row.key if "key" in columns else None, list(row.headers) or (), row.timestamp_ms)
            for row in part
        ]
        for where, part in plainly(rows, count, columns=columns, ignores_keys=ignores_keys).items()
    }
    assert found == expected


def test_a_row_without_a_topic_is_refused() -> None:
    rows = [Given(b"v"), Given(b"w", topic=None)]  # type: ignore[arg-type]
    with pytest.raises(NoTopic, match="row 1"):
        list(by_topic(record_columns(arrow_batch(rows, ["topic"]))))


def test_partitions_above_any_small_number_stay_in_order() -> None:
    rows = [Given(b"%d" % number, partition=70_000 + number % 3) for number in range(100)]
    table = record_columns(arrow_batch(rows, ["partition"]))
    found = dict(by_partition(table, partitions(table, 5, STICKY, ignores_keys=False))[1])
    assert sorted(found) == [70_000, 70_001, 70_002]
    assert [found[70_001].row(index, 0)[2] for index in range(33)] == [b"%d" % n for n in range(1, 100, 3)]


def test_partitions_that_are_alike_in_their_lower_half_are_told_apart() -> None:
    rows = [Given(b"%d" % number, partition=5 + (number % 2 << 16)) for number in range(6)]
    table = record_columns(arrow_batch(rows, ["partition"]))
    found = dict(by_partition(table, partitions(table, 5, STICKY, ignores_keys=False))[1])
    assert {partition: len(part) for partition, part in found.items()} == {5: 3, 65_541: 3}
