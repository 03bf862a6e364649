"""A leader's responses to a follower, and the effects of a follower's fetch, tested over the wire with the real
handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.served import EPOCH, FOLLOWER, LEADER, Client, Served, produce
from tests.support.storage import make_batch

from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.purgatory import NEWS_SECONDS
from oncelog_broker.server.records.fetch import JOINING_PER_STEP
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.records.batch import batches

BOTH = (LEADER, FOLLOWER)
LEADER_EPOCH = 3


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, min_insync_replicas=2)
    made.partitions[0].lead(LEADER_EPOCH, BOTH, BOTH)
    yield made
    made.leave()


def fetch(
    offset: int,
    *,
    replica: int = FOLLOWER,
    epoch: int = EPOCH,
    last_epoch: int = -1,
    leader_epoch: int = LEADER_EPOCH,
    wait_ms: int = 0,
) -> FetchRequest:
    wanted = FetchRequest.FetchTopic.FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch) if replica >= 0 else None,
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[FetchRequest.FetchTopic(topic_id=bytes(16), partitions=[wanted])],
    )


async def ask(client: Client, request: FetchRequest, version: int = 17) -> Any:
    count = len(client.answers())
    client.send(request, api=ApiKey.FETCH, version=version)
    return (await client.answered(count + 1))[count][1]


def only(response: Any) -> Any:
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def plain() -> Any:
    return produce(bytes(make_batch()))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"replica": 9}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ({"replica": LEADER}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ({"epoch": EPOCH - 1}, ErrorCode.STALE_BROKER_EPOCH),
        ({"epoch": EPOCH + 1}, ErrorCode.STALE_BROKER_EPOCH),
    ],
    ids=["no broker of the cluster", "this broker", "a former incarnation", "one that is not known"],
)
async def test_consumers_do_not_see_past_the_high_watermark(
    served: Served, options: dict[str, int], code: ErrorCode
) -> None:
    response = await ask(Client(served), fetch(0, **options))
    assert (response.error_code, response.responses) == (code, [])


async def test_a_fetch_without_the_right_incarnation_is_no_follower_fetch(served: Served) -> None:
    request = fetch(0, replica=-1)
    request.replica_id = FOLLOWER
    response = await ask(Client(served), request, version=14)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_follower_sees_what_consumers_do_not_and_its_next_fetch_commits_it(served: Served) -> None:
    producer, follower, consumer = Client(served), Client(served), Client(served)
    producer.send(plain())
    assert not only(await ask(consumer, fetch(0, replica=-1, leader_epoch=-1))).records
    sent = only(await ask(follower, fetch(0)))
    assert [batch.base_offset for batch in batches(bytes(sent.records))] == [0]
    assert (sent.high_watermark, producer.answers()) == (0, [])
    assert only(await ask(follower, fetch(1, last_epoch=LEADER_EPOCH))).high_watermark == 1
    ((_, response),) = await producer.answered(1)
    assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("leader_epoch", [-1, LEADER_EPOCH - 1, LEADER_EPOCH + 1])
async def test_a_fetch_in_another_leader_epoch_commits_nothing(served: Served, leader_epoch: int) -> None:
    producer = Client(served)
    producer.send(plain())
    answer = only(await ask(Client(served), fetch(1, last_epoch=0, leader_epoch=leader_epoch)))
    assert answer.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert served.partitions[0].high_watermark == 0


async def test_a_diverging_follower_learns_the_divergence_and_does_not_count(served: Served) -> None:
    producer = Client(served)
    producer.send(plain())
    answer = only(await ask(Client(served), fetch(5, last_epoch=LEADER_EPOCH)))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (LEADER_EPOCH, 1)
    assert served.partitions[0].high_watermark == 0


async def test_a_follower_far_behind_learns_the_log_start(served: Served) -> None:
    Client(served).send(*[plain() for _ in range(3)])
    (partition,) = served.partitions
    partition.on_follower_fetch(FOLLOWER, 3)
    partition.log.trimmer.delete_records_before(2)
    answer = only(await ask(Client(served), fetch(0)))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)


async def test_a_waiting_follower_is_answered_as_soon_as_something_is_appended(served: Served) -> None:
    follower = Client(served)
    follower.send(fetch(0, wait_ms=500), api=ApiKey.FETCH, version=17)
    await asyncio.sleep(0)
    assert follower.answers() == []
    Client(served).send(plain())
    ((_, response),) = await follower.answered(1)
    assert len(only(response).records) > 0


async def test_a_waiting_follower_is_told_of_a_higher_high_watermark_soon(served: Served) -> None:
    (partition,) = served.partitions
    partition.lead(LEADER_EPOCH + 1, (*BOTH, 3), (*BOTH, 3))
    Client(served).send(plain())
    follower = Client(served)
    first = fetch(0, leader_epoch=LEADER_EPOCH + 1)
    first.session_epoch = 0
    session = await ask(follower, first)
    assert session.error_code == 0
    second = fetch(1, last_epoch=LEADER_EPOCH + 1, leader_epoch=LEADER_EPOCH + 1, wait_ms=500)
    second.session_id, second.session_epoch = session.session_id, 1
    follower.send(second, api=ApiKey.FETCH, version=17)
    served.deadlines.set.clear()  # the request must be woken by something other than its deadline
    partition.on_follower_fetch(3, 1)
    assert partition.high_watermark == 1
    assert len(follower.answers()) == 1
    served.deadlines.fire()
    _, (_, response) = await follower.answered(2)
    assert only(response).high_watermark == 1


async def test_a_follower_that_is_to_ask_for_more_is_answered_soon(served: Served) -> None:
    """The follower learns of the new leader epoch later, and cannot fetch in that epoch before this fetch has a
    response.
    """
    served.awaits = lambda broker_id: broker_id == FOLLOWER  # type: ignore[method-assign]
    follower = Client(served)
    first = fetch(0)
    first.session_epoch = 0
    session = await ask(follower, first)
    second = fetch(0, wait_ms=500)
    second.session_id, second.session_epoch = session.session_id, 1
    served.deadlines.set.clear()
    follower.send(second, api=ApiKey.FETCH, version=17)
    await asyncio.sleep(0)
    assert NEWS_SECONDS in [seconds for seconds, _ in served.deadlines.set]
    served.deadlines.fire()
    await follower.answered(2)


async def test_a_follower_that_has_caught_up_may_join(served: Served) -> None:
    (partition,) = served.partitions
    partition.append(memoryview(make_batch()), required_acks=1)
    partition.lead(LEADER_EPOCH + 1, (LEADER,), BOTH)
    await ask(Client(served), fetch(0, leader_epoch=LEADER_EPOCH + 1))
    assert served.joining == []
    await ask(Client(served), fetch(1, last_epoch=LEADER_EPOCH, leader_epoch=LEADER_EPOCH + 1))
    assert served.joining == [partition]


async def test_a_follower_that_has_caught_up_in_many_partitions_joins_them_in_steps(tmp_path: Path) -> None:
    """Otherwise a broker that returns would stop the leader's event loop for 10 us for each partition."""
    served = Served(tmp_path, partitions=2 * JOINING_PER_STEP + 1)
    considered: list[list[Partition]] = []
    served.services.isr_keeper = SimpleNamespace(consider=considered.append)
    for partition in served.partitions:
        partition.lead(LEADER_EPOCH, (LEADER,), BOTH)
    request = fetch(0)
    (first,) = request.topics[0].partitions
    request.topics[0].partitions = [replace(first, partition=partition.index) for partition in served.partitions]
    assert (await ask(Client(served), request)).error_code == 0
    assert [len(step) for step in considered] == [JOINING_PER_STEP, JOINING_PER_STEP, 1]
    assert [partition for step in considered for partition in step] == served.partitions
    served.leave()


