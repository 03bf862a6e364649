"""Batches whose records must be examined first are appended later. These batches keep the order of their request, and
are not appended if the client has disconnected.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.producers import sequenced
from tests.support.served import TOPIC, Client, Served, produce
from tests.support.storage import contents, make_batch

from oncelog_broker.log.config import COMPACT, FULL
from oncelog_broker.log.unpacking import UNPACKED_IN_PLACE
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import SLICE_SECONDS, Slices
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.records.compression import Compression

STEPS = 30


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, partitions=2, record_validation=FULL)
    for partition in made.partitions:
        partition.lead(0, (1,))
    yield made
    made.leave()


def packed(*values: bytes) -> bytes:
    """Return a batch that a worker thread must decompress before the leader examines the records."""
    large = [value + bytes(UNPACKED_IN_PLACE) for value in values]
    return bytes(make_batch(*large, compression=Compression.ZSTD))


def plain(*values: bytes) -> bytes:
    """Return a batch whose records the leader examines immediately."""
    return bytes(make_batch(*values))


def several(*batches: tuple[int, bytes], acks: int = 1, transactional_id: str | None = None) -> ProduceRequest:
    """Return a Produce request with these (partition, batch) pairs."""
    topic = ProduceRequest.TopicProduceData
    data = [topic.PartitionProduceData(index=index, records=records) for index, records in batches]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[topic(name=TOPIC, partition_data=data)],
    )


def values(served: Served, partition: int = 0) -> list[bytes]:
    """Return the first byte of each record's value."""
    return [(value or b"")[:1] for _, value in contents(served.partitions[partition].log)]


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not happened():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)


async def test_the_batches_of_a_partition_are_appended_in_the_order_of_the_request(served: Served) -> None:
    client = Client(served)
    client.send(several((0, packed(b"a")), (1, plain(b"x")), (0, plain(b"b")), (0, packed(b"c")), (0, plain(b"d"))))
    assert values(served) == []
    assert values(served, 1) == [b"x"], "another partition does not wait"
    ((_, response),) = await client.answered(1)
    answers = response.responses[0].partition_responses
    assert [(answer.index, answer.base_offset) for answer in answers] == [(0, 0), (1, 0), (0, 1), (0, 2), (0, 3)]
    assert values(served) == [b"a", b"b", b"c", b"d"]


async def test_a_batch_that_is_refused_after_its_walk_leaves_those_behind_it(served: Served) -> None:
    client = Client(served)
    wrong = bytes(make_batch(b"b", key=None, compression=Compression.ZSTD))
    for partition in served.partitions:
        partition.log.update_config(replace(partition.log.config, cleanup_policy=COMPACT))
    client.send(several((0, packed(b"a")), (0, wrong), (0, plain(b"c"))))
    ((_, response),) = await client.answered(1)
    answers = response.responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [0, ErrorCode.INVALID_RECORD, 0]
    assert values(served) == [b"a", b"c"]


async def test_records_are_walked_again_where_the_topic_asks_for_more_meanwhile(served: Served) -> None:
    client, log = Client(served), served.partitions[0].log
    large = bytes(UNPACKED_IN_PLACE)
    client.send(produce(bytes(make_batch(large, key=None, compression=Compression.ZSTD))))
    log.update_config(replace(log.config, cleanup_policy=COMPACT))
    ((_, response),) = await client.answered(1)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
    assert values(served) == []


@pytest.mark.parametrize("acks", [0, 1])
async def test_records_are_walked_to_the_end_although_the_client_may_disconnect(
    served: Served, acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a producer with acks=0 may disconnect early; the batch of any other disconnected client is not appended."""
    clock = served.clock
    walked: list[int] = []

    def long_walk(records: Any) -> Steps[None]:
        for step in range(STEPS):
            clock.advance_ms(int(SLICE_SECONDS * 1000))
            walked.append(step)
            yield None

    log = served.partitions[0].log
    monkeypatch.setattr(type(log), "records_check", lambda _, records: long_walk(records))
    client = Client(served)
    client.send(produce(plain(b"a"), acks=acks))
    client.connection.connection_lost(None)
    assert len(walked) < STEPS // 2
    if acks == 0:
        await until(lambda: log.log_end_offset == 1)
    else:
        for _ in range(60):
            await asyncio.sleep(0)
        assert (len(walked) < STEPS // 2, log.log_end_offset) == (True, 0)


def _wrong_steps(clock: ManualClock) -> Steps[None]:
    clock.advance_ms(10)
    yield None
    raise RuntimeError("for this test")


async def _wrong_change() -> None:
    await asyncio.sleep(0)
    raise RuntimeError("for this test")


@pytest.mark.parametrize("is_heard", [True, False])
@pytest.mark.parametrize(
    "begin",
    [
        lambda clock, tasks: Slices(clock, tasks).run(_wrong_steps(clock), must_finish=True),
        lambda clock, tasks: tasks.answer("a change", _wrong_change()),
    ],
)
async def test_a_failure_in_work_finished_after_a_disconnect_is_logged_once(
    caplog: pytest.LogCaptureFixture, begin: Any, is_heard: bool
) -> None:
    """The request that waits gets the exception; if no request waits, the exception is logged."""
    answer = begin(ManualClock(), Tasks())
    assert isinstance(answer, asyncio.Future)
    with caplog.at_level(logging.ERROR):
        if is_heard:
            with pytest.raises(RuntimeError, match="for this test"):
                await answer
        else:
            answer.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
    assert len(caplog.records) == (0 if is_heard else 1)


async def test_a_refused_request_is_freed_with_its_answer(served: Served) -> None:
    """The garbage collector skips frozen objects, so a request of many megabytes in a reference cycle would otherwise
    never be freed.
    """
    client, missing = Client(served), 9
    wrong, cut = bytes(sequenced(7, 5)), packed(b"a")[:-1]
    gc.collect()
    gc.disable()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        client.send(several((missing, plain(b"a")), (missing, plain(b"b"))))
        client.send(several((0, wrong), (0, plain(b"a")[:-1])))
        client.send(produce(cut, acks=1))
        client.send(several((0, packed(b"a")), (0, cut)))
        await client.answered(4)
        await asyncio.sleep(0)
        gc.collect()
        kept = [thing for thing in gc.garbage if type(thing).__module__.endswith("messages.produce")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert kept == []
