"""Produce with acks=all; the test simulates the in-sync follower: which requests wait, which do not, and what ends the
wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.producers import sequenced
from tests.support.served import FOLLOWER, LEADER, Client, Served, produce
from tests.support.storage import make_batch

from oncelog_broker.server.net.answer_queue import MAX_OUTSTANDING_ANSWERS
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest

BOTH = (LEADER, FOLLOWER)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, partitions=2, min_insync_replicas=2)
    for partition in made.partitions:
        partition.lead(0, BOTH, BOTH)
    yield made
    made.leave()


def outcome(response: Any) -> tuple[int, int]:
    """Return (error code, base offset) of the only partition in a Produce response."""
    partition = response.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def plain(acks: int = -1, index: int = 0) -> Any:
    return produce(bytes(make_batch()), acks=acks, index=index)


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_acks_all_waits_for_the_follower_and_acks_1_does_not(served: Served) -> None:
    client, (partition, _) = Client(served), served.partitions
    client.send(plain())
    await some_turns()
    assert partition.log.log_end_offset == 1
    assert (client.answers(), partition.high_watermark) == ([], 0)
    partition.on_follower_fetch(FOLLOWER, 1)
    assert [outcome(response) for _, response in await client.answered(1)] == [(0, 0)]
    assert partition.high_watermark == 1
    other = Client(served)
    other.send(plain(acks=1))
    assert [outcome(response) for _, response in other.answers()] == [(0, 1)]


async def test_waits_of_pipelined_requests_overlap_while_appends_stay_in_order(served: Served) -> None:
    client, (first, second) = Client(served), served.partitions
    client.send(plain(), plain(index=1), plain(), plain(acks=1))
    assert (first.log.log_end_offset, second.log.log_end_offset) == (3, 1), "nothing waits to be appended"
    second.on_follower_fetch(FOLLOWER, 1)
    await some_turns()
    assert client.answers() == [], "the first is not answered yet"
    first.on_follower_fetch(FOLLOWER, 1)
    assert [number for number, _ in await client.answered(2)] == [0, 1]
    first.on_follower_fetch(FOLLOWER, 3)
    answers = await client.answered(4)
    assert [(number, *outcome(response)) for number, response in answers] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 1),
        (3, 0, 2),
    ]


async def test_another_connection_is_not_held_up_by_one_that_waits(served: Served) -> None:
    waiting, other = Client(served), Client(served)
    waiting.send(plain())
    wanted = ListOffsetsRequest.ListOffsetsTopic
    asked = wanted.ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)
    request = ListOffsetsRequest(replica_id=-1, topics=[wanted(name="orders", partitions=[asked])])
    other.send(request, api=ApiKey.LIST_OFFSETS, version=7)
    ((_, response),) = other.answers()
    assert response.topics[0].partitions[0].offset == 0, "the high watermark"


async def test_a_bounded_number_of_acks_all_requests_waits(served: Served) -> None:
    client, (partition, _) = Client(served), served.partitions
    client.send(*[plain() for _ in range(MAX_OUTSTANDING_ANSWERS + 5)])
    assert partition.log.log_end_offset == MAX_OUTSTANDING_ANSWERS
    partition.on_follower_fetch(FOLLOWER, MAX_OUTSTANDING_ANSWERS)
    await client.answered(MAX_OUTSTANDING_ANSWERS)
    assert partition.log.log_end_offset == MAX_OUTSTANDING_ANSWERS + 5


async def test_an_append_that_is_not_replicated_in_time_times_out(served: Served) -> None:
    client, (partition, _) = Client(served), served.partitions
    client.send(plain())
    assert [seconds for seconds, _ in served.deadlines.set] == [1.0]
    served.deadlines.fire()
    ((_, response),) = await client.answered(1)
    assert outcome(response)[0] == ErrorCode.REQUEST_TIMED_OUT
    assert partition.log.log_end_offset == 1
    partition.on_follower_fetch(FOLLOWER, 1)
    await some_turns()
    assert len(client.answers()) == 1, "answered once"


async def test_too_few_in_sync_replicas_are_reported_before_and_after_the_append(served: Served) -> None:
    client, (partition, _) = Client(served), served.partitions
    client.send(plain())
    partition.lead(0, (LEADER,), BOTH)
    ((_, response),) = await client.answered(1)
    assert outcome(response)[0] == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert partition.high_watermark == 0, "no high watermark while too few are in sync (KIP-966)"
    client.send(plain(), plain(acks=1))
    (_, refused), (_, taken) = (await client.answered(3))[1:]
    assert outcome(refused)[0] == ErrorCode.NOT_ENOUGH_REPLICAS
    assert outcome(taken) == (0, 1)
    partition.lead(0, BOTH, BOTH)
    partition.on_follower_fetch(FOLLOWER, 2)
    assert partition.high_watermark == 2


async def test_no_more_replicas_are_needed_than_there_are(tmp_path: Path) -> None:
    """A topic with one replica and min.insync.replicas=2 accepts acks=all, as in Kafka 4.1."""
    alone = Served(tmp_path, min_insync_replicas=2)
    alone.partitions[0].lead(0, (LEADER,), (LEADER,))
    client = Client(alone)
    client.send(plain())
    assert [outcome(response) for _, response in client.answers()] == [(0, 0)]
    alone.leave()


async def test_an_isr_that_shrinks_to_enough_replicas_commits_what_waited(tmp_path: Path) -> None:
    served = Served(tmp_path)
    (partition,) = served.partitions
    partition.lead(0, BOTH, BOTH)
    client = Client(served)
    client.send(plain())
    assert client.answers() == []
    partition.lead(0, (LEADER,), BOTH)
    assert [outcome(response) for _, response in await client.answered(1)] == [(0, 0)]
    served.leave()


async def test_a_leader_that_resigns_answers_everybody_in_order(served: Served) -> None:
    client, (partition, _) = Client(served), served.partitions
    client.send(plain(), plain())
    partition.resign()
    answers = await client.answered(2)
    assert [(number, outcome(response)[0]) for number, response in answers] == [
        (0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]


async def test_no_request_begins_to_wait_at_a_partition_without_leadership(served: Served) -> None:
    (partition, _) = served.partitions
    partition.append(memoryview(make_batch()), required_acks=-1)
    partition.resign()
    assert partition.committed(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_follower_positions_of_another_epoch_do_not_count(served: Served) -> None:
    (partition, _) = served.partitions
    client = Client(served)
    client.send(plain(), plain())
    partition.on_follower_fetch(FOLLOWER, 1)
    partition.lead(1, BOTH, BOTH)
    assert partition.high_watermark == 1, "never back"
    client.send(plain())
    await some_turns()
    assert len(client.answers()) == 1
    partition.on_follower_fetch(FOLLOWER, 3)
    assert len(await client.answered(3)) == 3


async def test_b2_a_duplicate_is_acknowledged_when_it_is_replicated_and_not_before(served: Served) -> None:
    client, (partition, _) = Client(served), served.partitions
    batch = bytes(sequenced(7, 0))
    client.send(produce(batch), produce(batch))
    await some_turns()
    assert (partition.log.log_end_offset, client.answers()) == (1, [])
    partition.on_follower_fetch(FOLLOWER, 1)
    assert [outcome(response) for _, response in await client.answered(2)] == [(0, 0), (0, 0)]


async def test_a_disconnected_client_leaves_its_records_and_no_waiting_request(served: Served) -> None:
    client, (partition, _) = Client(served), served.partitions
    client.send(plain(), plain())
    client.connection.connection_lost(None)
    await some_turns()
    assert all(answer.done() for *_, answer in partition.purgatory.appends)
    partition.on_follower_fetch(FOLLOWER, 2)
    assert partition.high_watermark == 2
    assert client.answers() == []


async def test_a_waiting_fetch_wakes_with_the_high_watermark(served: Served) -> None:
    reader, writer, (partition, _) = Client(served), Client(served), served.partitions
    topic = FetchRequest.FetchTopic
    asked = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, max_bytes=10_000, topics=[topic(topic="orders", partitions=[asked])]
    )
    reader.send(request, api=ApiKey.FETCH, version=12)
    writer.send(plain())
    await some_turns()
    assert reader.answers() == [], "appended, but not to be read yet"
    partition.on_follower_fetch(FOLLOWER, 1)
    ((_, response),) = await reader.answered(1)
    assert response.responses[0].partitions[0].high_watermark == 1
    assert response.responses[0].partitions[0].records


async def test_a_request_behind_a_long_poll_is_held_back(served: Served) -> None:
    client, (partition, _) = Client(served), served.partitions
    topic = FetchRequest.FetchTopic
    asked = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, max_bytes=10_000, topics=[topic(topic="orders", partitions=[asked])]
    )
    client.send(request, api=ApiKey.FETCH, version=12)
    client.send(plain(acks=1))
    assert partition.log.log_end_offset == 0
    served.deadlines.fire()
    assert [number for number, _ in await client.answered(2)] == [0, 1]


async def turns_until_answered(client: Client) -> int:
    """Return the number of loop turns until the first response is sent; each turn adds to the latency of every
    replicated record.
    """
    for turns in range(20):
        if client.has_answers(1):
            return turns
        await asyncio.sleep(0)
    raise AssertionError("not answered")


async def test_a_produce_waiting_for_a_replica_is_answered_in_the_second_loop_turn(served: Served) -> None:
    client, (partition, _) = Client(served), served.partitions
    for offset in range(3):  # the first request imports the handler
        client.send(plain())
        await some_turns()
        client.wire.bytes = b""
        partition.on_follower_fetch(FOLLOWER, offset + 1)
        turns = await turns_until_answered(client)
    assert turns <= 2


async def test_a_fetch_waiting_for_records_is_answered_in_the_second_loop_turn(served: Served) -> None:
    reader, writer, (partition, _) = Client(served), Client(served), served.partitions
    partition.lead(1, (LEADER,))
    for offset in range(3):
        topic = FetchRequest.FetchTopic
        wanted = topic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
        request = FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[topic(topic="orders", partitions=[wanted])])
        reader.send(request, api=ApiKey.FETCH, version=12)
        await some_turns()
        assert not reader.wire.bytes
        writer.send(plain(acks=1))
        turns = await turns_until_answered(reader)
        reader.wire.bytes = b""
    assert turns <= 2
