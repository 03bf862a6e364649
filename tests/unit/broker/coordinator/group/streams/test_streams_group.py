"""The state of a streams group: which member may own which task, and the replay of records in any order."""

from __future__ import annotations

from typing import Any

from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember
from oncelog_broker.coordinator.group.streams_records import StreamsGroupEpochRecord, StreamsTopologyRecord
from oncelog_broker.coordinator.group.streams_tasks import NOTHING, CurrentTasks, Role

ACTIVE, STANDBY, WARMUP = Role.ACTIVE, Role.STANDBY, Role.WARMUP


def member(name: str, process: str, assigned: CurrentTasks, pending: CurrentTasks = NOTHING) -> StreamsMember:
    return StreamsMember(name, 2, process_id=process, assigned=assigned, pending_revocation=pending)


def group_of(*members: StreamsMember) -> StreamsGroup:
    group = StreamsGroup("g")
    for each in members:
        if each.member_id not in group.members:
            group.replay(each.metadata_record("g"))
        group.replay(each.current_record("g"))
    return group


def test_an_active_task_has_one_owner_and_a_process_has_a_task_once() -> None:
    a = member("a", "p", CurrentTasks({"0": {1: 2}}, {"0": frozenset({2})}, {"0": frozenset({3})}))
    b, c = member("b", "p", NOTHING), member("c", "q", NOTHING)
    group = group_of(a, b, c)

    def free(who: StreamsMember, number: int) -> list[bool]:
        return [group.is_free(role, "0", number, who) for role in (ACTIVE, STANDBY, WARMUP)]

    assert free(b, 0) == free(c, 0) == [True, True, True]
    assert free(b, 1) == [False, False, False], "of the same process"
    assert free(c, 1) == [False, True, True], "nobody else may have it as an active task"
    for number in (2, 3):
        assert free(b, number) == [False, False, False]
        assert free(c, number) == [True, True, True]


def test_a_member_may_keep_what_it_was_to_give_up() -> None:
    pending = CurrentTasks({"0": {1: 2}}, {"0": frozenset({2})}, {"0": frozenset({3})})
    a, b, c = member("a", "p", CurrentTasks(), pending), member("b", "p", NOTHING), member("c", "q", pending)
    group = group_of(a, b)
    for number in (1, 2, 3):
        assert all(group.is_free(role, "0", number, a) for role in Role)
        assert not any(group.is_free(role, "0", number, b) for role in Role)
    assert not group.is_free(ACTIVE, "0", 1, c)


def test_records_of_members_may_come_in_any_order() -> None:
    """Compaction removes older records, so replay may read a task's new owner before the record with which the previous
    owner gave up the task.
    """
    had = member("a", "p", CurrentTasks({"0": {1: 2}}, {"0": frozenset({2})}))
    left = member("a", "p", NOTHING)
    has = member("b", "q", CurrentTasks({"0": {1: 3}}, {"0": frozenset({2})}))
    one, other = group_of(had, left, has), group_of(had, has, left)
    for group in (one, other):
        assert group.active_owners == {("0", 1): "b"}
        assert group.copies == {("0", 2): {"b"}}
        group.replay(group.tombstones_of("b")[2])
        assert group.active_owners == {} and group.copies == {}


def test_a_group_exists_until_its_last_tombstone_is_logged() -> None:
    """Otherwise a topology without its tombstone would create the group again when the log is loaded."""
    *others, last = StreamsGroup("g").tombstones()
    assert isinstance(last, StreamsGroupEpochRecord)
    assert any(isinstance(record, StreamsTopologyRecord) for record in others)


def test_a_record_of_a_later_release_is_kept() -> None:
    record: Any = member("a", "p", NOTHING).current_record("g")
    record.value.state = 42
    group = StreamsGroup("g")
    group.replay(record)
    assert group.members["a"].state.name == "UNKNOWN"
