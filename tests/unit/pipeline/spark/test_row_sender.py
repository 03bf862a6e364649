"""Rows without a key are spread evenly over the partitions, and in the same way in each attempt and replay."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa

from oncelog.producer.packable_rows import PackableRows
from oncelog_pipeline.arrow.packed_rows import PackedRows
from oncelog_pipeline.sink.digest import NOTHING, DigestedRows
from oncelog_pipeline.spark.row_sender import (
    MANY_BYTES,
    MANY_ROWS,
    BadRow,
    RowSender,
    first_partition,
    gathered,
)

PARTITIONS = 4


class Sent:
    """A sender that counts the rows of each partition."""

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()
        self.digest = NOTHING
        self.digest_of_parts = NOTHING

    def count(self, topic: str, rows: DigestedRows) -> None:
        self.digest = self.digest.plus(rows.digest(topic))

    async def partition_count(self, topic: str) -> int:
        return PARTITIONS

    async def send_packed(self, topic: str, partition: int, rows: PackableRows) -> None:
        assert isinstance(rows, PackedRows)
        self.rows[partition] += len(rows)
        self.digest_of_parts = self.digest_of_parts.plus(rows.digest(topic))


def sent(
    task: int, batch: int, rows: int = 50, *, key: bytes | None = None, ignores_keys: bool = False
) -> Counter[int]:
    columns: dict[str, Any] = {"value": pa.array([b"x"] * rows, pa.binary())}
    if key is not None:
        columns["key"] = pa.array([key] * rows, pa.binary())
    found = Sent()
    table = iter([pa.record_batch(columns)])
    asyncio.run(RowSender(found, "t", task, batch, ignores_keys=ignores_keys).send_all(table))
    return found.rows


def test_small_batches_of_one_task_reach_every_partition_evenly() -> None:
    total: Counter[int] = Counter()
    for batch in range(200):
        total += sent(0, batch)
    assert set(total) == set(range(PARTITIONS))
    assert max(total.values()) <= 1.2 * min(total.values())


@pytest.mark.parametrize("step", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("count", [2, 3, 4, 12, 16])
def test_batches_that_come_at_any_step_are_even(step: int, count: int) -> None:
    """A stateful query has empty batches between other batches."""
    total = Counter(first_partition(0, step * number, count) for number in range(100 * count))
    assert set(total) == set(range(count))
    assert max(total.values()) <= 1.2 * min(total.values())


def test_the_tasks_of_a_batch_begin_at_partitions_one_after_the_other() -> None:
    for batch in range(20):
        assert {first_partition(task, batch, PARTITIONS) for task in range(PARTITIONS)} == set(range(PARTITIONS))


def test_an_attempt_and_a_replay_go_where_the_first_one_went() -> None:
    assert sent(3, 17) == sent(3, 17)


def test_keys_decide_unless_they_are_ignored() -> None:
    assert len({tuple(sent(0, batch, key=b"k")) for batch in range(8)}) == 1
    assert len({tuple(sent(0, batch, key=b"k", ignores_keys=True)) for batch in range(8)}) > 1


def test_a_row_without_a_topic_is_refused_before_any_is_sent() -> None:
    found = Sent()
    topics = pa.array(["t", None], pa.string())
    table = pa.record_batch({"value": pa.array([b"v", b"w"], pa.binary()), "topic": topics})
    with pytest.raises(BadRow, match='a null in the column "topic"'):
        asyncio.run(RowSender(found, None, 0, 0).send_all(iter([table])))
    assert not found.rows


def table_of(first: int, rows: int, size: int = 8, **columns: bytes) -> pa.RecordBatch:
    """Values that begin with the numbers from `first` on, of `size` bytes; other columns have one value."""
    values = pa.array([b"%08d" % number + b"x" * (size - 8) for number in range(first, first + rows)], pa.binary())
    return pa.record_batch({"value": values} | {name: pa.array([text] * rows) for name, text in columns.items()})


def test_each_row_is_counted_once_in_the_digest_and_sent_once() -> None:
    rows = 400
    keys = pa.array([b"%d" % number for number in range(rows)], pa.binary())
    table = pa.record_batch({"value": table_of(0, rows)["value"], "key": keys, "topic": pa.array(["a", "b"] * 200)})
    found = Sent()
    asyncio.run(RowSender(found, None, 0, 0).send_all(iter([table.slice(0, 150), table.slice(150)])))
    assert found.digest == found.digest_of_parts
    assert found.digest.rows == found.rows.total() == rows


@pytest.mark.parametrize("column", ["key", "partition", "topic"])
def test_small_batches_are_joined_where_their_rows_are_divided(column: str) -> None:
    parts = [table_of(first, 10, **{column: b"1"}) for first in range(0, 100, 10)]
    (joined,) = gathered(iter(parts))
    assert isinstance(joined, pa.Table)
    assert joined.equals(pa.Table.from_batches([table_of(0, 100, **{column: b"1"})]))


def test_batches_of_rows_that_are_not_divided_stay_as_they_are() -> None:
    parts = [table_of(first, 10) for first in range(0, 100, 10)]
    assert list(gathered(iter(parts))) == parts


def test_batches_are_joined_up_to_a_number_of_rows_and_of_bytes() -> None:
    many = [table_of(first, 1000, key=b"k") for first in range(0, 3 * MANY_ROWS, 1000)]
    assert [each.num_rows for each in gathered(iter(many))] == [MANY_ROWS] * 3
    wide = [table_of(first, 10, MANY_BYTES // 40, key=b"k") for first in range(0, 120, 10)]
    assert [each.num_rows for each in gathered(iter(wide))] == [40, 40, 40]


def test_a_large_batch_stays_alone_between_small_ones_and_in_order() -> None:
    parts = [table_of(0, 1, key=b"k"), table_of(1, MANY_ROWS, key=b"k"), table_of(MANY_ROWS + 1, 1, key=b"k")]
    assert list(gathered(iter(parts))) == parts


def test_empty_batches_are_left_out() -> None:
    empty, one = table_of(0, 0, key=b"k"), table_of(0, 1, key=b"k")
    assert list(gathered(iter([empty, one, empty]))) == [one]
    assert list(gathered(iter([table_of(0, 0)]))) == []
