"""Administrators may change the offsets of share partitions of a group without members."""

from __future__ import annotations

import pytest
from tests.support.consumer_groups import id_of
from tests.support.share_groups import ShareDriver

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.share.state_partitions import StatePartitions
from oncelog_protocol.errors import ErrorCode, KafkaError

T = id_of("t")
ALL = frozenset(range(4))


@pytest.fixture
def driver() -> ShareDriver:
    """A driver with a share group whose last member has left."""
    driver = ShareDriver()
    driver.share_joined().leave()
    return driver


def carried_out(driver: ShareDriver, effects: Effects) -> None:
    driver._carry_out(effects)


def test_altered_offsets_raise_the_state_epoch_and_are_noted_before_and_after(driver: ShareDriver) -> None:
    before = driver.share_group.epoch
    effects, epoch = driver.machine.share.alter_offsets("g", {T: {1: 5}})
    carried_out(driver, effects)
    assert epoch == before + 1 == driver.share_group.epoch
    state = driver.share_group.state_partitions
    assert state.initializing[T].partitions == {1}
    assert state.assignable()[T] == ALL - {1}
    carried_out(driver, driver.machine.share.on_initialized("g", {T: frozenset({1})}, {}))
    assert driver.share_group.state_partitions.assignable()[T] == ALL


def test_altering_makes_a_group(driver: ShareDriver) -> None:
    effects, epoch = driver.machine.share.alter_offsets("new", {T: {0: 5}})
    carried_out(driver, effects)
    assert driver.machine.find_share("new").epoch == epoch == 2


def test_offsets_are_deleted_in_two_steps(driver: ShareDriver) -> None:
    effects, partitions = driver.machine.share.delete_states("g", frozenset({T}))
    carried_out(driver, effects)
    assert partitions == {T: ALL}
    assert driver.share_group.state_partitions == StatePartitions(deleting={T: "t"})
    again, partitions = driver.machine.share.delete_states("g", frozenset({T}))
    assert (again.records, partitions) == ([], {T: ALL}), "after a crash the deletion is asked for again"
    carried_out(driver, driver.machine.share.states_deleted("g", frozenset({T}), with_group=False))
    assert driver.share_group.state_partitions == StatePartitions()


def test_a_topic_without_state_is_not_deleted(driver: ShareDriver) -> None:
    effects, partitions = driver.machine.share.delete_states("g", frozenset({id_of("u")}))
    assert (effects.records, partitions) == ([], {})


def test_a_group_goes_when_its_state_is_gone(driver: ShareDriver) -> None:
    effects, partitions = driver.machine.share.delete_states("g", None)
    carried_out(driver, effects)
    with pytest.raises(KafkaError):
        driver.machine.share.states_deleted("g", frozenset(), with_group=True)
    carried_out(driver, driver.machine.share.states_deleted("g", frozenset(partitions), with_group=True))
    assert driver.machine.ids() == []


def test_members_are_in_the_way(driver: ShareDriver) -> None:
    driver.share_joined()
    for operation in (
        lambda: driver.machine.share.delete_states("g", None),
        lambda: driver.machine.share.alter_offsets("g", {T: {0: 0}}),
    ):
        with pytest.raises(KafkaError) as raised:
            operation()
        assert raised.value.code is ErrorCode.NON_EMPTY_GROUP


def test_groups_that_are_no_share_groups(driver: ShareDriver) -> None:
    driver.client(group_id="consumers").join()
    for group_id in ("consumers", "unknown"):
        with pytest.raises(KafkaError) as raised:
            driver.machine.share.delete_states(group_id, None)
        assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
