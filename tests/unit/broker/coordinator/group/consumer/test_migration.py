"""Groups change between the classic and the consumer protocol while their members work, in both directions, as in
Kafka.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.consumer_groups import ConsumerDriver, owned
from tests.support.groups import REBALANCE_MS, SESSION_MS, Answer, state_of

from oncelog_broker.coordinator.group.classic_group import ClassicGroup
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)
from oncelog_protocol.errors import ErrorCode, KafkaError

ALL = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


def subscription(*topics: str, owned: tuple[int, ...] = ()) -> bytes:
    partition = ConsumerProtocolSubscription.TopicPartition
    owned_partitions = [partition(topic="t", partitions=list(owned))] if owned else []
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics), owned_partitions=owned_partitions), 1)


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    topic = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=list(partitions))
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[topic], user_data=user_data), 1)


class ClassicClient:
    """A cooperative member of the classic protocol, which reports its owned partitions when it joins."""

    def __init__(self, driver: ConsumerDriver, instance_id: str | None = None) -> None:
        self.driver = driver
        self.instance_id = instance_id
        self.member_id, self.generation = "", -1
        self.owns: tuple[int, ...] = ()
        self.joined: Answer = Answer()

    def join(self) -> Answer:
        """Join the group; request a member id first if the client has none."""
        for _ in range(2):
            self.joined = self.driver.join(
                self.member_id,
                instance_id=self.instance_id,
                protocols=(("range", subscription("t", owned=self.owns)), ("other", b"\0\1")),
            )
            if not self.joined.is_there or self.joined.code is not ErrorCode.MEMBER_ID_REQUIRED:
                break
            self.member_id = self.joined.response.member_id
        return self.take()

    def take(self) -> Answer:
        if self.joined.is_there and self.joined.code is ErrorCode.NONE:
            self.member_id, self.generation = self.joined.response.member_id, self.joined.response.generation_id
        return self.joined

    def sync(self, assignments: dict[str, bytes] | None = None) -> Answer:
        return self.driver.sync(self.joined.response, assignments, instance_id=self.instance_id)

    def read(self, answer: Answer) -> None:
        assert answer.code is ErrorCode.NONE
        decoded = decode_versioned(ConsumerProtocolAssignment, answer.response.assignment)
        self.owns = tuple(partition for topic in decoded.assigned_partitions for partition in topic.partitions)

    def heartbeat(self) -> ErrorCode:
        return self.driver.heartbeat(self.member_id, self.generation, self.instance_id)

    def follow(self) -> None:
        """Send a heartbeat to a group that uses the consumer protocol; rejoin and sync if the response requires it."""
        if self.heartbeat() is not ErrorCode.NONE:
            assert self.join().code is ErrorCode.NONE
            self.read(self.sync())


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver()


def classic_pair(driver: ConsumerDriver) -> tuple[ClassicClient, ClassicClient]:
    """Return a stable classic group of two members with two partitions each."""
    one, two = ClassicClient(driver), ClassicClient(driver)
    one.join()
    one.read(one.sync({one.member_id: assignment(0, 1, 2, 3)}))
    two.join()
    one.join()
    two.take()
    waiting = two.sync()
    one.read(one.sync({one.member_id: assignment(0, 1), two.member_id: assignment(2, 3)}))
    two.read(waiting)
    return one, two


def settle(driver: ConsumerDriver, classic: list[ClassicClient], *others: Any) -> None:
    for _ in range(8):
        driver.advance(1.0)
        for client in classic:
            client.follow()
        for other in others:
            other.beat()


def test_a_consumer_joins_a_classic_group_and_all_work_on(driver: ConsumerDriver) -> None:
    one, two = classic_pair(driver)
    new = driver.joined()
    group = driver.machine.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.members[one.member_id].assigned == {driver.view.id_of("t"): {0: 2, 1: 2}}
    assert owned(new) == []
    settle(driver, [one, two], new)
    assert sorted([*one.owns, *two.owns, *(partition for _, partition in new.owns)]) == [0, 1, 2, 3]
    assert len(new.owns) == 1
    assert driver.consumers.state is ConsumerGroupState.STABLE
    assert state_of(driver.replayed()) == state_of(driver.machine)


def test_c13_a_member_waiting_in_the_classic_group_is_told_to_rejoin(driver: ConsumerDriver) -> None:
    one, two = classic_pair(driver)
    one.join()
    assert not one.joined.is_there
    driver.joined()
    assert one.joined.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert two.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_c13_a_member_that_never_synced_owns_nothing(driver: ConsumerDriver) -> None:
    one = ClassicClient(driver)
    one.join()
    new = driver.joined()
    assert driver.consumers.members[one.member_id].assigned == {}
    assert owned(new) == ALL[2:]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_c13_a_classic_group_stays_classic_where_upgrades_are_disabled(policy: str) -> None:
    driver = ConsumerDriver(GroupConfig(consumer_migration_policy=policy))
    one, _ = classic_pair(driver)
    assert driver.client().join().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert one.heartbeat() is ErrorCode.NONE


def test_c13_state_of_a_custom_assignor_is_not_lost(driver: ConsumerDriver) -> None:
    _, joined = driver.join_new(protocols=(("mine", subscription("t")),))
    driver.sync(joined.response, {joined.response.member_id: assignment(0, user_data=b"mine")})
    assert driver.client().join().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.group.state is GroupState.STABLE


def test_the_user_data_of_librdkafkas_sticky_assignor_is_no_custom_state(driver: ConsumerDriver) -> None:
    _, joined = driver.join_new(protocols=(("cooperative-sticky", subscription("t")),))
    driver.sync(joined.response, {joined.response.member_id: assignment(0, user_data=b"\0\0\0\1")})
    assert driver.client().join().code is ErrorCode.NONE


def test_groups_of_other_protocol_types_are_no_consumer_groups(driver: ConsumerDriver) -> None:
    driver.join_new(protocol_type="connect")
    assert driver.client().join().code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_an_unreadable_subscription_is_not_upgraded(driver: ConsumerDriver) -> None:
    driver.join_new(protocols=(("range", b"\0\0\0\0\0\7"),))
    assert driver.client().join().code is ErrorCode.GROUP_ID_NOT_FOUND


def test_s85_an_upgrade_that_cannot_be_logged_leaves_the_classic_group(driver: ConsumerDriver) -> None:
    one, _ = classic_pair(driver)
    driver.fail_appends = True
    assert driver.client().join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.fail_appends = False
    assert one.heartbeat() is ErrorCode.NONE
    assert isinstance(driver.machine.groups["g"], ClassicGroup)


def test_a_classic_group_without_members_is_replaced_and_its_offsets_stay(driver: ConsumerDriver) -> None:
    one = ClassicClient(driver)
    one.join()
    one.sync({one.member_id: assignment(0, 1, 2, 3)})
    driver.commit({("t", 0): 7}, member_id=one.member_id, generation=one.generation)
    driver.leave(one.member_id)
    assert owned(driver.joined()) == ALL
    assert isinstance(driver.replayed().groups["g"], ConsumerGroup)
    found = driver.machine.offsets.get("g", "t", 0)
    assert found is not None
    assert found.offset == 7


def test_a_consumer_group_without_members_is_replaced_and_its_offsets_stay(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.commit({("t", 0): 7}, member_id="m1", generation=2)
    first.leave()
    one = ClassicClient(driver)
    assert one.join().code is ErrorCode.NONE
    one.read(one.sync({one.member_id: assignment(0)}))
    assert isinstance(driver.machine.groups["g"], ClassicGroup)
    assert isinstance(driver.replayed().groups["g"], ClassicGroup)
    assert driver.machine.offsets.get("g", "t", 0) is not None


@pytest.mark.parametrize("how", ["leaves", "dies", "is removed"])
def test_a_group_becomes_classic_again_when_its_last_consumer_leaves(driver: ConsumerDriver, how: str) -> None:
    one, two = classic_pair(driver)
    new = driver.joined()
    settle(driver, [one, two], new)
    if how == "leaves":
        new.leave()
    elif how == "is removed":
        assert driver.leave(new.member_id).code is ErrorCode.NONE
    else:
        while isinstance(driver.machine.groups["g"], ConsumerGroup):
            driver.advance(1.0)
            if isinstance(driver.machine.groups["g"], ConsumerGroup):
                one.heartbeat(), two.heartbeat()
    group = driver.machine.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.generation == 3
    assert isinstance(driver.replayed().groups["g"], ClassicGroup)
    driver.advance(0.1)
    assert group.state is GroupState.PREPARING_REBALANCE
    one.join(), two.join()
    assert one.take().code is ErrorCode.NONE
    assert [name for name, _ in group.members[one.member_id].protocols] == ["range", "other"]


def test_a_consumer_group_stays_one_where_downgrades_are_disabled() -> None:
    driver = ConsumerDriver(GroupConfig(consumer_migration_policy="upgrade"))
    one, two = classic_pair(driver)
    new = driver.joined()
    settle(driver, [one, two], new)
    new.leave()
    assert isinstance(driver.machine.groups["g"], ConsumerGroup)
    settle(driver, [one, two])
    assert sorted([*one.owns, *two.owns]) == [0, 1, 2, 3]


def test_a_classic_member_joins_a_consumer_group(driver: ConsumerDriver) -> None:
    new = driver.joined()
    driver.advance(2)
    one = ClassicClient(driver)
    assert one.join().code is ErrorCode.NONE
    assert one.joined.response.protocol_name == "range"
    assert one.joined.response.leader == ""
    one.read(one.sync())
    assert one.owns == ()
    settle(driver, [one], new)
    assert sorted([*one.owns, *(partition for _, partition in new.owns)]) == [0, 1, 2, 3]
    assert len(one.owns) == 2


def test_c14_a_classic_member_is_asked_to_join_when_there_is_something_to_do(driver: ConsumerDriver) -> None:
    new = driver.joined()
    driver.advance(2)
    one = ClassicClient(driver)
    one.join()
    one.read(one.sync())
    assert one.heartbeat() is ErrorCode.NONE, "what it waits for is not free yet"
    new.beat()
    new.beat()
    assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_that_does_not_join_again_is_removed(driver: ConsumerDriver) -> None:
    new = driver.joined()
    driver.advance(2)
    one = ClassicClient(driver)
    one.join()
    one.read(one.sync())
    new.beat()
    new.beat()
    for _ in range(REBALANCE_MS // 1000):
        assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        driver.advance(1.0)
    assert one.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_sync_is_removed(driver: ConsumerDriver) -> None:
    new = driver.joined()
    one = ClassicClient(driver)
    one.join()
    for _ in range(REBALANCE_MS // 1000):
        assert one.heartbeat() is not ErrorCode.UNKNOWN_MEMBER_ID
        new.beat()
        driver.advance(1.0)
    assert one.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_has_its_own_session_timeout(driver: ConsumerDriver) -> None:
    driver.joined()
    one = ClassicClient(driver)
    one.join()
    one.read(one.sync())
    driver.advance(SESSION_MS / 1000)
    assert one.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_bad_requests_of_a_classic_member_are_refused(driver: ConsumerDriver) -> None:
    new = driver.joined()
    one = ClassicClient(driver)
    one.join()
    assert driver.heartbeat(one.member_id, 99) is ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(new.member_id, new.epoch) is ErrorCode.UNKNOWN_MEMBER_ID, "it is not a classic member"
    assert driver.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join("x", protocols=(("mine", subscription("t")),)).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join("x", protocols=(("range", b"\0"),)).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_are_refused_where_protocols_may_not_mix() -> None:
    driver = ConsumerDriver(GroupConfig(consumer_migration_policy="disabled"))
    driver.joined()
    assert driver.join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_comes_back_as_a_classic_one_and_the_group_with_it(driver: ConsumerDriver) -> None:
    """The last member of the consumer protocol is replaced. The replacement changes no assignment, so no member has to
    rejoin.
    """
    new = driver.joined(instance_id="i1")
    driver.advance(2)
    new.leave(-2)
    one = ClassicClient(driver, "i1")
    assert one.join().code is ErrorCode.NONE
    group = driver.machine.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.members.keys() == {one.member_id}
    driver.advance(0.5)
    assert group.state is GroupState.STABLE
    one.read(one.sync())
    assert one.owns == (0, 1, 2, 3)
    assert isinstance(driver.replayed().groups["g"], ClassicGroup)


def test_groups_are_described_by_protocol(driver: ConsumerDriver) -> None:
    driver.joined()
    with pytest.raises(KafkaError, match="is not a classic group"):
        driver.machine.find_classic("g")
    classic = ConsumerDriver()
    classic_pair(classic)
    with pytest.raises(KafkaError, match="is not a consumer group"):
        classic.machine.find_consumer("g")


def test_a_static_member_that_upgrades_a_group_whose_rebalance_is_open_gets_all_partitions(
    driver: ConsumerDriver,
) -> None:
    """A simulated seed (10113): the target of a member that had left stayed without an owner for good."""
    static = ClassicClient(driver, "i1")
    static.join()
    static.read(static.sync({static.member_id: assignment(0, 1, 2, 3)}))
    other = driver.joined()
    driver.settle(other, rounds=2)
    other.leave()  # the group is classic again, and `static`, which has stopped, should join with half of a target
    assert isinstance(driver.machine.groups["g"], ClassicGroup)
    upgraded = driver.joined(instance_id="i1")
    driver.settle(upgraded)
    assert sorted(upgraded.owns) == ALL
    assert state_of(driver.replayed()) == state_of(driver.machine)


@pytest.mark.parametrize("moves", ["never", "before the members are asked to join", "after that"])
def test_members_that_wait_for_partitions_join_again_when_the_group_becomes_classic(
    driver: ConsumerDriver, moves: str
) -> None:
    """Seed 401954 (short): a classic member waits for partitions of the last member of the consumer protocol, which
    comes back as a classic member. The classic group had them as assigned, but nobody told the waiting member.
    """
    new = driver.joined(instance_id="i1")
    driver.advance(2)
    waiting = ClassicClient(driver)
    waiting.join()
    waiting.read(waiting.sync())
    assert waiting.owns == ()
    new.leave(-2)
    static = ClassicClient(driver, "i1")
    static.join()
    group = driver.machine.groups["g"]
    assert isinstance(group, ClassicGroup)
    if moves == "after that":
        driver.advance(0.1)
    if moves != "never":
        driver.restart()  # another coordinator loads the group
    driver.advance(0.1)
    group = driver.machine.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert waiting.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_join_again_after_a_failover_when_the_last_member_of_the_consumer_protocol_has_left(
    driver: ConsumerDriver,
) -> None:
    new = driver.joined()
    driver.advance(2)
    waiting = ClassicClient(driver)
    waiting.join()
    waiting.read(waiting.sync())
    new.leave()
    driver.restart()
    driver.advance(0.1)
    assert waiting.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
