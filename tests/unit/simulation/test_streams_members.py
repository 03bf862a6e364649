"""The notes of members of streams groups, and the judge of their tasks: each rule notices when it is broken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog import Admin
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember
from oncelog_broker.coordinator.group.streams_tasks import CurrentTasks
from oncelog_protocol.errors import ErrorCode
from oncelog_simulation.judges import streams_tasks
from oncelog_simulation.judges.committed import Committed
from oncelog_simulation.judges.streams_tasks import StreamsTasks, tasks_with_two
from oncelog_simulation.run import run
from oncelog_simulation.scenario import WholeCluster, draw_whole_plan
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.streams_members import Membership, have_all_tasks
from oncelog_simulation.workloads.streams_wire import ALL_TASKS, STREAMS_GROUP, Task, Tasks, place_of
from oncelog_simulation.workloads.workload import ClientWorkload
from oncelog_simulation.world import World
from oncelog_testing.history.events import Outcome

TASK: Task = ("0", 1)
WORLD: Any = SimpleNamespace(note=lambda *_, **__: None)


class FakeWire:
    """The coordinator's responses to one member: `code` answers each commit, and NONE each leaving."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code

    async def commit(self, *_: object) -> ErrorCode:
        return self.code

    async def leave(self) -> ErrorCode:
        return ErrorCode.NONE


def member(notes: Notes, member_id: str, code: ErrorCode = ErrorCode.NONE, epoch: int = 3) -> Membership:
    found = Membership(WORLD, notes, None, member_id, member_id)  # type: ignore[arg-type]
    found._wire = FakeWire(code)  # type: ignore[assignment]
    found.epoch, found.active = epoch, frozenset({TASK})
    return found


@pytest.mark.parametrize(("epoch", "is_wrong"), [(3, True), (4, False)])
def test_two_members_with_one_task_in_one_epoch_are_a_violation(epoch: int, is_wrong: bool) -> None:
    notes = Notes()
    member(notes, "a").got(TASK, 3)
    member(notes, "a").got(TASK, 3)
    assert notes.complaints == []
    member(notes, "b").got(TASK, epoch)
    assert bool(notes.complaints) is is_wrong


@pytest.mark.parametrize(
    ("owner", "epoch", "code", "is_wrong"),
    [
        ("b", 4, ErrorCode.NONE, True),
        ("b", 4, ErrorCode.STALE_MEMBER_EPOCH, False),
        ("b", 2, ErrorCode.NONE, False),  # the other member got the task before this one
        ("a", 4, ErrorCode.NONE, False),
    ],
)
def test_a_commit_for_a_task_that_another_member_got_since_is_a_violation(
    owner: str, epoch: int, code: ErrorCode, is_wrong: bool
) -> None:
    notes = Notes()
    member(notes, owner).got(TASK, epoch)
    assert asyncio.run(member(notes, "a", code).commit(TASK, 3)) is (not code)
    assert bool(notes.complaints) is is_wrong
    (commit,) = notes.history.commits
    assert (commit.place, commit.offset) == (place_of(TASK), 1)
    assert (commit.outcome is Outcome.ACKNOWLEDGED) is (not code)


@pytest.mark.parametrize(("code", "is_wrong"), [(ErrorCode.NONE, True), (ErrorCode.UNKNOWN_MEMBER_ID, False)])
def test_a_commit_after_leaving_is_a_violation(code: ErrorCode, is_wrong: bool) -> None:
    notes = Notes()
    asyncio.run(member(notes, "a", code).leave())
    assert bool(notes.complaints) is is_wrong


def test_the_group_has_a_committed_offset_so_that_no_coordinator_deletes_it_and_begins_its_epochs_again() -> None:
    plan = replace(draw_whole_plan(1), seconds=0.1, workloads=("streams-member-1",), strikes=())
    offsets: list[int] = []

    async def note_offsets(world: World) -> None:
        async with Admin(world.bootstrap_servers) as admin:
            offsets.extend(each.offset for each in (await admin.groups.offsets(STREAMS_GROUP)).values())

    class Watched(WholeCluster):
        def workloads(self, world: World) -> Sequence[ClientWorkload]:
            (member,) = super().workloads(world)
            prepare = member.prepare

            async def prepare_and_note(world: World) -> None:
                await prepare(world)
                await world.client("auditor").run(lambda: note_offsets(world))

            member.prepare = prepare_and_note  # type: ignore[method-assign]
            return [member]

    assert run(plan, Watched()).violations == ()
    assert offsets == [0]


def test_the_members_have_all_tasks_if_each_task_has_one_of_them() -> None:
    notes = Notes()
    notes.streams_tasks = {"a": frozenset({TASK}), "b": ALL_TASKS - {TASK}}
    assert have_all_tasks(notes)
    del notes.streams_tasks["a"]
    assert not have_all_tasks(notes)


def test_a_task_with_two_members_is_a_violation_also_while_one_of_them_must_give_it_up() -> None:
    tasks = CurrentTasks({"0": {1: 3}})
    elder, younger = StreamsMember("a", pending_revocation=tasks), StreamsMember("b", assigned=tasks)
    assert list(tasks_with_two([elder])) == []
    assert list(tasks_with_two([elder, younger])) == ["a and b both have the active task 0_1"]


class LastMember:
    """Stands for `Membership`: a member that gets the tasks `active` at its first heartbeat."""

    active: Tasks = frozenset()

    def __init__(self, *_: object) -> None:
        self.has_left = False

    async def beat(self) -> None: ...

    async def leave(self) -> None:
        self.has_left = True


class NoWire:
    def __init__(self, _: str) -> None: ...

    async def __aenter__(self) -> NoWire:
        return self

    async def __aexit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (frozenset(), []),
        (frozenset({TASK}), ["('0', 1)"]),
    ],
)
def test_a_task_that_nobody_gets_after_the_faults_is_a_violation(
    missing: Tasks, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(work: Callable[[], Awaitable[None]]) -> None:
        await work()

    world: Any = SimpleNamespace(
        plan=SimpleNamespace(leisure=1.0),
        bootstrap_servers="",
        client=lambda _: SimpleNamespace(run=run),
        brokers={},
        rotted={},
    )
    monkeypatch.setattr(LastMember, "active", ALL_TASKS - missing)
    monkeypatch.setattr(streams_tasks, "Membership", LastMember)
    monkeypatch.setattr(streams_tasks, "Wire", NoWire)
    monkeypatch.setattr(streams_tasks, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(streams_tasks, "BEAT_SECONDS", 0.01)
    notes = Notes()
    found = list(asyncio.run(StreamsTasks(notes, Committed(notes)).conclude(world)))  # type: ignore[arg-type]
    assert len(found) == len(told)
    assert all(name in each for name, each in zip(told, found, strict=True))
    monkeypatch.setattr(streams_tasks, "has_only_damaged", lambda _: True)
    assert list(asyncio.run(StreamsTasks(notes, Committed(notes)).conclude(world))) == []  # type: ignore[arg-type]
