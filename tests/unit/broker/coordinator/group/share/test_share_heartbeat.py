"""Share groups: members join, stay and leave, and get share partitions whose state is initialized."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.consumer_groups import topic
from tests.support.groups import state_of
from tests.support.share_groups import ShareDriver

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.share.heartbeat import FROM_THE_START, VERY_SOON_MS, check_request
from oncelog_broker.coordinator.group.share.share_group import ShareGroup, ShareGroupState
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest
from oncelog_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

ALL_OF_T = frozenset(("t", number) for number in range(4))


@pytest.fixture
def driver() -> ShareDriver:
    return ShareDriver()


def reloaded(driver: ShareDriver) -> Any:
    """Return a machine that has replayed the logged records."""
    machine = driver.new_machine(HeldBytes())
    for offset, (key, value) in enumerate(driver.log):
        record = machine.decode(key, value)
        assert record is not None
        machine.replay(record, offset, -1)
    return machine


def test_a_member_reads_what_was_begun_after_its_second_heartbeat(driver: ShareDriver) -> None:
    client = driver.share_client()
    assert client.join().code is ErrorCode.NONE
    assert (client.epoch, client.reads, client.interval_ms) == (2, frozenset(), VERY_SOON_MS)
    assert driver.begin_states() == [("t", number, -1) for number in range(4)]
    client.beat()
    assert (client.epoch, client.reads, client.interval_ms) == (3, ALL_OF_T, 5_000)
    assert client.beat().response.assignment is None, "as before"
    assert driver.share_group.state is ShareGroupState.STABLE


def test_the_log_says_all(driver: ShareDriver) -> None:
    first = driver.share_joined()
    driver.share_joined(topics=("t", "u"))
    first.beat()
    assert state_of(reloaded(driver)) == state_of(driver.machine)
    first.leave()
    assert state_of(reloaded(driver)) == state_of(driver.machine)


def test_all_members_share_all_partitions_where_there_are_more_members(driver: ShareDriver) -> None:
    clients = [driver.share_joined() for _ in range(6)]
    driver.settle_shares(*clients)
    assert frozenset().union(*(client.reads for client in clients)) == ALL_OF_T
    assert {len(client.reads) for client in clients} <= {1, 2}


def test_a_partition_that_is_added_begins_at_its_first_record(driver: ShareDriver) -> None:
    """If the share partition started at "latest", records from before the start would be lost (KAFKA-20742)."""
    client = driver.share_joined()
    driver.set_topics(topic("t", 6))
    client.beat()
    assert driver.begin_states() == [("t", 4, FROM_THE_START), ("t", 5, FROM_THE_START)]
    driver.settle_shares(client)
    assert client.reads == ALL_OF_T | {("t", 4), ("t", 5)}


def test_states_that_could_not_be_begun_are_asked_for_again(driver: ShareDriver) -> None:
    client = driver.share_client()
    client.join()
    driver.begin_states(("t", 1))
    client.beat()
    assert client.reads == ALL_OF_T - {("t", 1)}
    assert [(name, number) for name, number, _ in driver.begin_states()] == [("t", 1)]


def test_states_whose_beginning_is_not_told_are_asked_for_again_after_a_while(driver: ShareDriver) -> None:
    client = driver.share_client()
    client.join()
    driver.begun.clear()
    driver.advance(1.0)
    client.beat()
    assert driver.begun == []
    for _ in range(6):
        driver.advance(6.0)
        client.beat()
    assert len(driver.begin_states()) == 4


def test_a_loaded_group_asks_at_once_for_what_was_under_way(driver: ShareDriver) -> None:
    driver.share_client().join()
    driver.begun.clear()
    driver.machine = reloaded(driver)
    driver.share_client("m1", epoch=2).beat()
    assert len(driver.begin_states()) == 4


def test_a_member_that_is_silent_goes(driver: ShareDriver) -> None:
    first, second = driver.share_joined(), driver.share_joined()
    for _ in range(10):
        driver.advance(5.0)
        second.beat()
    assert set(driver.share_group.members) == {"m2"}
    assert first.beat().code is ErrorCode.UNKNOWN_MEMBER_ID
    driver.settle_shares(second)
    assert second.reads == ALL_OF_T


def test_leaving(driver: ShareDriver) -> None:
    client = driver.share_joined()
    assert client.leave().response.member_epoch == -1
    assert client.leave().code is ErrorCode.UNKNOWN_MEMBER_ID
    group = driver.share_group
    assert (group.state, group.assignment_epoch) == (ShareGroupState.EMPTY, group.epoch)
    assert driver.held.bytes == 0


def test_epochs(driver: ShareDriver) -> None:
    client = driver.share_joined()
    assert client.send(member_epoch=client.epoch + 1).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert client.send(member_epoch=client.epoch - 1).code is ErrorCode.NONE, "the answer before was lost"
    assert client.send(member_epoch=1).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert client.join().code is ErrorCode.NONE
    assert client.reads == ALL_OF_T


def test_a_member_that_names_an_epoch_finds_no_group_that_was_never_made(driver: ShareDriver) -> None:
    assert driver.share_heartbeat(member_id="m", member_epoch=3).code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_id_belongs_to_one_protocol(driver: ShareDriver) -> None:
    driver.share_joined()
    assert driver.client(member_id="c").join().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.join("c").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.commit({("t", 0): 1}).code is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaError) as raised:
        driver.machine.delete_offsets(OffsetDeleteRequest(group_id="g", topics=[]), lambda topic, partition: True, None)
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    driver.client(member_id="c", group_id="consumers").join()
    assert driver.share_client(group_id="consumers").join().code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_share_group_replaces_no_group_that_keeps_offsets(driver: ShareDriver) -> None:
    driver.commit({("t", 0): 1})
    assert driver.machine.find("g").state is GroupState.EMPTY
    assert driver.share_client().join().code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_has_only_so_many_members() -> None:
    driver = ShareDriver(GroupConfig(share_max_size=1))
    first = driver.share_joined()
    assert driver.share_client().join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.join().code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (GroupConfig(member_metadata_max_bytes=1_000), ErrorCode.MESSAGE_TOO_LARGE),
        (GroupConfig(metadata_max_bytes=1_000), ErrorCode.GROUP_MAX_SIZE_REACHED),
        (GroupConfig(coordinator_metadata_max_bytes=1_000), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_what_members_say_has_limits(config: GroupConfig, expected: ErrorCode) -> None:
    driver = ShareDriver(config)
    assert driver.share_client(topics=tuple(f"topic-{number}" for number in range(20))).join().code is expected
    assert driver.machine.ids() == []


def test_a_subscription_changes(driver: ShareDriver) -> None:
    client = driver.share_joined()
    client.subscribe("u")
    assert client.reads == frozenset(), "what it reads no more is taken at once"
    driver.begin_states()
    driver.settle_shares(client)
    assert client.reads == {("u", 0), ("u", 1)}


def test_a_topic_that_is_deleted_is_read_no_more_and_its_state_forgotten(driver: ShareDriver) -> None:
    client = driver.share_joined(topics=("t", "u"))
    driver.settle_shares(client)
    driver.set_topics(without=("u",))
    driver._carry_out(driver.machine.share.topics_deleted("g"))
    driver.settle_shares(client)
    assert client.reads == ALL_OF_T
    assert set(driver.share_group.state_partitions.assignable()) == {topic("t", 1).topic_id}


def test_q11_a_topic_that_is_made_again_begins_anew(driver: ShareDriver) -> None:
    client = driver.share_joined()
    driver.set_topics(topic("t", 4, incarnation=1))
    client.beat()
    assert driver.begin_states() == [("t.1", number, -1) for number in range(4)]
    driver.settle_shares(client)
    assert client.reads == {("t.1", number) for number in range(4)}


def test_a_topic_whose_state_was_not_forgotten_before_it_was_made_again_causes_no_more_assignments(
    driver: ShareDriver,
) -> None:
    """The coordinator died before it removed the deleted topic's state, so the group still has the topic name with the
    old and the new topic id.
    """
    client = driver.share_joined()
    driver.set_topics(topic("t", 4, incarnation=1))
    driver.settle_shares(client)
    assert client.reads == {("t.1", number) for number in range(4)}
    epoch = driver.share_group.epoch
    for partitions in (1, 2, 3):
        driver.set_topics(topic("another", partitions))
        driver.settle_shares(client)
    assert driver.share_group.epoch == epoch


def test_a_large_group_is_assigned_by_a_job() -> None:
    driver = ShareDriver(topics=[topic("t", 2_000)])
    client = driver.share_client()
    client.join()
    driver.begin_states()
    client.beat()
    assert client.reads == frozenset()
    driver.run_jobs()
    client.beat()
    assert len(client.reads) == 2_000
    assert state_of(reloaded(driver)) == state_of(driver.machine)


def test_assignments_have_their_interval(driver: ShareDriver) -> None:
    first = driver.share_joined()
    epoch = driver.share_group.assignment_epoch
    second = driver.share_client()
    second.join()
    assert second.reads == frozenset() or driver.share_group.assignment_epoch > epoch
    third = driver.share_client()
    third.join()
    assert third.interval_ms <= 1_000
    driver.settle_shares(first, second, third)
    assert first.reads | second.reads | third.reads == ALL_OF_T


def test_a_step_that_cannot_be_logged_changes_nothing(driver: ShareDriver) -> None:
    driver.fail_appends = True
    assert driver.share_client("m9").join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.machine.ids() == []


def test_groups_are_found_and_stay_when_nobody_is_left(driver: ShareDriver) -> None:
    driver.share_joined().leave()
    assert isinstance(driver.machine.find_share("g"), ShareGroup)
    assert driver.machine.expire("g").records == []
    with pytest.raises(KafkaError, match="not a classic group"):
        driver.machine.find_classic("g")
    with pytest.raises(KafkaError, match="not a consumer group"):
        driver.machine.find_consumer("g")


@pytest.mark.parametrize(
    "said",
    [
        {"member_id": ""},
        {"member_id": "x" * 37},
        {"group_id": " "},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"member_epoch": -2},
    ],
)
def test_requests_that_cannot_be(said: dict[str, Any]) -> None:
    fields = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    check_request(ShareGroupHeartbeatRequest(**fields))
    with pytest.raises(KafkaError) as raised:
        check_request(ShareGroupHeartbeatRequest(**fields | said))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
