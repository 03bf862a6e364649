"""The states of share partitions: which leaders may write, what a read returns, and which records are still needed."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import NOT_SET, ShareState
from oncelog_broker.coordinator.share.share_state_machine import ShareStateMachine, StateWrite
from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_protocol.errors import ErrorCode, KafkaError

TOPIC = b"t" * 16
KEY = ShareKey("g", TOPIC, 0)
OTHER = ShareKey("g", TOPIC, 1)
DONE, FREE = DeliveryState.ACKNOWLEDGED, DeliveryState.AVAILABLE


class States:
    """A machine whose effects are carried out immediately; `log` has the records that it logged."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.now_ms = 1_000
        self.updates_per_snapshot = updates_per_snapshot
        self.machine = self.new_machine()
        self.log: list[tuple[bytes, bytes | None]] = []

    def new_machine(self) -> ShareStateMachine:
        return ShareStateMachine(
            lambda: self.now_ms,
            lambda topic_id, partition: topic_id == TOPIC and partition < 2,
            self.updates_per_snapshot,
        )

    def carry_out(self, effects: Effects) -> Any:
        for record in effects.records:
            self.log.append(tuple(self.machine.encode(record)))
            self.machine.replay(record, len(self.log) - 1, -1)
        return effects.replies[0][1] if effects.replies else None

    def initialize(self, state_epoch: int = 1, start: int = 0, key: ShareKey = KEY) -> None:
        self.carry_out(self.machine.initialize(key, state_epoch, start, None))

    def read(self, leader_epoch: int, key: ShareKey = KEY) -> ShareState:
        state = self.carry_out(self.machine.read(key, leader_epoch, None))
        assert isinstance(state, ShareState)
        return state

    def write(
        self, *batches: StateBatch, start: int = NOT_SET, leader: int = 0, state: int = 1, count: int = NOT_SET
    ) -> None:
        self.carry_out(self.machine.write(KEY, StateWrite(state, leader, start, count, batches), None))

    def reloaded(self, begin: int = 0) -> ShareStateMachine:
        machine = self.new_machine()
        for offset, (key, value) in enumerate(self.log):
            if offset >= begin:
                record = machine.decode(key, value)
                assert record is not None
                machine.replay(record, offset, -1)
        return machine


