"""Members of a consumer group join, revoke partitions, are fenced and leave; the tests send each heartbeat."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.consumer_groups import REBALANCE_TIMEOUT_MS, ConsumerDriver, owned, topic
from tests.support.groups import state_of

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroupState
from oncelog_broker.coordinator.group.consumer.heartbeat import check_request
from oncelog_broker.coordinator.group.consumer.member import MemberState
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

ALL = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver()


def test_the_first_member_gets_all_in_its_first_answer(driver: ConsumerDriver) -> None:
    first = driver.joined()
    assert first.epoch == 2  # as in Kafka 4.3, a new group starts at epoch 1
    assert owned(first) == ALL
    assert first.interval_ms == 5000
    assert driver.consumers.state is ConsumerGroupState.STABLE


def test_a_second_member_gets_its_part_when_the_first_has_given_it_up(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.advance(2)
    second = driver.joined()
    assert (owned(second), second.epoch) == ([], 3)
    assert driver.consumers.members["m2"].state is MemberState.UNRELEASED
    first.beat()
    assert owned(first) == [("t", 0), ("t", 1)]
    assert first.epoch == 2, "it stays in its epoch until it has given up what it is to"
    second.beat()
    assert owned(second) == [], "the first has not said yet that it gave them up"
    first.beat()
    assert first.epoch == 3
    second.beat()
    assert owned(second) == [("t", 2), ("t", 3)]
    assert driver.consumers.state is ConsumerGroupState.STABLE


def test_an_idle_heartbeat_of_a_stable_member_logs_nothing_and_keeps_it_alive(driver: ConsumerDriver) -> None:
    first = driver.joined()
    logged = len(driver.log)
    for _ in range(5):
        driver.advance(44)
        assert first.idle().response.assignment is None
    assert len(driver.log) == logged
    driver.advance(45)
    assert first.idle().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_c1_a_member_that_missed_the_answer_with_the_new_epoch_is_let_in(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.advance(2)
    driver.joined()
    before = first.beat().response
    first.beat()  # the first member has revoked its partitions, so its epoch is 3 now
    first.epoch = before.member_epoch
    assert first.beat().code is ErrorCode.NONE
    assert first.epoch == 3


@pytest.mark.parametrize("epoch", [1, 4])
def test_c1_a_member_with_an_epoch_that_it_never_had_is_fenced(driver: ConsumerDriver, epoch: int) -> None:
    first = driver.joined()
    first.epoch = epoch
    assert first.beat().code is ErrorCode.FENCED_MEMBER_EPOCH


def test_c1_a_member_with_the_previous_epoch_and_foreign_partitions_is_fenced(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.advance(2)
    driver.joined()
    first.beat()
    first.beat()
    first.epoch, first.owns = 2, frozenset(ALL)
    assert first.beat().code is ErrorCode.FENCED_MEMBER_EPOCH


def test_c2_a_member_that_never_revokes_is_fenced_after_its_rebalance_timeout(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.advance(2)
    second = driver.joined()
    first.beat()
    first.owns = frozenset(ALL)  # the member is still in its revocation callback
    for _ in range(29):
        driver.advance(1)
        assert first.beat().code is ErrorCode.NONE
        second.beat()
        assert owned(second) == []
    driver.advance(1)
    assert first.beat().code is ErrorCode.UNKNOWN_MEMBER_ID
    second.beat()
    assert owned(second) == ALL


def test_c3_a_member_that_unsubscribes_while_revoking_stays_in_its_epoch(driver: ConsumerDriver) -> None:
    driver.set_topics(topic("s", 2))
    first = driver.joined(topics=("s", "t"))
    driver.advance(2)
    second = driver.joined(topics=("s", "t"))
    first.beat()
    assert owned(first) == [("s", 0), ("s", 1), ("t", 0)]
    epoch = first.epoch
    first.owns = frozenset({*ALL, ("s", 0), ("s", 1)})  # the member has not revoked any partition yet
    first.subscribe("t")
    assert (first.epoch, owned(first)) == (epoch, [("t", 0)])
    driver.settle(first, second)
    assert owned(first, second) == [("s", 0), ("s", 1), *ALL]


@pytest.mark.parametrize("state", [MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED])
def test_c4_a_fenced_member_comes_back_with_its_old_id(driver: ConsumerDriver, state: MemberState) -> None:
    first = driver.joined()
    driver.advance(2)
    second = driver.joined()
    if state is MemberState.STABLE:
        driver.settle(first, second)
    else:
        first.beat()
    member = first if state is MemberState.UNREVOKED else second
    assert driver.consumers.members[member.member_id].state is state
    group_epoch = driver.consumers.epoch
    assert member.join().code is ErrorCode.NONE
    assert driver.consumers.epoch == group_epoch, "it says what it said before"
    driver.settle(first, second)
    assert owned(first, second) == ALL


def test_c7_a_topic_that_is_made_again_is_another_topic(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.set_topics(topic("t", 2, incarnation=1), without=["t"])
    driver.advance(2)
    first.idle()
    first.beat()
    assert owned(first) == [("t.1", 0), ("t.1", 1)]
    assert set(driver.consumers.members["m1"].assigned) == {driver.view.id_of("t")}


def test_new_partitions_are_assigned_by_the_next_heartbeat_of_anybody(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.set_topics(topic("t", 5))
    driver.advance(2)
    first.idle()
    assert owned(first) == [*ALL, ("t", 4)]


def test_a_topic_that_nobody_reads_moves_nothing(driver: ConsumerDriver) -> None:
    first = driver.joined()
    epoch, logged = driver.consumers.epoch, len(driver.log)
    driver.set_topics(topic("other", 5))
    driver.advance(2)
    first.idle()
    assert (driver.consumers.epoch, len(driver.log)) == (epoch, logged)


def test_c10_many_members_in_one_second_are_one_assignment(driver: ConsumerDriver) -> None:
    members = [driver.joined() for _ in range(20)]
    assert [member.interval_ms for member in members[1:]] == [1000] * 19, "the next heartbeat is to come soon"
    assert driver.consumers.assignment_epoch == 2
    assert driver.consumers.state is ConsumerGroupState.ASSIGNING
    driver.advance(1)
    members[3].beat()
    assert driver.consumers.assignment_epoch == driver.consumers.epoch == 21


def test_c11_an_empty_group_is_not_assigning(driver: ConsumerDriver) -> None:
    first = driver.joined()
    first.leave()
    group = driver.consumers
    assert (group.state, group.epoch, group.assignment_epoch) == (ConsumerGroupState.EMPTY, 3, 3)
    driver.restart()
    assert driver.consumers.state is ConsumerGroupState.EMPTY
    assert owned(driver.joined()) == ALL


def test_c17_a_clock_that_was_set_back_does_not_stop_assignments(driver: ConsumerDriver) -> None:
    driver.seconds = 7200.0
    first = driver.joined()
    driver.seconds = 0.0
    second = driver.joined()
    driver.settle(first, second, rounds=4)
    assert owned(first, second) == ALL
    assert len(second.owns) == 2


def test_a_full_request_is_answered_with_all(driver: ConsumerDriver) -> None:
    first = driver.joined()
    answer = first.beat(rebalance_timeout_ms=30_000, subscribed_topic_names=["t"])
    assert answer.response.assignment is not None
    assert owned(first) == ALL


def test_fields_that_are_left_out_stay_as_they_were(driver: ConsumerDriver) -> None:
    first = driver.joined(assignor="range")
    first.beat(rack_id="r1")
    member = driver.consumers.members["m1"]
    assert (member.assignor, member.rack_id, member.topics) == ("range", "r1", frozenset({"t"}))


def test_a_member_without_subscription_revokes_all_partitions(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.advance(2)
    first.subscribe()
    assert owned(first) == []
    first.beat()
    assert driver.consumers.state is ConsumerGroupState.STABLE
    assert driver.consumers.owners == {}


def test_leaving_frees_the_partitions(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.advance(2)
    second = driver.joined()
    assert first.leave().response.member_epoch == -1
    driver.advance(2)
    second.beat()
    assert owned(second) == ALL
    assert first.leave().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_does_not_exist_can_only_be_joined(driver: ConsumerDriver) -> None:
    client = driver.client()
    client.epoch = 3
    assert client.beat().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert client.leave().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.machine.groups == {}


def test_a_member_that_is_not_known_is_told_so(driver: ConsumerDriver) -> None:
    driver.joined()
    stranger = driver.client()
    stranger.epoch = 2
    assert stranger.beat().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_accepts_only_its_members() -> None:
    driver = ConsumerDriver(GroupConfig(consumer_max_size=1))
    first = driver.joined()
    assert driver.client().join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.join().code is ErrorCode.NONE


def test_the_data_that_members_send_about_themselves_is_bounded() -> None:
    driver = ConsumerDriver(GroupConfig(member_metadata_max_bytes=3000, metadata_max_bytes=5000))
    assert driver.client(topics=tuple(f"{n:0100}" for n in range(20))).join().code is ErrorCode.MESSAGE_TOO_LARGE
    driver.joined(topics=tuple(f"{n:0100}" for n in range(15)))
    assert driver.client(topics=tuple(f"{n:0100}" for n in range(15))).join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.held.bytes == driver.consumers.held_bytes > 1500


def test_s85_a_step_that_cannot_be_logged_changes_nothing(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.advance(2)
    driver.fail_appends = True
    assert driver.client().join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert first.subscribe("u").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.fail_appends = False
    assert first.idle().code is ErrorCode.NONE
    assert owned(first) == ALL


def test_a_restart_knows_what_was_logged(driver: ConsumerDriver) -> None:
    first, second = driver.joined(), driver.client()
    driver.advance(2)
    second.join()
    first.beat()
    before = state_of(driver.machine)
    driver.restart()
    assert state_of(driver.machine) == before
    for _ in range(29):
        driver.advance(1)
        second.beat()
        assert driver.consumers.members.keys() == {"m1", "m2"}
    driver.advance(1)
    assert driver.consumers.members.keys() == {"m2"}, "the rebalance timeout of the first runs anew"


def test_a_group_may_have_settings_of_its_own(driver: ConsumerDriver) -> None:
    driver.overrides["g"] = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    first = driver.joined()
    assert first.interval_ms == 7000
    driver.advance(49)
    assert first.idle().code is ErrorCode.NONE
    driver.advance(50)
    assert first.idle().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_assignor_that_most_members_name_is_used(driver: ConsumerDriver) -> None:
    driver.set_topics(topic("u", 3), topic("t", 3))
    first = driver.joined(topics=("t", "u"))
    second = driver.joined(topics=("t", "u"))
    driver.settle(first, second)
    assert len(first.owns) == 3
    first.beat(server_assignor="range")
    driver.settle(first, second)
    assert sorted(map(len, (first.owns, second.owns))) == [2, 4], "two of three partitions of each topic"


# --- static members


def test_a_static_member_that_leaves_for_a_while_keeps_its_partitions(driver: ConsumerDriver) -> None:
    first, second = driver.joined(instance_id="i1"), driver.joined()
    driver.settle(first, second)
    kept, group_epoch = set(first.owns), driver.consumers.epoch
    assert first.leave(-2).response.member_epoch == -2
    second.beat()
    assert len(second.owns) == 2
    again = driver.client(instance_id="i1")
    again.join()
    assert set(again.owns) == kept
    assert driver.consumers.epoch == group_epoch, "nobody else is moved"
    assert "m1" not in driver.consumers.members
    second.beat()
    assert len(second.owns) == 2


def test_a_static_member_that_does_not_come_back_is_removed_when_its_session_ends(driver: ConsumerDriver) -> None:
    first = driver.joined(instance_id="i1")
    first.leave(-2)
    driver.advance(45)
    assert driver.consumers.state is ConsumerGroupState.EMPTY


def test_c12_an_instance_id_that_is_in_use_is_refused(driver: ConsumerDriver) -> None:
    first = driver.joined(instance_id="i1")
    assert driver.client(instance_id="i1").join().code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert first.beat().code is ErrorCode.NONE


def test_c12_a_full_group_lets_a_static_member_back_in() -> None:
    driver = ConsumerDriver(GroupConfig(consumer_max_size=1))
    driver.joined(instance_id="i1").leave(-2)
    assert owned(driver.joined(instance_id="i1")) == ALL


def test_c12_a_replaced_member_is_fenced(driver: ConsumerDriver) -> None:
    first = driver.joined(instance_id="i1")
    first.leave(-2)
    driver.joined(instance_id="i1")
    first.epoch = 2
    assert first.idle().code is ErrorCode.FENCED_INSTANCE_ID
    assert first.leave().code is ErrorCode.FENCED_INSTANCE_ID


def test_c12_another_instance_id_frees_the_old_one(driver: ConsumerDriver) -> None:
    first = driver.joined(instance_id="i1")
    first.instance_id = "i2"
    assert first.join().code is ErrorCode.NONE
    assert driver.consumers.static_members == {"i2": "m1"}
    assert driver.client(instance_id="i1").join().code is ErrorCode.NONE


def test_an_instance_that_is_not_known_must_join_first(driver: ConsumerDriver) -> None:
    driver.joined()
    client = driver.client(instance_id="i1")
    client.epoch = 2
    assert client.idle().code is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.leave(-2).code is ErrorCode.UNKNOWN_MEMBER_ID


# --- requests that are invalid by themselves

JOINS: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1,
    "subscribed_topic_names": [],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ({"member_id": ""}, 1),
        ({"member_id": "", "member_epoch": 1}, 0),
        ({"member_id": "", "member_epoch": -1}, 0),
        ({"group_id": ""}, 1),
        ({"instance_id": ""}, 1),
        ({"rack_id": " "}, 1),
        ({"rebalance_timeout_ms": -1}, 1),
        ({"topic_partitions": None}, 1),
        ({"topic_partitions": [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=bytes(16), partitions=[0])]}, 1),
        ({"subscribed_topic_names": None}, 1),
        ({"member_epoch": -2}, 1),
        ({"member_epoch": -3}, 1),
    ],
)
def test_requests_that_are_invalid_whatever_the_group_is(said: dict[str, Any], version: int) -> None:
    with pytest.raises(KafkaError) as raised:
        check_request(ConsumerGroupHeartbeatRequest(**(JOINS | said)), version, ("uniform",))
    assert raised.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ({}, 1),
        ({"member_id": ""}, 0),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": ""}, 1),
        ({"member_epoch": -2, "instance_id": "i"}, 1),
        ({"server_assignor": "uniform"}, 1),
    ],
)
def test_requests_that_are_valid(said: dict[str, Any], version: int) -> None:
    check_request(ConsumerGroupHeartbeatRequest(**(JOINS | said)), version, ("uniform",))


def test_an_assignor_that_is_not_configured_is_refused() -> None:
    with pytest.raises(KafkaError, match="Supported assignors: uniform") as raised:
        check_request(ConsumerGroupHeartbeatRequest(**JOINS, server_assignor="range"), 1, ("uniform",))
    assert raised.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize("restarts", [False, True])
def test_c12_a_static_member_that_leaves_while_it_revokes_keeps_its_place_until_its_session_ends(
    driver: ConsumerDriver, restarts: bool
) -> None:
    first = driver.joined(instance_id="i1")
    driver.advance(2)
    driver.joined()
    driver.advance(2)
    first.idle()
    assert driver.consumers.members[first.member_id].state is MemberState.UNREVOKED
    kept = driver.consumers.members[first.member_id].assigned
    driver.overrides["g"] = {"consumer.session.timeout.ms": "60000"}
    assert first.leave(-2).code is ErrorCode.NONE
    if restarts:
        driver.restart()
    driver.advance(REBALANCE_TIMEOUT_MS / 1000 + 1)
    assert driver.consumers.members[first.member_id].assigned.keys() == kept.keys()
    driver.advance(30)
    assert first.member_id not in driver.consumers.members


@pytest.mark.parametrize("field", ["rack_id", "client_id", "instance_id", "member_id"])
def test_every_field_that_a_member_sends_is_counted(driver: ConsumerDriver, field: str) -> None:
    said = {"member_id": "m", field: "x" * 5000}
    answer = driver.consumer_heartbeat(
        member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=[], topic_partitions=[], **said
    )
    assert answer.code is ErrorCode.NONE
    assert driver.consumers.held_bytes > 5000


def test_short_names_of_topics_count_as_what_they_take(driver: ConsumerDriver) -> None:
    driver.joined(topics=tuple(f"{number:03}" for number in range(1000)))
    assert driver.consumers.held_bytes > 64_000, "a name of three letters takes much more than three bytes"
