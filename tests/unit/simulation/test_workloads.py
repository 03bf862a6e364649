"""The common behaviour of all workloads."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.simulation.worlds import SmallWorld, play

from oncelog.errors import KafkaError
from oncelog_protocol.errors import ErrorCode
from oncelog_simulation.plan import Plan
from oncelog_simulation.workloads.ghosts import Story
from oncelog_simulation.workloads.group_wire import NOBODY, Membership
from oncelog_simulation.workloads.workload import CALM_PAUSE_SECONDS, pause


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
