"""An admin request gets its response only after this broker's image has the change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.handlers import image_with, topic_id

from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.server.request.wait_for_metadata import (
    lacks_topic,
    shows_topic,
    wait_until_shown,
    wait_until_usable,
)
from oncelog_protocol.errors import ErrorCode, KafkaError


class Cache:
    """Replaces the metadata cache: a request waits until the test shows a matching image. `asked` is set when a request
    waits.
    """

    def __init__(self) -> None:
        self.image = ClusterImage("cluster")
        self.asked = asyncio.Event()
        self._changed = asyncio.Event()

    async def wait_for(self, shows: Callable[[ClusterImage], bool]) -> None:
        while not shows(self.image):
            self._changed.clear()
            self.asked.set()
            await self._changed.wait()

    def show(self, image: ClusterImage) -> None:
        self.image = image
        self._changed.set()


async def test_waiting_ends_with_the_image_that_has_the_change() -> None:
    cache: Any = Cache()
    waiting = asyncio.ensure_future(wait_until_shown(cache, shows_topic("orders", 2), 60_000))
    await cache.asked.wait()
    cache.asked.clear()
    cache.show(image_with("orders", partitions=1))
    await cache.asked.wait()
    assert not waiting.done()
    cache.show(image_with("orders", partitions=2))
    await waiting


@pytest.mark.parametrize("timeout_ms", [1, 0, -5])
async def test_a_change_not_visible_in_time_counts_as_done(timeout_ms: int) -> None:
    with pytest.raises(KafkaError, match="The change is made") as late:
        await wait_until_shown(Cache(), lambda image: False, timeout_ms)  # type: ignore[arg-type]
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_topic_is_usable_once_visible_and_opened_here() -> None:
    opened = asyncio.Event()
    names: list[str] = []

    class Replicas:
        async def until_opened(self, topic: str) -> None:
            names.append(topic)
            await opened.wait()

    cache: Any = Cache()
    cache.show(image_with("orders"))
    waiting = asyncio.ensure_future(wait_until_usable(cache, Replicas(), "orders", 2, 60_000))  # type: ignore[arg-type]
    while not names:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    assert (names, waiting.done()) == (["orders"], False)
    opened.set()
    await waiting


def test_a_topic_is_there_when_each_partition_had_a_leader() -> None:
    led, new = PartitionState((1,), (1,), 1, 0, 0), PartitionState((1,))
    shows = shows_topic("orders", 2)
    for partitions, expected in (({0: led, 1: led}, True), ({0: led, 1: new}, False), ({0: led}, False)):
        image = ClusterImage("c", topics={"orders": Topic("orders", bytes(16), partitions)})
        assert shows(image) is expected
    assert not shows(ClusterImage("c"))


def test_another_topic_of_the_name_is_not_the_one_that_was_deleted() -> None:
    image = image_with("orders")
    assert not lacks_topic("orders", topic_id("orders"))(image)
    assert not lacks_topic("orders", None)(image)
    assert lacks_topic("orders", b"an older orders.")(image)
    assert lacks_topic("returns", None)(image)