async def test_time_does_not_run_backwards_after_an_election(served: Served) -> None:
    """Consumers may have read records from the previous leader of which the new leader does not know that they are
    replicated (KIP-207).
    """
    (partition,) = served.partitions
    Client(served).send(plain())
    partition.lead(LEADER_EPOCH + 1, BOTH, BOTH)
    wanted = ListOffsetsRequest.ListOffsetsTopic
    asked = wanted.ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)
    request = ListOffsetsRequest(replica_id=-1, topics=[wanted(name="orders", partitions=[asked])])
    for version, code in ((7, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)):
        client = Client(served)
        client.send(request, api=ApiKey.LIST_OFFSETS, version=version)
        ((_, response),) = client.answers()
        assert response.topics[0].partitions[0].error_code == code
    partition.on_follower_fetch(FOLLOWER, 1)
    client = Client(served)
    client.send(request, api=ApiKey.LIST_OFFSETS, version=7)
    ((_, response),) = client.answers()
    assert response.topics[0].partitions[0].offset == 1


async def delete_first(served: Served, admin: Client) -> None:
    """Send DeleteRecords for offset 1 of two records, which all replicas have; return when the request waits."""
    (partition,) = served.partitions
    partition.append(memoryview(make_batch()), required_acks=1)
    partition.append(memoryview(make_batch()), required_acks=1)
    for follower in partition.followers:
        partition.on_follower_fetch(follower, 2, log_start_offset=0)
    log = partition.log

    def checkpoint() -> None:
        log.state.checkpointed_start = log.log_start_offset

    served.services.logs = SimpleNamespace(checkpoint_log_start_offsets=checkpoint)
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = topic(name="orders", partitions=[topic.DeleteRecordsPartition(partition_index=0, offset=1)])
    admin.send(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), api=ApiKey.DELETE_RECORDS, version=2)
    async with asyncio.timeout(10):
        while not partition.purgatory.deletions:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    assert (partition.log.log_start_offset, admin.answers()) == (1, [])


