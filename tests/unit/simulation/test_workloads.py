"""The common behaviour of all workloads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.simulation.worlds import SmallWorld, play

from oncelog import Admin
from oncelog.errors import KafkaError
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import TopicAssignment, encode_topic
from oncelog_protocol.errors import ErrorCode
from oncelog_simulation.plan import Plan
from oncelog_simulation.run import run
from oncelog_simulation.scenario import WholeCluster, draw_whole_plan
from oncelog_simulation.workloads import administrators
from oncelog_simulation.workloads.administrators import TopicMaker
from oncelog_simulation.workloads.ghosts import Story
from oncelog_simulation.workloads.group_wire import NOBODY, Membership
from oncelog_simulation.workloads.groups import GROUP, NEWER_GROUP
from oncelog_simulation.workloads.kept_groups import LONG_SECONDS
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import CALM_PAUSE_SECONDS, ClientWorkload, pause
from oncelog_simulation.world import World


def test_the_end_of_the_faults_ends_the_pause_of_a_slow_client() -> None:
    """At pace 16 a client may begin a pause that is longer than the calm phase at the end, and would then count as
    hanging.
    """
    paused = []

    async def scene(_: SmallWorld) -> None:
        loop, calm = asyncio.get_running_loop(), asyncio.Event()
        world: Any = SimpleNamespace(plan=Plan(seed=1, pace=16.0), calm=calm)
        for seconds in (0.5, 100.0, 100.0):
            began = loop.time()
            loop.call_at(20.0, calm.set)
            await pause(world, seconds)
            paused.append(loop.time() - began)

    play(scene)
    assert paused == pytest.approx([8.0, 12.0, CALM_PAUSE_SECONDS], abs=0.1)


def test_a_ghost_breaks_its_story_off_when_a_member_cannot_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 400248 (short): the error of a join reached the ghost in an exception group, which it did not catch."""

    async def refused(self: Story, line: object, member: Membership) -> Membership:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    monkeypatch.setattr(Story, "_join", refused)
    story = Story.__new__(Story)
    story._joining = (None, None)  # type: ignore[assignment]
    with pytest.raises(KafkaError, match="REBALANCE_IN_PROGRESS"):
        asyncio.run(story._stable([NOBODY, NOBODY]))


@pytest.mark.parametrize(("generation", "goes_on"), [(3, False), (4, True)])
def test_a_member_has_left_for_certain_when_the_next_generation_is_logged(
    monkeypatch: pytest.MonkeyPatch, generation: int, goes_on: bool
) -> None:
    """Seed 694697 (short): the coordinator moved after the leave, and the other member joined the old generation."""
    first, second = Membership("first", 3), Membership("second", 3)
    answers = [[first, second], [second._replace(generation=generation)]]
    gone: list[Membership] = []

    async def settle(self: Story, asking: list[Membership]) -> list[Membership]:
        return answers.pop(0)

    async def go_on(self: Story, member: Membership, who: str) -> None:
        gone.append(member)

    async def ignore(self: Story, member: Membership) -> None: ...

    for name, replacement in (("_stable", settle), ("_ghost_goes_on", go_on), ("_commit", ignore), ("_leave", ignore)):
        monkeypatch.setattr(Story, name, replacement)
    story = Story.__new__(Story)
    story._rng = Random(1)
    asyncio.run(story._has_left())
    assert gone == ([first] if goes_on else [])


