"""Rows without a key are spread evenly over the partitions, and in the same way in each attempt and replay."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa

from oncelog_pipeline.sink.digest import DigestedRows
from oncelog_pipeline.spark.row_sender import BadRow, RowSender, first_partition

PARTITIONS = 4


class Sent:
    """A sender that counts the rows of each partition."""

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()

    async def partition_count(self, topic: str) -> int:
        return PARTITIONS

    async def send_packed(self, topic: str, partition: int, rows: DigestedRows) -> None:
        self.rows[partition] += len(rows)


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
