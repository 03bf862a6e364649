"""`oncelog bench` counts only the records that the log had when the command started."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog import Consumer, Producer, TopicPartition
from oncelog.cli.bench_loads import consume
from oncelog.cli.bench_report import Measured

PLACE = TopicPartition("topic", 0)


async def test_records_of_other_producers_are_not_counted(fake_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log had three records at the start of the command, and has five when the command reads it."""
    async with Producer(fake_broker.address) as producer:
        await (await producer.send_columns("topic", 0, [b"12345"] * 5))

    async def ends(consumer: Consumer, partitions: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 3)

    monkeypatch.setattr(Consumer, "end_offsets", ends)
    measured = Measured("records", "polled")
    await consume(fake_broker.address, [PLACE], None, measured, {"auto_offset_reset": "earliest"})
    assert (measured.count, measured.size_bytes) == (3, 15)
