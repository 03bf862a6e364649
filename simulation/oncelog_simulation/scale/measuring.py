"""Measures what happens in a cluster of some size: its start, its filling, and the loss and the restart of brokers.

An *episode* is one such event, with its figures: virtual seconds until the cluster has reached some states, processor
seconds, and traffic. The seconds after a loss begin when the metadata store has ended the sessions of the lost brokers,
because the session timeout before that is a setting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog_simulation.guard import guarded
from oncelog_simulation.log_lines import log_lines_noted
from oncelog_simulation.loop import collect_remains, complaints_ignored
from oncelog_simulation.machine import BrokerMachine
from oncelog_simulation.scale.filling import Filling
from oncelog_simulation.scale.metadata_copies import copies_shared
from oncelog_simulation.scale.size import Size
from oncelog_simulation.scale.traffic import requests_counted
from oncelog_simulation.scale.world import ScaleWorld, rack_of

IDLE_SECONDS: Final = 10.0
"""Virtual seconds for which an idle cluster is measured."""
CALM_SECONDS: Final = 2.0
"""Virtual seconds before that, in which the last transactions are completed."""
RESTARTS: Final = 3
"""Number of brokers that the rolling restart restarts; it would go on in the same way."""
Figures = dict[str, float]
"""The figures of an episode by name. The unit is part of the name."""


@dataclass
class Measured:
    """The figures of a cluster of one size."""

    size: Size
    episodes: dict[str, Figures] = field(default_factory=dict)
    """The figures of each episode, by the episode's name."""
    requests: dict[str, dict[str, int]] = field(default_factory=dict)
    """Number of requests between brokers, by episode and API."""
    largest_node: str = ""
    """The path of the largest node of the metadata store."""

    def as_json(self) -> dict[str, Any]:
        return {
            "size": self.size.as_json(),
            "episodes": self.episodes,
            "requests": self.requests,
            "largest_node": self.largest_node,
        }

    @classmethod
    def of_json(cls, stored: dict[str, Any]) -> Measured:
        return cls(Size(**stored["size"]), stored["episodes"], stored["requests"], stored["largest_node"])


def measure(
    size: Size, say: Callable[[str], None] = lambda _: None, keep: Callable[[Measured], None] = lambda _: None
) -> Measured:
    """Build a cluster of this size, and measure all episodes. `say` gets the progress, and `keep` the figures of all
    episodes so far, after each episode. Raises Stuck, Unexpected.
    """
    world = ScaleWorld(size)
    try:
        with (
            complaints_ignored(),
            guarded(world.loop),
            log_lines_noted(world),
            requests_counted(world.loop, world.traffic),
            copies_shared(),
        ):
            return world.loop.run_until_complete(_Measurement(world, say, keep).run())
    finally:
        with complaints_ignored():
            world.end()
            collect_remains()


