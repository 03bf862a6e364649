"""ShareAcknowledge: which acknowledgements count, when the response is sent, and the error if the change cannot be
stored.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.support.share_world import GROUP, ShareWorld, ack_code, turns

from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.security.authorizer import rules
from oncelog_broker.sharing.acknowledgement import MAX_BATCHES
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import CLOSE_SESSION, OPEN_SESSION, AcknowledgeType

ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


@pytest.fixture
def filled(world: ShareWorld) -> ShareWorld:
    for _ in range(4):
        world.append(b"a", b"b")
    return world


async def test_what_is_accepted_is_kept_when_the_answer_comes(filled: ShareWorld) -> None:
    member = filled.member()
    await member.fetch()
    response = await member.acknowledge((0, 3, ACCEPT), (4, 5, RELEASE, REJECT))
    assert (ack_code(response), response.acquisition_lock_timeout_ms) == (ErrorCode.NONE, 30_000)
    state = filled.calls.machine.states[filled.key()]
    assert (state.start_offset, state.complete_count) == (4, 1)
    assert state.batches == (
        StateBatch(4, 4, DeliveryState.AVAILABLE, 1),
        StateBatch(5, 5, DeliveryState.ARCHIVED, 1),
    )


async def test_changes_wait_for_the_write_before_and_go_together(filled: ShareWorld) -> None:
    member = filled.member()
    await member.fetch()
    filled.calls.held = asyncio.Event()
    answers = []
    for offset in range(6):
        answers.append(asyncio.ensure_future(member.acknowledge((offset, offset, ACCEPT))))
        await turns()
    assert not any(answer.done() for answer in answers)
    filled.calls.held.set()
    assert {ack_code(await answer) for answer in answers} == {ErrorCode.NONE}
    assert [write.start_offset for write in filled.calls.writes] == [1, 6]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_change_that_cannot_be_kept_leaves_the_records_with_the_member(
    filled: ShareWorld, error: ErrorCode, told: ErrorCode
) -> None:
    member = filled.member()
    await member.fetch()
    filled.calls.errors = [KafkaError(error)]
    assert await member.accept(0, 1) is told
    assert await member.accept(0, 1) is ErrorCode.NONE


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
async def test_q7_a_fenced_leader_forgets_what_it_knew_and_loads_the_state_anew(
    filled: ShareWorld, error: ErrorCode
) -> None:
    member = filled.member()
    await member.fetch()
    filled.calls.errors = [KafkaError(error)]
    assert await member.accept(0, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert filled.shares.loaded(filled.key()) is None
    assert await member.accept(0, 1) is ErrorCode.INVALID_RECORD_STATE
    assert await member.acquired() == [(0, 7, 1)]


async def test_a_session_is_not_opened_by_it(filled: ShareWorld) -> None:
    member = filled.member()
    assert ack_code(await member.acknowledge(epoch=OPEN_SESSION)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert ack_code(await member.acknowledge(epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    await member.fetch()
    assert ack_code(await member.acknowledge(epoch=5)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


async def test_the_session_is_closed_when_what_it_said_is_kept(filled: ShareWorld) -> None:
    member = filled.member()
    await member.fetch()
    assert ack_code(await member.acknowledge((0, 3, ACCEPT), epoch=CLOSE_SESSION)) is ErrorCode.NONE
    assert await filled.member("m2").acquired() == [(4, 7, 2)]
    assert ack_code(await member.acknowledge(epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_lock_is_renewed_by_a_request_that_says_so(filled: ShareWorld) -> None:
    member = filled.member()
    await member.fetch()
    assert ack_code(await member.acknowledge((0, 7, RENEW))) is ErrorCode.INVALID_REQUEST
    filled.advance(20.0)
    assert ack_code(await member.acknowledge((0, 7, RENEW), is_renew_ack=True)) is ErrorCode.NONE
    filled.advance(20.0)
    assert await member.accept(0, 7) is ErrorCode.NONE


async def test_rights(filled: ShareWorld) -> None:
    member = filled.member()
    await member.fetch()
    refused = await member.acknowledge((0, 7, ACCEPT), refused={(rules.SHARE_ACKNOWLEDGE_GROUP, GROUP)}, epoch=1)
    assert ack_code(refused) is ErrorCode.GROUP_AUTHORIZATION_FAILED
    refused = await member.acknowledge((0, 7, ACCEPT), refused={rules.SHARE_ACKNOWLEDGE})
    assert ack_code(refused) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_another_leader_is_named(filled: ShareWorld) -> None:
    member = filled.member()
    await member.fetch()
    filled.resign()
    response = await member.acknowledge((0, 7, ACCEPT))
    assert ack_code(response) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert response.responses[0].partitions[0].current_leader.leader_id == 2
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [2]


async def test_too_many_batches_are_refused_before_they_are_looked_at(filled: ShareWorld) -> None:
    member = filled.member()
    await member.fetch()
    batches = [(offset, offset, ACCEPT) for offset in range(MAX_BATCHES + 1)]
    assert ack_code(await member.acknowledge(*batches)) is ErrorCode.INVALID_REQUEST
    assert await member.accept(0, 7) is ErrorCode.NONE
