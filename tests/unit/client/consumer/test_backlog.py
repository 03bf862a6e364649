"""A consumer that works through a backlog of one partition also reads all other partitions (E53)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.fake_group import Coordinator

from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog.consumer.group.interest import RebalanceListener
from oncelog.errors import OffsetOutOfRange
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

BUSY, OTHER = TopicPartition("topic", 0), TopicPartition("topic", 1)
ANSWER = 200
"""The number of records in one response of the fake broker, which are two batches."""

STEPS = {"poll": 20, "poll_columns": 10, "poll_undecoded": 10, "async for": 5 * ANSWER}
"""The greatest number of steps before records of the other partition must be returned, whatever the size of a step."""

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def backlog(fake_broker: Any) -> Any:
    fake_broker.topics["topic"] = 2
    for _ in range(500):
        fake_broker.append(build_batch([Record(n, 1, None, b"busy", []) for n in range(ANSWER // 2)]))
    fake_broker.append(build_batch([Record(0, 1, None, b"other", [])]), "topic", 1)
    return fake_broker


async def handed_out(consumer: Consumer, how: str) -> AsyncIterator[tuple[TopicPartition, int]]:
    """Yield for each step the partition and the number of its records. The simulated application works so long on a
    step that responses arrive in between.
    """
    while True:
        await asyncio.sleep(1)
        if how == "poll":
            for at, records in (await consumer.poll(1_000, max_records=ANSWER // 4)).items():
                yield at, len(records)
        elif how == "poll_columns":
            for at, columns in (await consumer.poll_columns(1_000)).items():
                yield at, sum(len(each.offsets) for each in columns)
        elif how == "poll_undecoded":
            for at, batches in (await consumer.poll_undecoded(1_000)).items():
                yield at, sum(each.batch.records_count for each in batches)
        else:
            for _ in range(ANSWER // 4):
                record = await anext(consumer)
                yield TopicPartition(record.topic, record.partition), 1


@pytest.mark.parametrize("how", ["poll", "poll_columns", "poll_undecoded", "async for"])
@pytest.mark.parametrize("way", ["assign", "seek_to_beginning", "seek_to_committed", "reset", "error"])
async def test_e53_a_backlog_keeps_no_other_partition_waiting(backlog: Any, way: str, how: str) -> None:
    Coordinator(backlog)
    options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False, "max_partition_fetch_bytes": 4_000}
    options["auto_offset_reset"] = "none" if way == "error" else "earliest"
    async with Consumer(backlog.address, **options) as consumer:
        consumer.assign([BUSY] if way == "assign" else [BUSY, OTHER])
        for at in consumer.assignment():
            consumer.seek(at, 0)
        seen = {BUSY} if way != "assign" else {BUSY, OTHER}
        steps = handed_out(consumer, how)
        while BUSY not in seen or OTHER not in seen:  # both fetches have begun
            seen.add((await anext(steps))[0])
        await anext(steps)
        if way == "assign":
            consumer.assign([BUSY, OTHER])
        elif way == "seek_to_beginning":
            consumer.seek_to_beginning(OTHER)
        elif way == "seek_to_committed":
            consumer.seek_to_committed(OTHER, 0)
        else:
            consumer.seek(OTHER, 77)
        for _ in range(STEPS[how]):
            try:
                at, _ = await anext(steps)
            except OffsetOutOfRange:
                assert way == "error"
                return
            if at == OTHER:
                assert way != "error"
                return
        raise AssertionError(f"nothing of the other partition in {STEPS[how]} steps")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_e53_newly_assigned_partitions_are_read_beside_a_backlog(backlog: Any, strategy: str) -> None:
    coordinator = Coordinator(backlog)
    coordinator.assigned = (BUSY,)
    has_both = asyncio.Event()

    class Listener(RebalanceListener):
        async def on_assigned(self, partitions: Any) -> None:
            if OTHER in partitions:
                has_both.set()

    options: dict[str, Any] = {"group_id": "g", "max_partition_fetch_bytes": 4_000, "auto_offset_reset": "earliest"}
    options["partition_assignment_strategy"] = [strategy]
    async with Consumer(backlog.address, **options) as consumer:
        consumer.subscribe(["topic"], listener=Listener())
        steps = handed_out(consumer, "poll")
        assert (await anext(steps))[0] == BUSY
        coordinator.assigned = (BUSY, OTHER)
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        left = STEPS["poll"]
        while left:
            if (await anext(steps))[0] == OTHER:
                return
            left -= has_both.is_set()
        raise AssertionError("nothing of the partition that came with the rebalance")
