"""The state machine of a group member, tested against its table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.consumer.group.membership import (
    PREVIOUS,
    REACTIONS,
    SPECIAL_REACTIONS,
    Generation,
    Membership,
    MemberState,
    Reaction,
    reaction,
)
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode

CURRENT = Generation(5, "me")
JOIN, SYNC, HEARTBEAT, COMMIT = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT
UNJOINED, PREPARING, COMPLETING = MemberState.UNJOINED, MemberState.PREPARING, MemberState.COMPLETING
STABLE, FENCED, LEFT = MemberState.STABLE, MemberState.FENCED, MemberState.LEFT


def member_in(state: MemberState) -> Membership:
    """Return a member that has reached `state` through its normal requests, with an earlier generation if possible."""
    member = Membership()
    if state is LEFT:
        return member
    member.enter()
    if state is UNJOINED:
        return member
    member.prepare()
    member.complete(CURRENT)
    if state is COMPLETING:
        return member
    member.settle()
    if state is FENCED:
        member.react(HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID, CURRENT)
    elif state is PREPARING:
        member.rejoin("why not")
        member.prepare()
    return member


EVENTS: dict[str, tuple[Callable[[Membership], object], MemberState]] = {
    "prepare": (lambda member: member.prepare(), PREPARING),
    "complete": (lambda member: member.complete(CURRENT), COMPLETING),
    "settle": (lambda member: member.settle(), STABLE),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", MemberState)
def test_events_lead_where_the_table_says(state: MemberState, event: str) -> None:
    act, then = EVENTS[event]
    member = member_in(state)
    if state in PREVIOUS[then] or state is then is PREPARING:
        act(member)
        assert member.state is then
    else:
        with pytest.raises(AssertionError):
            act(member)
        assert member.state is state


def test_every_state_can_be_reached_and_left_but_one() -> None:
    assert set(PREVIOUS) == set(MemberState)
    reachable = {then for then, before in PREVIOUS.items() if before - {then}}
    assert reachable == set(MemberState)
    assert {then for then in MemberState if FENCED in PREVIOUS[then]} == {FENCED}


REACTING = [
    # columns: state, request, error, next state, whether the member keeps its generation, whether it loses its
    # partitions
    (STABLE, HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, STABLE, True, False),
    (STABLE, HEARTBEAT, ErrorCode.ILLEGAL_GENERATION, UNJOINED, False, True),
    (STABLE, HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, UNJOINED, False, True),
    (STABLE, HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID, FENCED, True, False),
    (STABLE, HEARTBEAT, ErrorCode.NOT_COORDINATOR, STABLE, True, False),
    (STABLE, HEARTBEAT, ErrorCode.COORDINATOR_NOT_AVAILABLE, STABLE, True, False),
    (STABLE, COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, STABLE, True, False),
    (STABLE, COMMIT, ErrorCode.REBALANCE_IN_PROGRESS, STABLE, True, False),
    (STABLE, COMMIT, ErrorCode.OFFSET_METADATA_TOO_LARGE, STABLE, True, False),
    (STABLE, COMMIT, ErrorCode.UNKNOWN_MEMBER_ID, UNJOINED, False, True),
    (PREPARING, JOIN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, PREPARING, True, False),
    (PREPARING, JOIN, ErrorCode.REBALANCE_IN_PROGRESS, PREPARING, True, False),
    (PREPARING, JOIN, ErrorCode.UNKNOWN_MEMBER_ID, UNJOINED, False, True),
    (PREPARING, JOIN, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNJOINED, True, False),
    (PREPARING, JOIN, ErrorCode.GROUP_MAX_SIZE_REACHED, UNJOINED, True, False),
    (PREPARING, JOIN, ErrorCode.FENCED_INSTANCE_ID, FENCED, True, False),
    (PREPARING, COMMIT, ErrorCode.REBALANCE_IN_PROGRESS, PREPARING, True, False),
    (PREPARING, HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, PREPARING, True, False),
    # The response to JoinGroup has not arrived yet, but these later responses have.
    (PREPARING, COMMIT, ErrorCode.ILLEGAL_GENERATION, PREPARING, True, False),
    (PREPARING, HEARTBEAT, ErrorCode.ILLEGAL_GENERATION, PREPARING, True, False),
    (PREPARING, COMMIT, ErrorCode.UNKNOWN_MEMBER_ID, PREPARING, True, False),
    (COMPLETING, COMMIT, ErrorCode.ILLEGAL_GENERATION, COMPLETING, True, False),
    (COMPLETING, SYNC, ErrorCode.REBALANCE_IN_PROGRESS, UNJOINED, True, False),
    (COMPLETING, SYNC, ErrorCode.ILLEGAL_GENERATION, UNJOINED, False, True),
    (COMPLETING, SYNC, ErrorCode.NOT_COORDINATOR, COMPLETING, True, False),
    (COMPLETING, SYNC, ErrorCode.GROUP_AUTHORIZATION_FAILED, UNJOINED, True, False),
    (LEFT, COMMIT, ErrorCode.UNKNOWN_MEMBER_ID, LEFT, False, False),
]


@pytest.mark.parametrize(("state", "api_key", "code", "then", "is_in_generation", "is_lost"), REACTING)
def test_errors_lead_to_their_states(
    state: MemberState, api_key: ApiKey, code: ErrorCode, then: MemberState, is_in_generation: bool, is_lost: bool
) -> None:
    member = member_in(state)
    assert member.react(api_key, code, member.generation) is reaction(api_key, code)
    assert member.state is then
    assert (member.generation.generation_id == CURRENT.generation_id) is is_in_generation
    assert member.is_lost is is_lost


def test_a_rebalance_is_a_reason_to_join_again() -> None:
    member = member_in(STABLE)
    assert not member.needs_join
    member.react(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, CURRENT)
    assert member.needs_join
    assert member.sends_heartbeats
    member.prepare()
    assert not member.needs_join
    assert not member.sends_heartbeats


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "me"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_an_unknown_member_joins_with_a_new_id(code: ErrorCode, member_id: str) -> None:
    member = member_in(STABLE)
    member.react(HEARTBEAT, code, CURRENT)
    assert member.generation == Generation(-1, member_id)
    member.partitions_given_up()
    assert not member.is_lost
    assert member.needs_join


def test_events_of_a_past_generation_are_ignored() -> None:
    member = member_in(STABLE)
    for code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
        member.react(HEARTBEAT, code, Generation(4, "me"))
    assert (member.state, member.generation, member.is_lost) == (STABLE, CURRENT, False)


def test_the_member_id_of_the_coordinator_is_taken() -> None:
    member = member_in(UNJOINED)
    member.prepare()
    assert member.react(JOIN, ErrorCode.MEMBER_ID_REQUIRED, member.generation) is Reaction.TAKE_MEMBER_ID
    member.take_member_id("given")
    assert member.generation == Generation(-1, "given")
    assert not member.is_lost


def test_leaving_forgets_all_but_being_fenced() -> None:
    for state in MemberState:
        member = member_in(state)
        member.leave()
        assert member.state is (FENCED if state is FENCED else LEFT)
        assert member.generation == Generation()
        member.enter()
        assert member.needs_join is (state is not FENCED)


@pytest.mark.parametrize("code", [None, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_s46_s64_a_fenced_or_departed_member_keeps_its_last_generation(code: ErrorCode | None) -> None:
    member = member_in(STABLE)
    if code is None:
        member.drop_out()
    else:
        member.react(HEARTBEAT, code, CURRENT)
    assert member.generation != CURRENT
    assert member.last_generation == CURRENT
    member.prepare()
    member.complete(Generation(7, "another"))
    assert member.last_generation == Generation(7, "another")
    member.leave()
    assert member.last_generation == Generation(7, "another")
    member.assign_by_hand()
    assert member.last_generation == Generation()


def test_a_member_that_drops_out_has_lost_its_partitions() -> None:
    member = member_in(STABLE)
    member.drop_out()
    assert member.is_lost
    assert member.needs_join


def test_unlisted_errors_are_raised_to_the_application() -> None:
    listed = set(REACTIONS) | {code for _, code in SPECIAL_REACTIONS}
    assert {reaction(HEARTBEAT, code) for code in ErrorCode if code not in listed} == {Reaction.FAIL}
    assert reaction(COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) is Reaction.RETRY
