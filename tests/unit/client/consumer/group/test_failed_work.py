"""Leaving `async with` by an exception commits only the records that the application has processed (S89)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from tests.support.fake_group import PLACES, Coordinator
from tests.support.group_consumers import Listener, consumer_of

from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

pytestmark = pytest.mark.virtual_time

FIRST = PLACES[0]


class Failed(Exception):
    """Raised by an application that fails to process a record."""


@pytest.fixture(autouse=True)
def records(fake_broker: Any, coordinator: Coordinator) -> None:
    for _ in range(2):
        fake_broker.append(build_batch([Record(n, 1, None, b"v", []) for n in range(5)]))


async def poll_some(consumer: Consumer, count: int) -> list[int]:
    while not (polled := await consumer.poll(1_000, count)):
        pass
    return [record.offset for records in polled.values() for record in records]


@pytest.mark.parametrize("failing", [0, 1, 4, 5, 6, 9])
async def test_s89_the_record_whose_work_has_failed_is_read_again(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], failing: int
) -> None:
    """The failed record may be at the beginning, in the middle or at the end of a batch or response."""
    with pytest.raises(Failed):
        async with consumer_of(fake_broker, fast) as consumer:
            consumer.subscribe(["topic"])
            async for record in consumer:
                if record.offset == failing:
                    raise Failed
    assert coordinator.committed[FIRST] == failing


@pytest.mark.parametrize("error", [Failed, asyncio.CancelledError, GeneratorExit])
async def test_s89_the_records_of_the_last_poll_are_read_again(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], error: type[BaseException]
) -> None:
    with pytest.raises(error):
        async with consumer_of(fake_broker, fast) as consumer:
            consumer.subscribe(["topic"])
            assert await poll_some(consumer, 3) == [0, 1, 2]
            assert await poll_some(consumer, 4) == [3, 4, 5, 6]
            raise error
    assert coordinator.committed[FIRST] == 3


async def test_s89_columns_are_read_again_as_well(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    with pytest.raises(Failed):
        async with consumer_of(fake_broker, fast) as consumer:
            consumer.subscribe(["topic"])
            assert await poll_some(consumer, 3) == [0, 1, 2]
            while not await consumer.poll_columns(1_000):
                pass
            raise Failed
    assert coordinator.committed[FIRST] == 3


async def test_s89_a_seek_since_then_does_not_count(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    with pytest.raises(Failed):
        async with consumer_of(fake_broker, fast) as consumer:
            consumer.subscribe(["topic"])
            assert await poll_some(consumer, 3) == [0, 1, 2]
            assert await poll_some(consumer, 1) == [3]
            consumer.seek(FIRST, 9)
            raise Failed
    assert coordinator.committed[FIRST] == 3


@pytest.mark.parametrize("is_automatic", [True, False])
@pytest.mark.parametrize("how", ["poll", "async for"])
async def test_s89_offsets_committed_by_hand_stand(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], how: str, is_automatic: bool
) -> None:
    """The committed offsets remain even if the listener commits again during the revocation."""

    class Committing(Listener):
        async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await consumer.commit()

    with pytest.raises(Failed):
        async with consumer_of(fake_broker, fast, enable_auto_commit=is_automatic) as consumer:
            consumer.subscribe(["topic"], listener=Committing())
            if how == "poll":
                assert await poll_some(consumer, 6) == [0, 1, 2, 3, 4, 5]
                await consumer.commit({FIRST: 4})
                raise Failed
            async for record in consumer:
                if record.offset == 3:
                    await consumer.commit()  # record 3 counts as processed
                    raise Failed
    assert coordinator.committed[FIRST] == 4


async def test_s89_records_count_as_processed_once_the_next_poll_waits(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    with pytest.raises(asyncio.CancelledError):
        async with consumer_of(fake_broker, fast) as consumer:
            consumer.subscribe(["topic"])
            while (await poll_some(consumer, 10))[-1] < 9:
                pass
            polling = asyncio.ensure_future(consumer.poll(60_000))
            await asyncio.sleep(0.1)
            polling.cancel()
            await polling
    assert coordinator.committed[FIRST] == 10


async def test_s89_leaving_the_block_without_error_marks_everything_processed(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"])
        async for record in consumer:
            if record.offset == 3:
                break
    assert coordinator.committed[FIRST] == 4
