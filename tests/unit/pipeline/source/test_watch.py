"""A watch on the ends of partitions: when it wakes a waiting query, and which requests it sends to brokers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.virtual_time import run_virtually

from oncelog import TopicPartition
from oncelog.cluster import Partition, Topic
from oncelog.config import AdminConfig, load
from oncelog.errors import ConnectionFailed, ErrorCode
from oncelog_pipeline.source.offsets import Offsets
from oncelog_pipeline.source.watch import AGAIN_SECONDS, PAUSE_SECONDS, WAIT_MS, EndWatch
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse, IsolationLevel

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on a loop whose clock jumps ahead when all tasks wait."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        run_virtually(test(*arguments, **named))

    return run


class Brokers:
    """Replaces `Admin`: two brokers, each of which leads one partition of topic a."""

    def __init__(self) -> None:
        self.config = load(AdminConfig, "a:1", {})
        self.asked: list[tuple[int, FetchRequest]] = []
        self.answers: dict[int, asyncio.Queue[FetchResponse | Exception]] = {1: asyncio.Queue(), 2: asyncio.Queue()}
        self.made = 0
        self.closed = 0

    async def make(self) -> Any:
        self.made += 1
        return self

    async def describe_topics(self, names: Any) -> dict[str, Topic]:
        assert set(names) <= {"a"}
        return {"a": Topic("a", b"1" * 16, partitions={0: Partition(0, 1), 1: Partition(1, 2)})}

    async def send_to(self, node_id: int, request: FetchRequest) -> FetchResponse:
        self.asked.append((node_id, request))
        answer = await self.answers[node_id].get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed += 1


def answer(records: bytes | None = None, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse
    data = topic.PartitionData(partition_index=0, error_code=error, high_watermark=1, records=records)
    return FetchResponse(responses=[topic(topic="a", partitions=[data])])


def watching() -> tuple[Brokers, EndWatch, Offsets]:
    brokers = Brokers()
    return brokers, EndWatch(brokers.make, IsolationLevel.READ_COMMITTED), {A: 5, B: 7}


@in_virtual_time
async def test_each_leader_is_asked_for_what_is_beyond_the_ends() -> None:
    brokers, watch, ends = watching()
    assert not await watch.wait(ends, 1)
    asked = dict(brokers.asked)
    assert len(brokers.asked) == 2
    for node_id, (index, offset) in {1: (0, 5), 2: (1, 7)}.items():
        (part,) = asked[node_id].topics[0].partitions
        assert (part.partition, part.fetch_offset) == (index, offset)
        assert asked[node_id].isolation_level == IsolationLevel.READ_COMMITTED
        assert asked[node_id].min_bytes == 1


@in_virtual_time
async def test_the_watch_waits_up_to_its_limit_and_continues_with_the_same_request() -> None:
    brokers, watch, ends = watching()
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(3):
        assert not await watch.wait(ends, 0.1)
    assert loop.time() - started == pytest.approx(0.3)
    assert watch.is_on
    assert len(brokers.asked) == 2
    assert brokers.made == 1


@pytest.mark.parametrize("told", [answer(b"batch"), answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)])
@in_virtual_time
async def test_an_answer_wakes_at_once(told: FetchResponse) -> None:
    brokers, watch, ends = watching()
    loop = asyncio.get_running_loop()
    loop.call_later(0.03, brokers.answers[2].put_nowait, told)
    started = loop.time()
    assert await watch.wait(ends, 10)
    assert loop.time() - started == pytest.approx(0.03)


@in_virtual_time
async def test_an_answer_between_two_calls_is_not_missed() -> None:
    brokers, watch, ends = watching()
    assert not await watch.wait(ends, 0.1)
    brokers.answers[1].put_nowait(answer(b"batch"))
    await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert await watch.wait(ends, 10)
    assert loop.time() == pytest.approx(started)


@in_virtual_time
async def test_unchanged_ends_wake_the_query_once() -> None:
    """A response that changes no end must not make the caller poll without a pause."""
    brokers, watch, ends = watching()
    brokers.answers[1].put_nowait(answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert await watch.wait(ends, 10)
    assert not watch.is_on
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert not await watch.wait(dict(ends), AGAIN_SECONDS - 1)
    assert loop.time() - started == pytest.approx(AGAIN_SECONDS - 1)
    assert len(brokers.asked) == 2
    await asyncio.sleep(1)
    assert not await watch.wait(ends, 1)
    assert watch.is_on


@in_virtual_time
async def test_changed_ends_are_watched_at_once() -> None:
    brokers, watch, ends = watching()
    brokers.answers[1].put_nowait(answer(b"batch"))
    assert await watch.wait(ends, 10)
    assert not await watch.wait(ends | {A: 6}, 1)
    assert watch.is_on
    assert len(brokers.asked) == 4


@in_virtual_time
async def test_a_broker_that_has_nothing_is_asked_again() -> None:
    brokers, watch, ends = watching()
    loop = asyncio.get_running_loop()
    loop.call_later(WAIT_MS / 1000, brokers.answers[1].put_nowait, answer())
    assert not await watch.wait(ends, WAIT_MS / 1000 + 0.01)
    assert [node_id for node_id, _ in brokers.asked] == [1, 2, 1]


@in_virtual_time
async def test_a_broker_that_does_not_wait_is_not_asked_in_a_loop() -> None:
    brokers, watch, ends = watching()
    for _ in range(100):
        brokers.answers[1].put_nowait(answer())
    assert not await watch.wait(ends, 10 * PAUSE_SECONDS)
    assert len(brokers.asked) <= 12


@in_virtual_time
async def test_the_watch_waits_plainly_if_brokers_cannot_be_asked() -> None:
    brokers, watch, ends = watching()
    brokers.answers[1].put_nowait(ConnectionFailed("away"))
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert not await watch.wait(ends, 10)
    assert loop.time() - started == pytest.approx(10)
    assert not watch.is_on
    assert brokers.closed == 1
    assert not await watch.wait(ends, 1)
    assert watch.is_on
    assert brokers.made == 2


@in_virtual_time
async def test_the_watch_waits_plainly_without_partitions() -> None:
    """The query's topic pattern has not matched any topic so far."""
    _, watch, _ = watching()
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert not await watch.wait({}, 10)
    assert loop.time() - started == pytest.approx(10)
    assert not watch.is_on


@in_virtual_time
async def test_a_failing_watch_fails_no_query(caplog: pytest.LogCaptureFixture) -> None:
    brokers, watch, ends = watching()
    brokers.answers[1].put_nowait(RuntimeError("a mistake of ours"))
    assert not await watch.wait(ends, 10)
    assert not watch.is_on
    assert "a mistake of ours" in caplog.text
    assert not await watch.wait(ends, 1)
    assert watch.is_on


@in_virtual_time
async def test_closing_the_watch_releases_its_connections() -> None:
    brokers, watch, ends = watching()
    assert not await watch.wait(ends, 1)
    await watch.close()
    assert brokers.closed == 1
    assert not watch.is_on