def code(call: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call()
    return raised.value.code


@pytest.fixture
def states() -> States:
    """Create a machine with one share partition, which is led in epoch 0."""
    states = States()
    states.initialize()
    states.read(0)
    return states


def test_a_leader_reads_what_was_written(states: States) -> None:
    states.write(StateBatch(0, 9, DONE, 1), StateBatch(10, 19, FREE, 2), count=10)
    states.write(StateBatch(5, 7, FREE, 3), start=3, count=7)
    state = states.read(1)
    assert (state.start_offset, state.complete_count, state.state_epoch) == (3, 7, 1)
    assert state.batches == (
        StateBatch(3, 4, DONE, 1),
        StateBatch(5, 7, FREE, 3),
        StateBatch(8, 9, DONE, 1),
        StateBatch(10, 19, FREE, 2),
    )


def test_a_load_finds_the_same(states: States) -> None:
    states.write(StateBatch(0, 9, DONE, 1))
    states.read(4)
    assert states.reloaded().states == states.machine.states


def test_q7_a_newer_leader_fences_the_older_one_and_a_new_state_all_leaders(states: States) -> None:
    states.read(3)
    assert code(lambda: states.write(leader=2)) is ErrorCode.FENCED_LEADER_EPOCH
    assert code(lambda: states.read(2)) is ErrorCode.FENCED_LEADER_EPOCH
    states.initialize(state_epoch=2, start=7)
    assert code(lambda: states.write(leader=3, state=1)) is ErrorCode.FENCED_STATE_EPOCH
    assert code(lambda: states.initialize(state_epoch=1)) is ErrorCode.FENCED_STATE_EPOCH
    state = states.read(3)
    assert (state.start_offset, state.batches) == (7, ())


def test_an_epoch_that_was_never_given_is_refused(states: States) -> None:
    """The coordinator adopts a new leader epoch only from a read request, and a new state epoch only from an
    initialization (KAFKA-19456).
    """
    assert code(lambda: states.write(leader=1)) is ErrorCode.INVALID_REQUEST
    assert code(lambda: states.write(state=2)) is ErrorCode.INVALID_REQUEST


def test_a_state_that_is_begun_twice_in_one_epoch_keeps_what_was_written_since(states: States) -> None:
    states.write(StateBatch(0, 9, DONE, 1))
    logged = len(states.log)
    states.initialize()
    assert len(states.log) == logged
    assert states.machine.states[KEY].batches == (StateBatch(0, 9, DONE, 1),)


def test_a_start_offset_is_never_lowered(states: States) -> None:
    states.write(start=20, count=4)
    states.write(start=10, count=9)
    state = states.machine.states[KEY]
    assert (state.start_offset, state.complete_count) == (20, 4)
    states.write(start=20, count=5)
    assert states.machine.states[KEY].complete_count == 5


def test_a_start_offset_is_lowered_for_records_that_were_never_delivered(states: States) -> None:
    """The end of the log was lost, and other records now have the offsets of the lost records."""
    states.write(StateBatch(30, 39, DONE, 1), start=20)
    states.write(StateBatch(10, 18, FREE, 0), start=10)
    states.write(StateBatch(10, 39, FREE, 1), start=10)
    states.write(StateBatch(11, 39, FREE, 0), start=10)
    states.write(StateBatch(0, 39, FREE, 0), start=NOT_SET)
    assert states.machine.states[KEY].start_offset == 20
    states.write(StateBatch(10, 39, FREE, 0), start=10, count=0)
    state = states.machine.states[KEY]
    assert (state.start_offset, state.complete_count, state.batches) == (10, 0, (StateBatch(10, 39, FREE, 0),))
    assert states.reloaded().states == states.machine.states


def test_what_does_not_exist(states: States) -> None:
    assert code(lambda: states.read(0, OTHER)) is ErrorCode.INVALID_REQUEST, "its state is not initialized"
    unknown = ShareKey("g", b"x" * 16, 0)
    assert code(lambda: states.read(0, unknown)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(lambda: states.initialize(key=unknown)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert states.machine.summary(OTHER, NOT_SET) is None


@pytest.mark.parametrize(
    "batch", [StateBatch(5, 4, 0, 1), StateBatch(-1, 4, 0, 1), StateBatch(0, 4, 1, 1), StateBatch(0, 4, 0, -1)]
)
def test_batches_that_cannot_be(states: States, batch: StateBatch) -> None:
    assert code(lambda: states.write(batch)) is ErrorCode.INVALID_REQUEST


def test_a_summary_notes_nothing(states: States) -> None:
    logged = len(states.log)
    found = states.machine.summary(KEY, NOT_SET)
    assert found is not None
    assert len(states.log) == logged
    states.read(3)
    assert code(lambda: states.machine.summary(KEY, 2)) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_deleted_state_is_gone_after_a_load_too(states: States) -> None:
    states.carry_out(states.machine.delete(KEY, None))
    states.carry_out(states.machine.delete(OTHER, None))
    assert states.machine.states == states.reloaded().states == {}
    states.initialize(start=4)
    assert states.read(0).start_offset == 4


def test_a_snapshot_comes_after_so_many_changes_and_makes_older_records_unnecessary() -> None:
    states = States(updates_per_snapshot=3)
    states.initialize()
    states.read(0)
    for number in range(7):
        states.write(StateBatch(2 * number, 2 * number, DONE, 1))
    oldest = states.machine.oldest_snapshot_offset()
    assert oldest is not None
    assert oldest > 0
    assert states.reloaded(oldest).states == states.machine.states


def test_a_share_partition_that_is_not_written_keeps_old_records_until_it_is_written_again(states: States) -> None:
    states.initialize(key=OTHER)
    states.now_ms = 9_000
    for number in range(600):
        states.write(StateBatch(2 * number, 2 * number, DONE, 1))
    oldest = states.machine.oldest_snapshot_offset()
    assert oldest is not None
    assert oldest < 5
    assert states.machine.cold(5_000) == [OTHER]
    states.carry_out(states.machine.write_again(states.machine.cold(5_000)))
    later = states.machine.oldest_snapshot_offset()
    assert later is not None
    assert later > 400
    assert states.reloaded(later).states == states.machine.states


def test_share_partitions_of_deleted_topics_are_forgotten(states: States) -> None:
    states.carry_out(states.machine.forget_topics(frozenset({TOPIC})))
    assert states.machine.states == {}
    assert states.machine.forget_topics(frozenset({TOPIC})).records == []
    assert states.machine.oldest_snapshot_offset() is None


def test_share_partitions_of_topics_that_were_deleted_unnoticed_are_not_written_again(states: States) -> None:
    """The coordinator died before it removed the share partitions of the deleted topic."""
    gone = ShareKey("g", b"x" * 16, 0)
    states.machine.states[gone] = states.machine.states[KEY]
    states.carry_out(states.machine.write_again([KEY, gone]))
    assert set(states.machine.states) == {KEY}


def test_records_of_a_later_release_are_skipped(states: States) -> None:
    assert states.machine.decode(b"\x00\x07whatever", b"\x00\x00") is None
