"""JoinGroup: member ids, generations, protocol selection, static members, delays and limits."""

import pytest
from tests.support.groups import REBALANCE_MS, SESSION_MS, GroupDriver

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.held_bytes import PROTOCOL_OVERHEAD
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_protocol.errors import ErrorCode


@pytest.fixture
def driver():
    return GroupDriver()


class TestMemberIds:
    def test_a_new_dynamic_member_is_given_an_id_first(self, driver):
        answer = driver.join()
        assert answer.code is ErrorCode.MEMBER_ID_REQUIRED
        assert answer.response.member_id == "c-1"
        assert driver.group.state is GroupState.EMPTY
        joined = driver.join("c-1")
        assert joined.code is ErrorCode.NONE
        assert (joined.response.generation_id, joined.response.leader) == (1, "c-1")
        assert [member.member_id for member in joined.response.members] == ["c-1"]

    def test_before_v4_a_member_joins_at_once(self, driver):
        assert driver.join(version=3).response.leader == "c-1"

    def test_an_id_that_is_not_used_is_forgotten_and_the_group_with_it(self, driver):
        driver.join()
        driver.advance(SESSION_MS / 1000)
        assert driver.machine.groups == {}
        assert driver.join("c-1").code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_made_up_id_is_unknown(self, driver):
        assert driver.join("somebody").code is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.machine.groups == {}
        driver.stable()
        assert driver.join("somebody").code is ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("version", [3, 4, 5])
    def test_an_id_that_no_message_has_room_for_is_not_given_out(self, driver, version):
        """An id of this length fits neither into a JoinGroup response nor into a log record, so a member with the id
        would block the group.
        """
        (first,) = driver.stable()
        too_long = "c" * 32_766
        names = {"instance_id": too_long} if version >= 5 else {"client_id": too_long}
        assert driver.join(version=version, **names).code is ErrorCode.INVALID_REQUEST
        assert (driver.group.state, list(driver.group.members)) == (GroupState.STABLE, [first.member_id])
        assert driver.group.pending_members == set()

    def test_a_rebalance_waits_for_ids_that_were_given_out(self, driver):
        (first,) = driver.stable()
        given = driver.join().response.member_id
        assert driver.heartbeat(first.member_id, 1) is ErrorCode.NONE  # a reserved member id alone causes no rebalance
        _, other = driver.join_new()
        rejoined = driver.join(first.member_id)
        assert not other.is_there
        driver.join(given)
        assert other.code is rejoined.code is ErrorCode.NONE
        assert len(driver.group.members) == 3


class TestRefusals:
    def test_session_timeouts_out_of_bounds_are_refused(self, driver):
        assert driver.join(session_ms=5_999).code is ErrorCode.INVALID_SESSION_TIMEOUT
        assert driver.join(session_ms=1_800_001).code is ErrorCode.INVALID_SESSION_TIMEOUT
        assert driver.machine.groups == {}

    def test_an_empty_group_id_is_refused(self, driver):
        assert driver.join(group_id="").code is ErrorCode.INVALID_GROUP_ID

    def test_a_join_without_protocols_is_refused(self, driver):
        assert driver.join(protocols=()).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.join(protocol_type="").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.machine.groups == {}

    def test_protocols_unknown_to_the_group_are_refused(self, driver):
        driver.stable()
        assert driver.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.join(protocols=[("sticky", b"")]).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_an_empty_group_takes_another_protocol_type(self, driver):
        (member,) = driver.stable()
        driver.leave(member.member_id)
        _, joined = driver.join_new(protocol_type="connect")
        assert joined.response.protocol_type == "connect"

    def test_a_group_has_at_most_group_max_size_members(self):
        driver = GroupDriver(GroupConfig(max_size=2))
        first, second = driver.stable(2)
        assert driver.join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert driver.join(first.member_id).error is None
        driver.leave(second.member_id)
        assert driver.join().code is ErrorCode.MEMBER_ID_REQUIRED

    def test_the_number_of_reserved_member_ids_is_bounded(self):
        driver = GroupDriver(GroupConfig(max_size=2))
        answers = [driver.join().code for _ in range(3)]
        assert answers == [ErrorCode.MEMBER_ID_REQUIRED] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
        driver.advance(SESSION_MS / 1000)
        assert driver.join().code is ErrorCode.MEMBER_ID_REQUIRED


