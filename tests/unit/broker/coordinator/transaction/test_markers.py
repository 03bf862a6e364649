"""Writing the markers of a transaction: on and on until all are written, unless another takes over (S39, S40)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncelog_broker.coordinator.transaction import markers as module
from oncelog_broker.coordinator.transaction.markers import Fenced, Marker, MarkerAppender, write_all
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.runtime.slices import SLICE_SECONDS, Pauses
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

MARKER = Marker(ProducerIdAndEpoch(7, 1), True, 3, 0)
PARTITIONS = [TopicPartition("t", index) for index in range(120)]


class Logs:
    """Answers to markers, by partition: the first of them each time, the last one for ever."""

    def __init__(self, **answers: list[ErrorCode]) -> None:
        self.answers = {int(name[1:]): codes for name, codes in answers.items()}
        self.written: list[int] = []

    def append(self, marker: Marker, where: TopicPartition) -> ErrorCode:
        assert marker is MARKER
        codes = self.answers.get(where.partition, [])
        code = codes.pop(0) if codes else ErrorCode.NONE
        if code is ErrorCode.NONE:
            self.written.append(where.partition)
        return code


def at_once() -> Pauses:
    """No slice ever ends."""
    return Pauses(lambda: 0.0, lambda: pytest.fail("nothing took any time"))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0)


async def test_s39_each_partition_gets_one_marker() -> None:
    logs = Logs()
    await write_all(logs.append, MARKER, PARTITIONS, lambda: True, at_once())
    assert logs.written == list(range(120))


async def test_e7_a_partition_that_fails_is_tried_again() -> None:
    failures = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]
    logs = Logs(p1=failures)
    await write_all(logs.append, MARKER, PARTITIONS[:3], lambda: True, at_once())
    assert logs.written == [0, 2, 1]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_s39_a_partition_that_needs_none_is_done_with(code: ErrorCode) -> None:
    logs = Logs(p1=[code])
    await write_all(logs.append, MARKER, PARTITIONS[:3], lambda: True, at_once())
    assert logs.written == [0, 2]


async def test_s40_a_later_coordinator_takes_over() -> None:
    logs = Logs(p1=[ErrorCode.TRANSACTION_COORDINATOR_FENCED])
    with pytest.raises(Fenced):
        await write_all(logs.append, MARKER, PARTITIONS[:3], lambda: True, at_once())
    assert logs.written == [0]


async def test_s40_who_coordinates_no_more_writes_no_more() -> None:
    logs = Logs()
    with pytest.raises(Fenced):
        await write_all(logs.append, MARKER, PARTITIONS, lambda: not logs.written, at_once())
    assert logs.written == [0]


async def test_many_markers_let_other_work_in() -> None:
    """Some, or few where each of them takes long: fifty in a slice here."""
    logs, seen = Logs(), []

    async def turn() -> None:
        await asyncio.sleep(0)

    pauses = Pauses(lambda: len(logs.written) * SLICE_SECONDS / 50, turn)
    task = asyncio.create_task(write_all(logs.append, MARKER, PARTITIONS, lambda: True, pauses))
    while not task.done():
        await asyncio.sleep(0)
        seen.append(len(logs.written))
    assert seen[:3] == [50, 100, 120]


async def test_a_log_that_raises_what_nobody_thought_of_keeps_no_marker_from_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def leader(self, topic: str, index: int) -> Any:
            raise ValueError("I/O operation on closed file")

    broken = MarkerAppender(Broken(), None)  # type: ignore[arg-type]
    assert broken.append(MARKER, PARTITIONS[0]) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "closed file" in caplog.text


class LateLogs:
    """Markers whose answers the test gives: late, never, twice."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, asyncio.Future[ErrorCode]]] = []

    def append(self, marker: Marker, where: TopicPartition) -> asyncio.Future[ErrorCode]:
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.asked.append((where.partition, answer))
        return answer

    async def asked_for(self, count: int) -> list[int]:
        """The partitions asked so far, when there were so many."""
        async with asyncio.timeout(10):
            while len(self.asked) < count:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        return [partition for partition, _ in self.asked]


async def test_s39_late_answers_are_waited_for_together() -> None:
    logs = LateLogs()
    task = asyncio.create_task(write_all(logs.append, MARKER, PARTITIONS[:3], lambda: True, at_once()))
    assert await logs.asked_for(3) == [0, 1, 2]
    for _, answer in reversed(logs.asked):
        assert not task.done()
        answer.set_result(ErrorCode.NONE)
        await asyncio.sleep(0)
    await task
    assert len(logs.asked) == 3


async def test_e7_a_late_refusal_and_a_lost_answer_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.01)
    logs = LateLogs()
    task = asyncio.create_task(write_all(logs.append, MARKER, PARTITIONS[:3], lambda: True, at_once()))
    await logs.asked_for(3)
    logs.asked[0][1].set_result(ErrorCode.NONE)
    logs.asked[1][1].set_result(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert sorted((await logs.asked_for(5))[3:]) == [1, 2]
    assert logs.asked[2][1].cancelled(), "nobody waits for the lost one"
    for _, answer in logs.asked[3:]:
        answer.set_result(ErrorCode.NONE)
    await task


async def test_s40_a_late_answer_may_say_that_another_has_taken_over() -> None:
    logs = LateLogs()
    task = asyncio.create_task(write_all(logs.append, MARKER, PARTITIONS[:2], lambda: True, at_once()))
    await logs.asked_for(2)
    logs.asked[0][1].set_result(ErrorCode.NONE)
    logs.asked[1][1].set_result(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    with pytest.raises(Fenced):
        await task
