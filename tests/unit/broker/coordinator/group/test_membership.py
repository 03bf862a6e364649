"""SyncGroup, Heartbeat and LeaveGroup requests, and session timeouts."""

import pytest
from tests.support.groups import REBALANCE_MS, SESSION_MS, GroupDriver, Identity

from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.group.step import NEW_MEMBER_JOIN_TIMEOUT_MS
from oncelog_protocol.errors import ErrorCode


@pytest.fixture
def driver():
    return GroupDriver()


class TestSync:
    def test_all_members_wait_for_the_leaders_assignment(self, driver):
        leader, follower = driver.stable(2)
        joined = [driver.join(member.member_id) for member in (leader, follower)]
        waiting = driver.sync(joined[1].response)
        assert not waiting.is_there
        done = driver.sync(joined[0].response, {leader.member_id: b"l", follower.member_id: b"f"})
        assert done.response.assignment == b"l"
        assert waiting.response.assignment == b"f"
        assert driver.group.state is GroupState.STABLE

    def test_a_late_sync_gets_the_assignment_at_once(self, driver):
        leader, follower = driver.stable(2)
        for member in (leader, follower):
            assert driver.sync(member).response.assignment == member.member_id.encode()

    def test_an_unassigned_member_gets_an_empty_assignment_and_a_stranger_none(self, driver):
        member_id, joined = driver.join_new()
        assert driver.sync(joined.response, {"stranger": b"x"}).response.assignment == b""
        assert list(driver.group.members) == [member_id]

    def test_refusals(self, driver):
        (member,) = driver.stable()
        assert driver.sync(member, generation=2).code is ErrorCode.ILLEGAL_GENERATION
        assert driver.sync(member, member_id="x").code is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.sync(member, protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.sync(member, protocol_name="sticky").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.sync(member, protocol_type="consumer", protocol_name="range").code is ErrorCode.NONE
        driver.join_new()
        assert driver.sync(member).code is ErrorCode.REBALANCE_IN_PROGRESS
        driver.leave(*driver.group.members)
        assert driver.sync(member).code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_second_sync_of_a_member_answers_the_first(self, driver):
        leader, follower = driver.stable(2)
        joined = [driver.join(member.member_id) for member in (leader, follower)]
        first, second = driver.sync(joined[1].response), driver.sync(joined[1].response)
        assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
        driver.sync(joined[0].response)
        assert second.code is ErrorCode.NONE

    def test_all_members_rejoin_if_the_assignment_cannot_be_logged(self, driver):
        """Assignments that are always too large to be logged would otherwise keep the members waiting until the group
        leader leaves; Kafka behaves the same way.
        """
        leader, follower = driver.stable(2)
        joined = [driver.join(member.member_id) for member in (leader, follower)]
        waiting = driver.sync(joined[1].response)
        driver.fail_appends = True
        assert driver.sync(joined[0].response).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert waiting.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.group.state is GroupState.PREPARING_REBALANCE
        assert driver.heartbeat(follower.member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS
        driver.fail_appends = False
        joined = [driver.join(member.member_id) for member in (leader, follower)]
        waiting = driver.sync(joined[1].response)
        assert driver.sync(joined[0].response).code is ErrorCode.NONE
        assert waiting.code is ErrorCode.NONE
        assert driver.group.state is GroupState.STABLE

    def test_a_member_that_never_syncs_is_removed(self, driver):
        leader, follower = driver.stable(2)
        joined = [driver.join(member.member_id) for member in (leader, follower)]
        driver.sync(joined[0].response, {})
        for _ in range(4):
            driver.advance(REBALANCE_MS / 1000 / 4 - 0.1)
            driver.heartbeat(leader.member_id, 3)
            driver.heartbeat(follower.member_id, 3)
        driver.advance(1.0)
        assert list(driver.group.members) == [leader.member_id]
        assert driver.heartbeat(leader.member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS


class TestSessions:
    def test_heartbeats_keep_a_member(self, driver):
        (member,) = driver.stable()
        for _ in range(10):
            driver.advance(SESSION_MS / 1000 - 0.1)
            assert driver.heartbeat(member.member_id, 1) is ErrorCode.NONE

    def test_commits_keep_a_member(self, driver):
        (member,) = driver.stable()
        for offset in range(5):
            driver.advance(SESSION_MS / 1000 - 0.1)
            assert driver.commit({("t", 0): offset}, member_id=member.member_id, generation=1).response is not None
        assert driver.group.state is GroupState.STABLE

    def test_a_member_without_heartbeats_is_removed_and_the_others_rebalance(self, driver):
        leader, follower = driver.stable(2)
        driver.advance(SESSION_MS / 1000 - 0.1)
        driver.heartbeat(leader.member_id, 2)
        driver.advance(0.2)
        assert driver.heartbeat(leader.member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.heartbeat(follower.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_last_expired_member_leaves_an_empty_group(self, driver):
        driver.stable()
        driver.advance(SESSION_MS / 1000)
        assert driver.group.state is GroupState.EMPTY
        assert driver.group.generation == 2
        assert driver.group.state_since_ms == driver.now_ms
        assert len(driver.timers) == 0

    def test_refusals(self, driver):
        assert driver.heartbeat("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        (member,) = driver.stable()
        assert driver.heartbeat("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.heartbeat(member.member_id, 0) is ErrorCode.ILLEGAL_GENERATION

    def test_a_member_that_waits_to_join_is_not_expected_to_send_heartbeats(self, driver):
        first, follower = driver.stable(2)
        waiting = driver.join(first.member_id, session_ms=6000)
        for _ in range(4):
            driver.advance(7.0)
            driver.heartbeat(follower.member_id, 2)
        assert not waiting.is_there
        assert first.member_id in driver.group.members

    def test_a_new_member_that_waits_too_long_to_join_is_removed(self, driver):
        (member,) = driver.stable()
        driver.join(member.member_id, rebalance_ms=1_000_000)
        driver.sync(driver.join(member.member_id, rebalance_ms=1_000_000).response, {})
        _, waiting = driver.join_new(rebalance_ms=1_000_000)
        seconds = 0.0
        while seconds < NEW_MEMBER_JOIN_TIMEOUT_MS / 1000:
            assert not waiting.is_there
            driver.advance(9.0)
            seconds += 9.0
            driver.heartbeat(member.member_id, driver.group.generation)
        assert waiting.code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_after_a_restart_members_have_their_session_to_come_back(self, driver):
        leader, follower = driver.stable(2)
        driver.restart()
        assert driver.group.state is GroupState.STABLE
        driver.advance(SESSION_MS / 1000 - 0.1)
        assert driver.heartbeat(leader.member_id, 2) is ErrorCode.NONE
        assert driver.sync(leader).response.assignment == leader.member_id.encode()
        driver.advance(0.2)
        assert driver.heartbeat(follower.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_empty_group_that_cannot_be_logged_stays_as_it_was(self, driver):
        (member,) = driver.stable()
        driver.fail_appends = True
        assert driver.leave(member.member_id).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.heartbeat(member.member_id, 1) is ErrorCode.NONE


class TestLeave:
    def codes(self, answer):
        return [ErrorCode(member.error_code) for member in answer.response.members]

    def test_the_others_rebalance_at_once_when_a_member_leaves(self, driver):
        leader, follower = driver.stable(2)
        assert self.codes(driver.leave(follower.member_id)) == [ErrorCode.NONE]
        assert driver.heartbeat(leader.member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.join(leader.member_id).response.generation_id == 3

    def test_many_leaving_members_have_a_result_each(self, driver):
        leader, follower, third = driver.stable(3)
        answer = driver.leave(follower.member_id, "x", follower.member_id, third.member_id)
        none, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
        assert self.codes(answer) == [none, unknown, unknown, none]
        assert list(driver.group.members) == [leader.member_id]

    def test_all_members_may_leave_in_one_request(self, driver):
        members = driver.stable(3)
        driver.leave(*(member.member_id for member in members))
        assert driver.group.state is GroupState.EMPTY
        assert driver.group.members == {}
        assert len(driver.timers) == 0

    def test_s85_a_joining_member_is_answered_though_the_end_of_the_group_cannot_be_logged(self, driver):
        """A rebalance waits for a client that got a reserved member id and has not joined with it yet.

        That member and the only other member leave in one request, whose effect cannot be logged.
        """
        unused = driver.join().response.member_id
        member_id, joining = driver.join_new()
        assert not joining.is_there
        driver.fail_appends = True
        assert driver.leave(unused, member_id).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        driver.fail_appends = False
        assert driver.group.pending_members == {unused}
        driver.advance(SESSION_MS / 1000)
        assert joining.code is ErrorCode.NONE

    def test_s85_unused_ids_and_the_last_member_leave_together(self, driver):
        unused = driver.join().response.member_id
        member_id, joining = driver.join_new()
        assert self.codes(driver.leave(unused, member_id, unused)) == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        assert joining.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.group.pending_members == set()
        assert len(driver.timers) == 0

    def test_static_members_leave_by_instance_id(self, driver):
        joined = driver.join(instance_id="i1").response
        driver.sync(joined, {})
        answer = driver.leave(
            Identity(member_id="", group_instance_id="i9"),
            Identity(member_id="x", group_instance_id="i1"),
            Identity(member_id="", group_instance_id="i1"),
        )
        assert self.codes(answer) == [
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.NONE,
        ]
        assert driver.group.state is GroupState.EMPTY

    def test_a_reserved_member_id_can_leave(self, driver):
        given = driver.join().response.member_id
        assert self.codes(driver.leave(given)) == [ErrorCode.NONE]
        assert driver.machine.groups == {}
        assert len(driver.timers) == 0

    def test_a_member_that_leaves_while_joining_is_answered(self, driver):
        leader, _ = driver.stable(2)
        waiting = driver.join(leader.member_id)
        driver.leave(leader.member_id)
        assert waiting.code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_rebalance_continues_when_the_awaited_member_leaves(self, driver):
        leader, follower = driver.stable(2)
        waiting = driver.join(leader.member_id)
        driver.leave(follower.member_id)
        assert waiting.response.generation_id == 3

    def test_leaving_an_unknown_group_is_refused(self, driver):
        assert driver.leave("x", group_id="nobody").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_changed_between_two_generations_is_loaded_as_it_was_last(driver):
    first = driver.join(instance_id="i1", protocols=[("a", b"1"), ("b", b"1")]).response
    driver.sync(first, {})
    second = driver.join(first.member_id, instance_id="i1", protocols=[("b", b"2")]).response
    driver.sync(second, {})
    (member,) = driver.replayed().groups["g"].members.values()
    assert member.metadata("b") == b"2"


class TestAfterAFailure:
    """A step of the group raised an exception, so the group returns to its last logged state."""

    def test_a_failed_step_aborts_the_rebalance(self, driver):
        leader, follower = driver.stable(2)
        waiting = driver.join(leader.member_id)
        driver.fail()
        assert waiting.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert driver.group.state is GroupState.STABLE
        assert driver.heartbeat(follower.member_id, 2) is ErrorCode.NONE
        assert driver.sync(leader).response.assignment == leader.member_id.encode()

    def test_members_must_prove_after_a_failure_that_they_are_alive(self, driver):
        leader, follower = driver.stable(2)
        driver.fail()
        assert len(driver.timers) == 2
        driver.advance(SESSION_MS / 1000 - 1)
        driver.heartbeat(leader.member_id, 2)
        driver.advance(2)
        assert driver.heartbeat(follower.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_group_that_was_never_logged_is_forgotten_after_a_failure(self, driver):
        _, joined = driver.join_new()
        driver.fail()
        assert driver.machine.groups == {}
        driver.advance(SESSION_MS / 1000)
        assert driver.sync(joined.response).code is ErrorCode.UNKNOWN_MEMBER_ID
        driver.stable()

    def test_a_failed_step_about_a_missing_group_changes_nothing(self, driver):
        driver.fail()
        assert driver.machine.groups == {}
