"""Small simulated worlds for tests: a loop with processes, without brokers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from oncelog_simulation.clock import HostClock
from oncelog_simulation.guard import guarded
from oncelog_simulation.loop import collect_remains
from oncelog_simulation.process import Process
from oncelog_simulation.surroundings import Surroundings


class SmallWorld(Surroundings):
    """A world in which tests create processes by name."""

    def process(self, name: str) -> Process:
        """Create a new process on a new host of the same name."""
        host = self.network.add_host(name, f"10.1.0.{len(self.network.hosts)}")
        process = Process(name, self.next_process_number(), HostClock(self.loop.virtual), self.random(name))
        self.network.place(process, host)
        return process


def play(scene: Callable[[SmallWorld], Coroutine[Any, Any, Any]], seed: int = 1) -> SmallWorld:
    """Run a scene in a new world. Returns the world in its final state."""
    world = SmallWorld(seed)
    with guarded(world.loop):
        try:
            world.loop.run_until_complete(scene(world))
        finally:
            world.end()
            collect_remains()
    return world