class TestNamedTwice:
    """A protocol that a member lists twice counts once."""

    TWICE = (("range", b"1"), ("sticky", b"2"), ("range", b"3"))

    def test_a_protocol_named_twice_counts_once(self, driver):
        (first,) = driver.stable()
        joining = driver.join(version=3, instance_id="i", protocols=self.TWICE)
        driver.join(first.member_id)
        assert joining.code is ErrorCode.NONE
        assert driver.group.supported == {"range": 2, "sticky": 1}
        assert [metadata.metadata for metadata in driver.join(first.member_id).response.members] == [b"", b"1"]

    def test_a_protocol_named_twice_is_not_taken_for_one_that_all_members_support(self, driver):
        driver.join(version=3, protocols=self.TWICE)
        refused = driver.join(version=3, protocols=(("other", b""), ("other", b"")))
        assert refused.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class TestMetadataBytes:
    """The bytes of members' metadata are limited per member, per group, and for all groups together."""

    @staticmethod
    def saying(size):
        return (("range", b"m" * (size - PROTOCOL_OVERHEAD - len("range"))),)

    def test_the_metadata_of_one_member_is_bounded(self):
        driver = GroupDriver(GroupConfig(member_metadata_max_bytes=1000))
        assert driver.join(version=3, protocols=self.saying(1001)).code is ErrorCode.MESSAGE_TOO_LARGE
        assert driver.machine.groups == {}
        assert driver.join(version=3, protocols=self.saying(1000)).code is ErrorCode.NONE
        assert driver.held.bytes == 1000

    def test_the_metadata_of_a_group_is_bounded(self):
        driver = GroupDriver(GroupConfig(metadata_max_bytes=2000))
        first = driver.join(version=3, protocols=self.saying(1500)).response
        assert driver.join(version=3, protocols=self.saying(501)).code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert driver.join(version=3, protocols=self.saying(501), group_id="h").code is ErrorCode.NONE
        assert driver.join(first.member_id, protocols=self.saying(2001)).code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert driver.join(first.member_id, protocols=self.saying(1400)).code is ErrorCode.NONE
        assert driver.group.metadata_bytes == 1400

    def test_the_metadata_of_all_groups_together_is_bounded(self):
        driver = GroupDriver(GroupConfig(coordinator_metadata_max_bytes=2000))
        first = driver.join(version=3, protocols=self.saying(1500), group_id="h").response
        assert driver.join(version=3, protocols=self.saying(501)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        driver.leave(first.member_id, group_id="h")
        assert driver.held.bytes == 0
        assert driver.join(version=3, protocols=self.saying(501)).code is ErrorCode.NONE

    def test_the_metadata_of_a_returning_static_member_is_counted_once(self):
        driver = GroupDriver(GroupConfig(metadata_max_bytes=2000))
        driver.join(instance_id="i", protocols=self.saying(1900))
        assert driver.join(instance_id="i", protocols=self.saying(1900)).code is ErrorCode.NONE
        assert driver.held.bytes == 1900


class TestGenerations:
    def test_all_members_get_the_same_generation_and_the_leader_all_members(self, driver):
        leader, follower = driver.stable(2)
        assert leader.generation_id == follower.generation_id == 2
        assert leader.leader == follower.leader == leader.member_id
        assert {member.member_id for member in leader.members} == {leader.member_id, follower.member_id}
        assert follower.members == []

    def test_a_member_that_does_not_rejoin_in_time_is_removed(self, driver):
        leader, follower = driver.stable(2)
        rejoined = driver.join(leader.member_id)
        for _ in range(4):
            driver.advance(REBALANCE_MS / 1000 / 4 - 1)
            assert driver.heartbeat(follower.member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS
            assert not rejoined.is_there
        driver.advance(4.0)
        assert rejoined.response.generation_id == 3
        assert list(driver.group.members) == [leader.member_id]
        assert driver.heartbeat(follower.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_rebalance_waits_as_long_as_the_most_patient_member(self, driver):
        first, waiting = driver.join_new(rebalance_ms=20_000)
        driver.sync(waiting.response, {})
        driver.join_new(rebalance_ms=50_000)
        driver.timers.cancel(("session", "g", first))
        driver.advance(49.9)
        assert driver.group.state is GroupState.PREPARING_REBALANCE
        driver.advance(0.2)
        assert driver.group.state is GroupState.COMPLETING_REBALANCE

    def test_a_leader_that_does_not_rejoin_is_replaced(self, driver):
        leader, follower = driver.stable(2)
        driver.leave(leader.member_id)
        rejoined = driver.join(follower.member_id)
        assert rejoined.response.leader == follower.member_id
        assert len(rejoined.response.members) == 1

    def test_the_first_generation_is_put_off_while_members_keep_coming(self):
        driver = GroupDriver(GroupConfig(initial_rebalance_delay_ms=3000))
        _, first = driver.join_new(rebalance_ms=8_000)
        driver.advance(2.9)
        assert not first.is_there
        _, second = driver.join_new(rebalance_ms=8_000)
        driver.advance(0.2)
        assert not first.is_there  # the delay was prolonged once, for the second member
        driver.advance(3.0)
        assert first.response.generation_id == second.response.generation_id == 1
        assert len(driver.group.members) == 2

    def test_the_delay_ends_with_the_rebalance_timeout(self):
        driver = GroupDriver(GroupConfig(initial_rebalance_delay_ms=3000))
        _, first = driver.join_new(rebalance_ms=7_000)
        for _ in range(8):
            assert not first.is_there
            driver.join_new(rebalance_ms=7_000)
            driver.advance(0.9)
        assert first.is_there
        assert driver.seconds == pytest.approx(7.2)


class TestRejoining:
    def test_a_follower_that_missed_the_answer_gets_it_again(self, driver):
        _, follower = driver.stable(2)
        again = driver.join(follower.member_id)
        assert again.response.generation_id == 2
        assert again.response.members == []
        assert driver.group.state is GroupState.STABLE
        assert driver.sync(again.response).response.assignment == follower.member_id.encode()

    def test_a_leader_that_rejoins_before_the_assignment_gets_the_same_answer(self, driver):
        member_id, _ = driver.join_new()
        again = driver.join(member_id)
        assert again.response.generation_id == 1
        assert len(again.response.members) == 1

    def test_the_leader_of_a_stable_group_rejoins_to_rebalance(self, driver):
        leader, _ = driver.stable(2)
        assert not driver.join(leader.member_id).is_there
        assert driver.group.state is GroupState.PREPARING_REBALANCE

    def test_a_member_that_reads_something_else_rebalances(self, driver):
        _, follower = driver.stable(2)
        assert not driver.join(follower.member_id, protocols=[("range", b"other")]).is_there
        assert driver.group.state is GroupState.PREPARING_REBALANCE

    def test_a_second_join_of_a_member_answers_the_first(self, driver):
        leader, follower = driver.stable(2)
        first = driver.join(leader.member_id)
        second = driver.join(leader.member_id)
        assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
        driver.join(follower.member_id)
        assert second.code is ErrorCode.NONE

    def test_syncs_that_wait_are_told_when_the_group_rebalances_again(self, driver):
        leader, follower = driver.stable(2)
        joined = [driver.join(member.member_id) for member in (leader, follower)]
        waiting = driver.sync(joined[1].response)
        driver.join_new()
        assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
        driver.advance(SESSION_MS / 1000 - 1)
        assert len(driver.group.members) == 3  # the member's session restarted with that response


class TestProtocolSelection:
    def join_all(self, driver, *wishes):
        members = []
        for wish in wishes:
            member_id, answer = driver.join_new(protocols=[(name, name.encode()) for name in wish])
            for known in members:
                known[1] = driver.join(known[0], protocols=known[2])
            members.append([member_id, answer, [(name, name.encode()) for name in wish]])
        return members[0][1].response

    def test_the_protocol_with_most_votes_among_common_ones_is_chosen(self, driver):
        chosen = self.join_all(driver, ["a", "b"], ["b", "a"], ["c", "b", "a"])
        assert chosen.protocol_name == "b"
        assert {member.metadata for member in chosen.members} == {b"b"}

    def test_the_alphabet_decides_between_equally_popular_protocols(self, driver):
        assert self.join_all(driver, ["b", "a"], ["a", "b"]).protocol_name == "a"

    def test_the_protocol_changes_with_the_members(self, driver):
        self.join_all(driver, ["a", "b"], ["b", "a"])
        leader = driver.group.leader_id
        other = next(member for member in driver.group.members if member != leader)
        driver.leave(leader)
        assert driver.join(other, protocols=[("b", b""), ("a", b"")]).response.protocol_name == "b"


class TestStaticMembers:
    def stable(self, driver, instances=("i1", "i2"), version=9):
        joined = {}
        for instance in instances:
            joined[instance] = driver.join(instance_id=instance, version=version)
            for other, answer in list(joined.items()):
                if other != instance:
                    joined[other] = driver.join(answer.response.member_id, instance_id=other, version=version)
        responses = {instance: answer.response for instance, answer in joined.items()}
        (leader,) = [r for r in responses.values() if r.leader == r.member_id]
        for response in responses.values():
            if response is not leader:
                driver.sync(response)
        assert driver.sync(leader, {r.member_id: r.member_id.encode() for r in responses.values()}).code == 0
        return responses

    def test_a_static_member_joins_without_reserving_an_id(self, driver):
        answer = driver.join(instance_id="i1")
        assert answer.code is ErrorCode.NONE
        assert answer.response.member_id == "i1-1"

    def test_a_returning_static_member_takes_over_without_a_rebalance(self, driver):
        before = self.stable(driver)
        logged = len(driver.log)
        back = driver.join(instance_id="i2")
        assert driver.group.state is GroupState.STABLE
        assert back.response.generation_id == before["i2"].generation_id
        assert back.response.member_id != before["i2"].member_id
        assert driver.sync(back.response).response.assignment == before["i2"].member_id.encode()
        assert len(driver.log) == logged + 1
        assert driver.heartbeat(before["i1"].member_id, 2, "i1") is ErrorCode.NONE

    def test_the_previous_owner_of_an_instance_id_is_fenced(self, driver):
        before = self.stable(driver)
        driver.join(instance_id="i2")
        old = before["i2"].member_id
        assert driver.heartbeat(old, 2, "i2") is ErrorCode.FENCED_INSTANCE_ID
        assert driver.join(old, instance_id="i2").code is ErrorCode.FENCED_INSTANCE_ID
        assert driver.sync(before["i2"], instance_id="i2").code is ErrorCode.FENCED_INSTANCE_ID
        commit = driver.commit({("t", 0): 1}, member_id=old, generation=2, instance_id="i2")
        assert commit.code is ErrorCode.FENCED_INSTANCE_ID

    def test_a_leader_that_returns_need_not_assign_anew(self, driver):
        before = self.stable(driver)
        leader_instance = next(i for i, r in before.items() if r.leader == r.member_id)
        back = driver.join(instance_id=leader_instance).response
        assert back.leader == back.member_id
        assert back.skip_assignment
        assert len(back.members) == 2

    def test_before_v9_a_returning_leader_is_named_the_old_one_so_that_it_does_not_assign(self, driver):
        before = self.stable(driver, version=8)
        leader_instance = next(i for i, r in before.items() if r.leader == r.member_id)
        back = driver.join(instance_id=leader_instance, version=8).response
        assert back.leader == before[leader_instance].member_id
        assert not back.skip_assignment
        assert back.members == []

    def test_a_static_member_that_returns_with_another_protocol_causes_a_rebalance(self, driver):
        self.stable(driver, instances=("i1",))
        back = driver.join(instance_id="i1", protocols=[("new", b""), ("range", b"")])
        assert back.response.generation_id == 2
        assert back.response.protocol_name == "new"

    def test_a_static_member_replaced_while_joining_is_fenced_and_its_place_kept(self, driver):
        before = self.stable(driver)
        waiting = driver.join(before["i2"].member_id, instance_id="i2", protocols=[("range", b"x")])
        assert not waiting.is_there
        back = driver.join(instance_id="i2")
        assert waiting.code is ErrorCode.FENCED_INSTANCE_ID
        driver.join(before["i1"].member_id, instance_id="i1")
        assert back.response.generation_id == 3
        assert len(driver.group.members) == 2

    def test_a_static_member_that_returns_before_the_assignment_causes_a_rebalance(self, driver):
        before = self.stable(driver)
        for instance in ("i1", "i2"):
            driver.join(before[instance].member_id, instance_id=instance, protocols=[("range", b"x")])
        assert driver.group.state is GroupState.COMPLETING_REBALANCE
        assert not driver.join(instance_id="i2").is_there
        assert driver.group.state is GroupState.PREPARING_REBALANCE

    def test_an_absent_static_member_keeps_its_place_until_its_session_ends(self, driver):
        before = self.stable(driver)
        rejoined = driver.join(before["i1"].member_id, instance_id="i1", protocols=[("range", b"x")], rebalance_ms=6000)
        driver.advance(9.0)
        driver.heartbeat(before["i2"].member_id, 2, "i2")
        driver.advance(9.0)
        driver.heartbeat(before["i2"].member_id, 2, "i2")
        driver.advance(9.0)
        driver.heartbeat(before["i2"].member_id, 2, "i2")
        driver.advance(4.0)  # the longest rebalance timeout of a member counts, which is the 30 s of i2
        assert rejoined.is_there
        assert set(driver.group.static_members) == {"i1", "i2"}

    def test_an_unknown_instance_id_is_refused(self, driver):
        self.stable(driver)
        assert driver.heartbeat("x", 2, "i9") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_nothing_changes_if_the_new_id_cannot_be_logged(self, driver):
        before = self.stable(driver)
        driver.fail_appends = True
        assert driver.join(instance_id="i2").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.heartbeat(before["i2"].member_id, 2, "i2") is ErrorCode.NONE
        driver.fail_appends = False
        assert driver.join(instance_id="i2").code is ErrorCode.NONE
