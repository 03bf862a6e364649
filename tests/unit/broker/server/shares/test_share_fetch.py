"""ShareFetch: share sessions, acquired records, waiting, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.share_world import GROUP, TOPIC_ID, Member, ShareWorld, turns

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.runtime.answers import settled
from oncelog_broker.security.authorizer import rules
from oncelog_broker.sharing.share_sessions import MAX_PARTITIONS, ShareSessions
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.share_fetch import CLOSE_SESSION, AcknowledgeType, AcquireMode, ShareFetchRequest
from oncelog_protocol.records.batch import ATTRIBUTES_LOW_BYTE_AT, CONTROL_BIT, batches
from oncelog_protocol.records.record import read_records

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


def values(response: Any) -> list[bytes | None]:
    return [
        record.value
        for topic in response.responses
        for partition in topic.partitions
        for batch in batches(bytes(partition.records))
        for record in read_records(batch)
    ]


async def test_whole_batches_are_sent_of_what_was_acquired(world: ShareWorld) -> None:
    world.append(b"a", b"b")
    world.append(b"c")
    response = await world.member().fetch()
    assert response.acquisition_lock_timeout_ms == 30_000
    assert values(response) == [b"a", b"b", b"c"]
    (partition,) = response.responses[0].partitions
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in partition.acquired_records] == [
        (0, 2, 1)
    ]


async def test_another_member_gets_what_is_left_and_only_that_is_sent(world: ShareWorld) -> None:
    for value in (b"a", b"b", b"c"):
        world.append(value)
    first, second = world.member("m1"), world.member("m2")
    assert await first.acquired(max_records=1) == [(0, 0, 1)]
    response = await second.fetch()
    assert values(response) == [b"b", b"c"]
    assert await world.member("m3").acquired() == []


async def test_an_exact_limit(world: ShareWorld) -> None:
    world.append(b"a", b"b", b"c")
    member = world.member()
    assert await member.acquired(max_records=2, share_acquire_mode=AcquireMode.RECORD_LIMIT) == [(0, 1, 1)]
    assert await member.acquired(max_records=2) == [(2, 2, 1)]


async def test_the_limit_of_records_holds_for_all_partitions_together(world: ShareWorld) -> None:
    for index in (0, 1):
        world.append(b"a", index=index)
        world.append(b"b", index=index)
    member = world.member()
    assert len(await member.acquired(partitions=(0, 1), max_records=2)) == 1
    assert len(await member.acquired(max_records=2)) == 1, "the other partition has its turn"


async def test_acknowledgements_come_first(world: ShareWorld) -> None:
    world.append(b"a", b"b")
    member = world.member()
    await member.fetch()
    world.append(b"c")
    response = await member.fetch(acks={0: [(0, 1, ACCEPT)]})
    (partition,) = response.responses[0].partitions
    assert (partition.acknowledge_error_code, values(response)) == (ErrorCode.NONE, [b"c"])
    state = world.calls.machine.states[world.key()]
    assert (state.start_offset, state.batches) == (2, ())


async def test_errors_of_acknowledgements_stand_beside_records(world: ShareWorld) -> None:
    world.append(b"a")
    member = world.member()
    await member.fetch()
    world.append(b"b")
    response = await member.fetch(acks={0: [(0, 1, ACCEPT)]})
    (partition,) = response.responses[0].partitions
    assert (partition.error_code, partition.acknowledge_error_code) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    assert values(response) == [b"b"]


async def test_a_fetch_waits_for_records(world: ShareWorld) -> None:
    member = world.member()
    waiting = member.start(wait_ms=500)
    await turns()
    assert not waiting.done()
    world.append(b"a")
    assert values(await waiting) == [b"a"]


async def test_a_fetch_waits_for_so_many_bytes(world: ShareWorld) -> None:
    member = world.member()
    world.append(b"a" * 50)
    waiting = member.start(wait_ms=500, min_bytes=200)
    await turns()
    assert not waiting.done()
    assert world.shares.loaded(world.key()).share.has_acquired is False, "it may be another's"  # type: ignore[union-attr]
    world.append(b"b" * 50)
    assert len(values(await waiting)) == 2


async def test_a_fetch_that_waits_gets_what_another_member_gives_back(world: ShareWorld) -> None:
    world.append(b"a")
    first, second = world.member("m1"), world.member("m2")
    await first.fetch()
    waiting = second.start(wait_ms=500)
    await turns()
    await first.acknowledge((0, 0, RELEASE))
    assert values(await waiting) == [b"a"]


async def test_a_fetch_that_waits_gets_records_whose_lock_runs_out(world: ShareWorld) -> None:
    world.append(b"a")
    first, second = world.member("m1"), world.member("m2")
    await first.fetch()
    waiting = second.start(wait_ms=60_000)
    await turns()
    world.advance(30.0)
    assert values(await waiting) == [b"a"]
    assert await first.accept(0, 0) is ErrorCode.INVALID_RECORD_STATE


async def test_a_fetch_ends_in_time_without_records(world: ShareWorld) -> None:
    member = world.member()
    await member.fetch()
    waiting = member.start(wait_ms=500)
    await turns()
    world.advance(0.5)
    response = await waiting
    assert (response.error_code, response.responses) == (ErrorCode.NONE, [])


async def test_q6_a_fetch_that_waits_learns_of_the_new_leader_at_once(world: ShareWorld) -> None:
    waiting = world.member().start(wait_ms=500)
    await turns()
    world.resign()
    response = await waiting
    (partition,) = response.responses[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_another_leader_is_named(world: ShareWorld) -> None:
    world.resign()
    response = await world.member().fetch()
    (partition,) = response.responses[0].partitions
    assert (partition.error_code, partition.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [2]


async def test_sessions(world: ShareWorld) -> None:
    member = world.member()
    assert (await member.fetch(epoch=3)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    await member.fetch()
    assert (await member.fetch(epoch=7)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await member.fetch()).error_code == ErrorCode.NONE
    wrong = await world.member("m2").fetch(acks={0: [(0, 0, ACCEPT)]})
    assert wrong.error_code == ErrorCode.INVALID_REQUEST


async def test_a_partition_that_is_forgotten_is_read_no_more(world: ShareWorld) -> None:
    member = world.member()
    await member.fetch()
    world.append(b"a")
    forgotten = ShareFetchRequest.ForgottenTopic(topic_id=TOPIC_ID, partitions=[0])
    assert await member.acquired(forgotten_topics_data=[forgotten]) == []
    assert await member.acquired(partitions=()) == []
    assert await member.acquired(partitions=(0,)) == [(0, 0, 1)]


async def test_a_session_that_is_closed_keeps_what_it_said_and_gives_the_rest_back(world: ShareWorld) -> None:
    world.append(b"a", b"b")
    member = world.member()
    await member.fetch()
    response = await member.fetch(epoch=CLOSE_SESSION, acks={0: [(0, 0, ACCEPT)]})
    assert response.responses[0].partitions[0].acknowledge_error_code == ErrorCode.NONE
    assert (await member.fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert await world.member("m2").acquired() == [(1, 1, 2)]


async def test_q5_a_lost_connection_gives_records_back_unless_the_member_is_there_again(world: ShareWorld) -> None:
    world.append(b"a")
    old = world.member()
    await old.fetch()
    new = world.member()
    await new.fetch()
    old.disconnect()
    assert await world.member("m2").acquired() == []
    new.disconnect()
    assert await world.member("m2").acquired() == [(0, 0, 2)]


async def test_there_are_only_so_many_sessions_and_the_refusal_takes_its_time(world: ShareWorld) -> None:
    world.shares.sessions = ShareSessions(0)
    waiting = world.member().start(wait_ms=500)
    await turns()
    assert not waiting.done()
    world.advance(0.5)
    assert (await waiting).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


async def test_a_renewal_fetches_nothing(world: ShareWorld) -> None:
    world.append(b"a")
    member = world.member()
    await member.fetch()
    world.append(b"b")
    world.advance(20.0)
    nothing = {"max_records": 0, "min_bytes": 0, "max_bytes": 0, "is_renew_ack": True}
    response = await member.fetch(acks={0: [(0, 0, RENEW)]}, **nothing)
    assert values(response) == []
    world.advance(20.0)
    assert await member.accept(0, 0) is ErrorCode.NONE
    wrong = await member.fetch(is_renew_ack=True)
    assert wrong.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("limit", ["max_records", "max_bytes"])
async def test_a_request_whose_limit_is_0_only_acknowledges(world: ShareWorld, limit: str) -> None:
    world.append(b"a")
    member = world.member()
    await member.fetch()
    world.append(b"b")
    response = await member.fetch(acks={0: [(0, 0, ACCEPT)]}, **{limit: 0})
    (partition,) = response.responses[0].partitions
    assert (partition.acknowledge_error_code, values(response)) == (ErrorCode.NONE, [])
    assert values(await member.fetch()) == [b"b"]


async def test_an_acquire_mode_that_does_not_exist_is_refused(world: ShareWorld) -> None:
    world.append(b"a")
    assert (await world.member("m1").fetch(share_acquire_mode=2)).error_code == ErrorCode.INVALID_REQUEST
    assert values(await world.member("m2").fetch()) == [b"a"]


async def test_records_of_transactions(world: ShareWorld) -> None:
    """A group with isolation level read_committed waits for the end of a transaction, and gets no aborted records."""
    world.set("share.isolation.level", "read_committed")
    world.append(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    world.append(b"plain")
    member = world.member()
    waiting = member.start(wait_ms=500)
    await turns()
    assert not waiting.done()
    world.end_transaction(7, commits=False)
    response = await waiting
    assert values(response) == [b"plain"]
    await member.accept(1, 1)
    assert world.shares.loaded(world.key()).share.start_offset in (2, 3)  # type: ignore[union-attr]


async def test_a_flipped_bit_that_makes_records_look_like_a_marker_loses_no_records(
    world: ShareWorld, tmp_path: Path
) -> None:
    world.append(b"first")
    world.append(b"other")
    (path,) = (tmp_path / "orders-0").glob("*.log")
    with path.open("r+b") as file:
        content = file.read()
        position = len(content) // 2 + ATTRIBUTES_LOW_BYTE_AT  # of the second batch
        file.seek(position)
        file.write(bytes([content[position] ^ CONTROL_BIT]))
    member = world.member()
    assert values(await member.fetch()) == [b"first"]
    await member.accept(0, 0)
    response = await member.fetch()
    assert [partition.error_code for topic in response.responses for partition in topic.partitions] == [
        ErrorCode.CORRUPT_MESSAGE
    ]
    assert world.shares.loaded(world.key()).share.start_offset == 1  # type: ignore[union-attr]


async def test_a_marker_at_the_end_of_the_log_leaves_no_lag(world: ShareWorld) -> None:
    world.append(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    world.end_transaction(7, commits=True)
    member = world.member()
    assert await member.acquired() == [(0, 0, 1)]
    await member.accept(0, 0)
    assert await member.acquired() == []
    await turns()
    assert world.calls.machine.states[world.key()].start_offset == 2


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        ({(rules.SHARE_FETCH_GROUP, GROUP)}, (ErrorCode.GROUP_AUTHORIZATION_FAILED, None)),
        ({rules.SHARE_FETCH}, (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
    ],
)
async def test_rights(world: ShareWorld, refused: Any, code: Any) -> None:
    response = await world.member().fetch(refused=refused)
    of_partition = response.responses[0].partitions[0].error_code if response.responses else None
    assert (response.error_code, of_partition) == code


async def test_unknown_topics_and_states_that_were_not_begun(world: ShareWorld) -> None:
    response = await world.member().fetch(topic_id=b"?" * 16)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    del world.calls.machine.states[world.key()]
    response = await world.member("m2").fetch()
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("member_id", ["", " ", "x" * 37])
async def test_members_that_cannot_be(world: ShareWorld, member_id: str) -> None:
    assert (await world.member(member_id).fetch()).error_code == ErrorCode.INVALID_REQUEST


async def test_the_broker_bounds_the_bytes_of_an_answer(world: ShareWorld) -> None:
    world.config = BrokerConfig.of({"fetch.max.bytes": "1024"})
    for _ in range(20):
        world.append(b"v" * 500)
    member = world.member()
    response = await member.fetch()
    assert 0 < len(values(response)) <= 2


async def test_a_request_whose_client_is_gone_leaves_no_waiting_fetch(world: ShareWorld) -> None:
    member: Member = world.member()
    await member.fetch()
    waiting = member.start(wait_ms=500)
    await turns()
    waiting.cancel()
    await turns()
    hosted = world.shares.loaded(world.key())
    assert hosted is not None
    assert hosted.is_idle
    assert hosted.partition.purgatory.fetches == {}
    await settled(None)


async def test_a_fetch_whose_session_was_opened_again_acquires_nothing(world: ShareWorld) -> None:
    """The member has closed the connection of its first fetch. Records acquired for that fetch would stay locked until
    their locks expire.
    """
    left = world.member().start(wait_ms=60_000)
    await turns()
    member = world.member()
    await member.fetch()
    world.append(b"a")
    assert values(await left) == []
    assert await member.acquired() == [(0, 0, 1)]


@pytest.mark.parametrize("epoch", [0, 1])
async def test_a_request_with_too_many_partitions_leaves_nothing_behind(world: ShareWorld, epoch: int) -> None:
    member = world.member()
    if epoch:
        await member.fetch()
    response = await member.fetch(partitions=range(MAX_PARTITIONS + 1))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    sessions = world.shares.sessions
    assert len(sessions) == epoch
    assert sum(len(session.partitions) for session in sessions._sessions.values()) == epoch


async def test_a_session_for_which_there_is_no_room_is_not_opened(world: ShareWorld) -> None:
    world.shares.sessions = ShareSessions(10, max_partitions=1)
    waiting = world.member().start(partitions=(0, 1))
    world.advance(0.1)
    assert (await waiting).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert len(world.shares.sessions) == 0