class _Measurement:
    """One measurement, from an empty store on."""

    def __init__(self, world: ScaleWorld, say: Callable[[str], None], keep: Callable[[Measured], None]) -> None:
        self._world = world
        self._say = say
        self._keep = keep
        self._filling = Filling(world)
        self._measured = Measured(world.size)
        self._resident_mb = world.resident_mb()

    async def run(self) -> Measured:
        world, filling = self._world, self._filling
        supervisors: list[asyncio.Task[None]] = []
        await self._episode("start", lambda: self._start(supervisors))
        await self._episode("topics", lambda: self._timed("seconds until served", filling.make_topics))
        await self._episode("groups", lambda: self._timed("seconds until all have joined", filling.make_groups))
        await self._episode("producers", lambda: self._timed("seconds until all have ended", filling.make_producers))
        await world.until_in_sync()
        await asyncio.sleep(CALM_SECONDS)
        await self._episode("idle", self._idle)
        await self._episode("controller killed", lambda: self._lose([self._controller()]))
        await self._episode("that broker back", lambda: self._bring_back())
        rack = rack_of(self._controller())
        lost = [machine for machine in world.brokers.values() if rack_of(machine) == rack]
        await self._episode("rack lost", lambda: self._lose(lost))
        await self._episode("groups after that", lambda: self._timed("seconds", filling.commit_again))
        await self._episode("rack back", lambda: self._bring_back())
        await self._episode("rolling restart", self._restart_some)
        for supervisor in supervisors:
            supervisor.cancel()
        return self._measured

    async def _episode(self, name: str, work: Callable[[], Coroutine[Any, Any, Figures]]) -> None:
        """Run an episode and keep its figures."""
        world = self._world
        world.traffic.reset()
        world.loop.times.reset()
        began, turns = world.now, world.loop.turns
        figures = await work()
        self._measured.episodes[name] = {
            "virtual seconds": world.now - began,
            **figures,
            **self._processor_figures(),
            **self._store_figures(),
            "requests between brokers": world.traffic.between_brokers.total(),
            "resident MB": world.resident_mb() - self._resident_mb,
            "turns": world.loop.turns - turns,
        }
        self._measured.requests[name] = dict(world.traffic.between_brokers.most_common())
        self._measured.largest_node = world.largest.path
        self._measured.episodes["store"] = {"largest node, bytes": world.largest.bytes}
        self._keep(self._measured)
        shown = {figure: round(value, 3) for figure, value in self._measured.episodes[name].items()}
        self._say(f"{name}: {shown} {self._measured.requests[name]}")

    def _processor_figures(self) -> Figures:
        times, hosts = self._world.loop.times, list(self._world.brokers)
        seconds = {host: times.of(host) for host in hosts}
        longest = times.longest_of(hosts)
        controller = "" if self._world.controller is None else self._world.controller.name
        return {
            "CPU seconds of all brokers": sum(seconds.values()),
            "CPU seconds of the busiest broker": max(seconds.values()),
            "CPU seconds of the controller": seconds.get(controller, 0.0),
            "longest turn, ms": longest.seconds * 1000,
            "longest turn of the controller, ms": 1000 * times.longest.get(controller, 0.0),
        }

    def _store_figures(self) -> Figures:
        traffic = self._world.traffic
        return {
            "store: reads": traffic.reads,
            "store: nodes read": traffic.nodes_read,
            "store: MB read": traffic.read_bytes / 1e6,
            "store: writes": traffic.writes,
            "store: operations written": traffic.operations,
            "store: MB written": traffic.write_bytes / 1e6,
            "store: watch notifications": traffic.notifications,
            "store: MB of notifications": traffic.notified_bytes / 1e6,
            "store: largest write, bytes": traffic.largest_write,
            "store: largest answer, bytes": traffic.largest_answer,
        }

    async def _timed(self, figure: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Figures:
        began = self._world.now
        await work()
        return {figure: self._world.now - began}

    async def _start(self, supervisors: list[asyncio.Task[None]]) -> Figures:
        world = self._world
        supervisors += world.spawn_supervisors()
        await world.until("all brokers serve", lambda: len(world.running) == world.size.brokers)
        return {}

    async def _idle(self) -> Figures:
        await asyncio.sleep(IDLE_SECONDS)
        return {}

    def _controller(self) -> BrokerMachine:
        controller = self._world.controller
        assert controller is not None, "the cluster has a controller"
        return controller

    async def _lose(self, lost: list[BrokerMachine]) -> Figures:
        """Kill these brokers, whose partitions must get other leaders, and whose role as controller another broker."""
        world, gone = self._world, {machine.number for machine in lost}
        ended_before, killed_at = world.sessions_ended_at, world.now
        for machine in lost:
            machine.hold()
            machine.kill()
        await world.release_dead()
        await world.until(
            "another broker is controller",
            lambda: world.controller is not None and world.controller.number not in gone
            and world.sessions_ended_at > ended_before,
        )  # fmt: skip
        elected = world.now
        led = await world.until_led(gone)
        ended = world.sessions_ended_at
        served = await world.until_served()
        settled = await world.until_settled(gone)
        return {
            "seconds of the session timeout": ended - killed_at,
            "seconds until a controller": elected - ended,
            "seconds until leaders": led - ended,
            "seconds until served": served - ended,
            "seconds until settled": settled - ended,
        }

    async def _bring_back(self) -> Figures:
        """Start the brokers that do not run, until all replicas are in sync."""
        world = self._world
        began = world.now
        for machine in world.brokers.values():
            machine.let_start()
        started = await world.until("all brokers serve", lambda: len(world.running) == world.size.brokers)
        in_sync = await world.until_in_sync()
        return {"seconds until they serve": started - began, "seconds until in sync": in_sync - began}

    async def _restart_some(self) -> Figures:
        """Restart RESTARTS brokers by controlled shutdowns, one after another, as an operator does."""
        world, stopping, back = self._world, 0.0, 0.0
        restarted = list(world.brokers.values())[:RESTARTS]
        for machine in restarted:
            began = world.now
            machine.hold()
            await machine.stop()
            stopped = world.now
            await world.release_dead()
            machine.let_start()
            await world.until("the broker serves", lambda: len(world.running) == world.size.brokers)
            await world.until_in_sync()
            stopping += stopped - began
            back += world.now - stopped
        return {
            "seconds for each controlled shutdown": stopping / len(restarted),
            "seconds for each start, until in sync": back / len(restarted),
            "seconds for all brokers": (stopping + back) / len(restarted) * world.size.brokers,
        }