async def deleted(admin: Client) -> tuple[int, int]:
    """Return the error code and the low watermark of the response."""
    ((_, response),) = await admin.answered(1)
    (result,) = response.topics[0].partitions
    return result.error_code, result.low_watermark


async def test_records_are_deleted_when_the_replicas_in_sync_have_deleted_them(served: Served) -> None:
    (partition,) = served.partitions
    partition.lead(LEADER_EPOCH + 1, BOTH, (*BOTH, 3))  # broker 3 is not in sync
    admin = Client(served)
    await delete_first(served, admin)
    partition.on_follower_fetch(FOLLOWER, 2, log_start_offset=1)
    assert await deleted(admin) == (ErrorCode.NONE, 1)


async def test_deletions_do_not_wait_for_a_replica_outside_the_isr(served: Served) -> None:
    """The replica outside the ISR may rejoin only after it has deleted the same records."""
    (partition,) = served.partitions
    partition.lead(LEADER_EPOCH + 1, (*BOTH, 3), (*BOTH, 3), partition_epoch=5)
    admin = Client(served)
    await delete_first(served, admin)
    partition.on_follower_fetch(FOLLOWER, 2, log_start_offset=1)
    assert admin.answers() == []
    partition.lead(LEADER_EPOCH + 1, BOTH, (*BOTH, 3), partition_epoch=6)
    assert await deleted(admin) == (ErrorCode.NONE, 1)
    assert not partition.on_follower_fetch(3, 2, log_start_offset=0)
    assert partition.on_follower_fetch(3, 2, log_start_offset=1)


async def test_a_deletion_that_takes_too_long_says_how_far_it_is(served: Served) -> None:
    (partition,) = served.partitions
    partition.lead(LEADER_EPOCH + 1, BOTH, BOTH)
    admin = Client(served)
    await delete_first(served, admin)
    served.deadlines.fire()
    assert await deleted(admin) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    partition.on_follower_fetch(FOLLOWER, 2, log_start_offset=1)
    assert partition.purgatory.deletions == []
