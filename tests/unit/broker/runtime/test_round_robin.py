"""RoundRobin gives one member a slice in each turn of the loop, more members while the budget lasts, and lets no member
wait for ever.
"""

from __future__ import annotations

import asyncio

from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.runtime.round_robin import RoundRobin


class Worker:
    """A member that needs `slices` slices, each of which takes `seconds` seconds of simulated time."""

    def __init__(self, scene: Scene, name: str, slices: int, seconds: float = 0.0) -> None:
        self.scene = scene
        self.name = name
        self.slices = slices
        self.seconds = seconds

    def take_slice(self) -> bool:
        self.scene.taken.append(self.name)
        self.scene.now += self.seconds
        self.slices -= 1
        if self.slices < 0:
            raise RuntimeError("for this test")
        return self.slices > 0


class Scene:
    """Records in which order members took slices; `now` is the simulated time."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.now = 0.0

    async def turn(self) -> list[str]:
        """Run one turn of the loop; return the names of the members that took slices in it."""
        before = len(self.taken)
        await asyncio.sleep(0)
        return self.taken[before:]


async def test_without_a_budget_one_member_has_one_slice_in_each_turn() -> None:
    scene = Scene()
    members = RoundRobin()
    for name in "ab":
        members.join(Worker(scene, name, 2))
    assert scene.taken == [], "not in the turn in which it joins"
    assert [await scene.turn() for _ in range(5)] == [["a"], ["b"], ["a"], ["b"], []]
    assert not members


async def test_further_members_have_their_slices_while_the_budget_lasts() -> None:
    scene = Scene()
    members = RoundRobin(LoopBudget(lambda: scene.now, 1.0))
    for name in "abc":
        members.join(Worker(scene, name, 2, seconds=0.6))
    assert [await scene.turn() for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]


async def test_a_member_has_its_slice_although_others_have_spent_the_budget() -> None:
    scene = Scene()
    budget = LoopBudget(lambda: scene.now, 1.0)
    members = RoundRobin(budget)
    members.join(Worker(scene, "a", 3))
    for _ in range(3):
        budget.claim()
        scene.now += 5.0
        assert not budget.claim()
        assert await scene.turn() == ["a"]


async def test_a_member_that_rejoins_is_queued_behind_the_others() -> None:
    scene = Scene()
    members = RoundRobin()
    members.join(Worker(scene, "a", 1))
    members.join(Worker(scene, "b", 1))
    assert await scene.turn() == ["a"]
    members.join(Worker(scene, "a", 1))
    assert [await scene.turn() for _ in range(2)] == [["b"], ["a"]]


async def test_an_error_of_one_member_ends_its_membership_alone() -> None:
    scene = Scene()
    members = RoundRobin()
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    members.join(Worker(scene, "broken", 0))
    members.join(Worker(scene, "a", 1))
    assert [await scene.turn() for _ in range(3)] == [["broken"], ["a"], []]
    assert len(reported) == 1


async def test_a_loop_budget_is_renewed_in_each_turn() -> None:
    now = 0.0
    budget = LoopBudget(lambda: now, 1.0)
    assert budget.claim()
    now = 2.0
    assert not budget.claim()
    await asyncio.sleep(0)
    assert budget.claim(), "the first claim of a turn starts its clock"
