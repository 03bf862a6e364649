"""The common part of workloads: a client on its own host, which is restarted when a fault has killed it.

Each workload works until `world.calm` is set. After that it must show that the cluster serves it again: the workload
makes some more steps and returns. If a workload does not return, the run reports a violation of liveness.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from oncelog import Admin, KafkaError, NewTopic
from oncelog.errors import FatalError, TopicAlreadyExists
from oncelog_simulation.machine import Killed
from oncelog_simulation.workloads.notes import PATIENCE_MS, Notes

if TYPE_CHECKING:
    from oncelog_simulation.world import World

COMMON: Final[Mapping[str, Any]] = {"request_timeout_ms": 5_000, "reconnect_backoff_max_ms": 500}
"""Options of all clients: a request to a broker that does not respond fails after five seconds instead of the default
of thirty.
"""
STEPS_IN_CALM: Final = 3
"""Number of steps that each client makes after the end of all faults."""
CALM_PAUSE_SECONDS: Final = 0.3
"""Maximum virtual seconds between two steps after the faults are over."""
MAX_LONG_POLL_MS: Final = 300_000
"""Limit on fetch.max.wait.ms; a connection that is idle for twice as long is closed (connections.max.idle.ms)."""
RESTART_SECONDS: Final = 0.5
"""Virtual seconds before a client that was killed, or could not start, is restarted."""


class ClientWorkload(ABC):
    """One client of the simulated cluster. Invariant: each request is noted in the history before it is sent."""

    def __init__(self, notes: Notes, name: str) -> None:
        self.notes = notes
        self.name = name
        self.lives = 0
        """How often the client was started."""

    async def prepare(self, world: World) -> None:
        """Create the topics and other resources that the client needs; no fault strikes during this call."""

    async def work(self, world: World) -> None:
        """Run the client, and start it again whenever it was killed or has failed, until a run of `live` ends
        regularly.
        """
        while True:
            self.lives += 1
            try:
                await world.client(self.name).run(partial(self.live, world))
            except Killed:
                world.note(self.name, "is started again", life=self.lives + 1)
            except FatalError as error:  # the producer is fenced or cannot continue, so an application would restart
                world.note(self.name, "ends, and is started again", error=type(error).__name__, code=error.code.name)
            except KafkaError as error:
                world.note(self.name, "fails, and is started again", error=type(error).__name__, code=error.code.name)
            else:
                return
            await asyncio.sleep(RESTART_SECONDS * world.plan.leisure)

    @abstractmethod
    async def live(self, world: World) -> None:
        """Run the client from a start to its end: work until `world.calm` is set, and then make STEPS_IN_CALM more
        steps. May raise KafkaError; then the client is restarted.
        """

    def random(self, world: World) -> Random:
        """Return this client's random generator, which does not depend on other clients."""
        return world.random(f"{self.name} {self.lives}")

    def counts_down(self, world: World) -> Countdown:
        """Return an object that is true while the client must make another step."""
        return Countdown(world, self.notes, self.name)


class Countdown:
    """True until `world.calm` is set and the client has made STEPS_IN_CALM steps after that."""

    def __init__(self, world: World, notes: Notes, name: str) -> None:
        self._world = world
        self._notes = notes
        self._name = name
        self._last: int | None = None

    def __bool__(self) -> bool:
        if not self._world.calm.is_set():
            return True
        if self._last is None:
            self._last = self._notes.steps(self._name) + STEPS_IN_CALM
        return self._notes.steps(self._name) < self._last


async def make_topic(
    world: World, notes: Notes, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic that is judged at the end, unless another workload has created it."""

    async def make() -> None:
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            try:
                await admin.create_topics([NewTopic(name, partitions, configs=dict(configs or {}))])
            except TopicAlreadyExists:
                pass

    if name not in notes.topics:
        notes.topics[name] = partitions
        await world.client("operator").run(make)


async def pause(world: World, seconds: float) -> None:
    """Wait for `seconds` multiplied by the pace of the plan. The wait also ends when the faults end, because it may be
    longer than `run.CALM_SECONDS`. After the faults, the wait is at most CALM_PAUSE_SECONDS.
    """
    seconds *= world.plan.pace
    if world.calm.is_set():
        await asyncio.sleep(min(seconds, CALM_PAUSE_SECONDS * world.plan.leisure))
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await world.calm.wait()


def long_poll_options(world: World, usual_ms: int) -> dict[str, int]:
    """Return options of a consumer with this fetch.max.wait.ms. The wait is longer in a run with leisure, because empty
    long polls would be most of the processor time of such a run. Other requests to the same broker wait behind the
    fetch, so their timeouts are longer, too.
    """
    if world.plan.leisure <= 1:
        return {"fetch_max_wait_ms": usual_ms}
    wait_ms = min(round(usual_ms * world.plan.leisure * 5), MAX_LONG_POLL_MS)
    return {
        "fetch_max_wait_ms": wait_ms,
        "request_timeout_ms": COMMON["request_timeout_ms"] + wait_ms,
        "default_api_timeout_ms": PATIENCE_MS + 2 * wait_ms,
    }


def producer_options(**options: Any) -> dict[str, Any]:
    """Return options for a producer whose calls are retried for `PATIENCE_MS` milliseconds."""
    return {**COMMON, "linger_ms": 0, "max_block_ms": PATIENCE_MS, "delivery_timeout_ms": PATIENCE_MS, **options}
