"""Plays the scene of a plan: again and again, with a pause until all replicas are in sync, until the time of the run is
over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from oncelog_simulation.faults.catalogue import end_all
from oncelog_simulation.plan import Strike
from oncelog_simulation.scenes.scene import Scene
from oncelog_simulation.scenes.stage import TOPIC, TRANSACTIONS, Missed, Stage
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import ClientWorkload, make_topic

if TYPE_CHECKING:
    from oncelog_simulation.world import World

PARTITIONS: Final = 2
PAUSE_SECONDS: Final = (0.3, 1.0)
"""Minimum and maximum virtual seconds before each time that the scene is played."""


class Directing(ClientWorkload):
    """Directs one scene. Its code runs in the director's process, as faults do."""

    def __init__(self, notes: Notes, scene: Scene) -> None:
        super().__init__(notes, "scene")
        self._scene = scene

    async def prepare(self, world: World) -> None:
        random = world.random("scene topic")
        configs = {key: random.choice(values) for key, values in self._scene.topic.items()}
        await make_topic(world, self.notes, TOPIC, PARTITIONS, configs)
        if self._scene.deletes:
            for place in self.notes.places(TOPIC):
                self.notes.trimmed[place] = 0
                self.notes.passing.add(place)

    async def work(self, world: World) -> None:
        """Play until the time is over, and undo what the last scene has left then."""
        playing, calm = asyncio.create_task(self.live(world)), asyncio.create_task(world.calm.wait())
        await asyncio.wait((playing, calm), return_when=asyncio.FIRST_COMPLETED)
        for task in (playing, calm):
            task.cancel()
        for ended in await asyncio.gather(playing, calm, return_exceptions=True):
            if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
                raise ended
        end_all(world)

    async def live(self, world: World) -> None:
        """Bring the scene's situation about again and again, until the task is cancelled."""
        stage = Stage(world, self.notes)
        while True:
            await stage.until_whole()
            stage.check_logs(*stage.places(TOPIC), *stage.places(TRANSACTIONS))
            await stage.pause(*PAUSE_SECONDS)
            await self._play(world, stage)

    async def _play(self, world: World, stage: Stage) -> None:
        strike = Strike(round(world.now, 3), self._scene.name, tuple(world.brokers))
        world.striking[strike] = None
        world.note("scene", "begins", scene=self._scene.name)
        try:
            if await self._scene.act(stage):
                world.count(self._scene.name)
        except Missed as why:
            world.note("scene", "does not come about", why=str(why))
        finally:
            world.striking.pop(strike, None)
            world.note("scene", "ends")
            end_all(world)