@pytest.mark.parametrize(
    ("workload", "group", "seconds", "kept"),
    [
        ("member-1", GROUP, LONG_SECONDS, [0]),
        ("newer-member-1", NEWER_GROUP, LONG_SECONDS, [0]),
        ("newer-member-1", NEWER_GROUP, 0.1, []),  # ends before a coordinator first checks its groups
    ],
)
def test_a_group_whose_epochs_are_compared_has_an_offset_so_that_it_is_not_deleted_between_two_members(
    workload: str, group: str, seconds: float, kept: list[int]
) -> None:
    plan = replace(draw_whole_plan(1), seconds=seconds, pace=40.0, workloads=(workload,), strikes=())
    scenario, offsets = WholeCluster(), list[int]()

    async def note_offsets(world: World) -> None:
        async with Admin(world.bootstrap_servers) as admin:
            offsets.extend(each.offset for each in (await admin.groups.offsets(group)).values())

    class Watched(WholeCluster):
        def workloads(self, world: World) -> Sequence[ClientWorkload]:
            (member,) = scenario.workloads(world)
            prepare = member.prepare

            async def prepare_and_note(world: World) -> None:
                await prepare(world)
                assert [each.offset for each in scenario.notes.history.commits] == kept
                await world.client("auditor").run(lambda: note_offsets(world))

            member.prepare = prepare_and_note  # type: ignore[method-assign]
            return [member]

    assert run(plan, Watched()).violations == ()
    assert offsets == kept


BEFORE, NEW = b"before".ljust(16), b"new".ljust(16)
"""Topic ids of a deleted topic and of the topic that was made again."""


def machine(topic_id: bytes | None, *, is_started: bool = True) -> Any:
    """Return a broker's machine whose cluster image has the topic with this id; None if it has no such topic."""
    topic = None if topic_id is None else SimpleNamespace(topic_id=topic_id)
    metadata = SimpleNamespace(image=SimpleNamespace(topic=lambda name: topic))
    broker = SimpleNamespace(parts=SimpleNamespace(membership=SimpleNamespace(metadata=metadata)))
    return SimpleNamespace(name="broker", broker=broker if is_started else None, is_running=True, process=object())


@pytest.mark.parametrize(
    ("brokers", "restarts", "is_wrong"),
    [
        ([machine(NEW), machine(NEW), machine(None)], False, True),
        ([machine(NEW), machine(BEFORE), machine(NEW)], False, False),
        ([machine(NEW), machine(None, is_started=False), machine(NEW)], False, False),
        ([machine(NEW), machine(NEW), machine(NEW)], True, False),
    ],
    ids=["all brokers know the new topic", "one has the topic before", "one starts", "one restarts meanwhile"],
)
def test_records_of_a_deleted_topic_are_wrong_once_no_broker_serves_the_deleted_topic(
    monkeypatch: pytest.MonkeyPatch, brokers: list[Any], restarts: bool, is_wrong: bool
) -> None:
    """Seed 310465: two brokers that got no answers of the store still served the deleted topic, and the client took
    its records for records of the new topic.
    """

    async def read(self: TopicMaker, world: Any, rng: Random) -> list[bytes]:
        if restarts:
            brokers[0].process = object()
        return [b"4/0", b"5/0"]

    monkeypatch.setattr(TopicMaker, "_write_and_read", read)
    notes = Notes()
    maker = TopicMaker(notes, "maker")
    maker._generation = 5
    node = SimpleNamespace(data=encode_topic(TopicAssignment(NEW, {})))
    tree = SimpleNamespace(node={paths.topic("again-maker"): node}.get)
    world: Any = SimpleNamespace(
        brokers=dict(enumerate(brokers)), store=SimpleNamespace(tree=tree), note=lambda *_, **__: None
    )
    asyncio.run(maker._check(world, Random(1)))
    assert bool(notes.complaints) is is_wrong
    assert notes.steps("maker") == 1


async def test_a_topic_whose_records_a_power_cut_destroys_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 692380 (short): the topic had one record when its end was asked for, and none after the power cut."""
    ends = [1, 0]

    class Client:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def send_and_wait(self, *_: object, **__: object) -> None: ...

        def assign(self, _: object) -> None: ...

        async def end_offsets(self, partitions: list[Any]) -> dict[Any, int]:
            return {partitions[0]: ends.pop(0)}

        async def position(self, _: object) -> int:
            return 0

        async def poll(self, _: int) -> dict[Any, Any]:
            return {}

    monkeypatch.setattr(administrators, "Producer", Client)
    monkeypatch.setattr(administrators, "Consumer", Client)
    world: Any = SimpleNamespace(bootstrap_servers="")
    assert await TopicMaker(Notes(), "maker")._write_and_read(world, Random(1)) == []
    assert not ends
