"""The clients of scenes: they write to the scene's topic, whose segments are so small that each has few batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from oncelog import Producer
from oncelog.errors import AbortableError
from oncelog_simulation.scenes.stable_watcher import StableWatcher
from oncelog_simulation.scenes.stage import TOPIC
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.tables import TableWriter
from oncelog_simulation.workloads.transactions import TransactionalWriter, until_known
from oncelog_simulation.workloads.workload import ClientWorkload, pause, producer_options
from oncelog_simulation.workloads.writers import IdempotentWriter
from oncelog_testing.history.events import End

if TYPE_CHECKING:
    from oncelog_simulation.world import World

COMMITTER_TIMEOUT_MS: Final = 30_000
COMMITTER_PAUSE_SECONDS: Final = 0.5
"""Mean virtual seconds, times the pace of the plan, between two transactions of a committer."""
OPEN_SECONDS: Final = (0.5, 3.0)
"""Minimum and maximum virtual seconds for which a transaction of a slow table writer stays open."""


class ScenePayer(TransactionalWriter):
    """Writes transactions to the scene's topic."""

    topics = (TOPIC,)


class SceneCommitter(ScenePayer):
    """Writes transactions to the scene's topic, and commits all of them that it can commit. A log with an aborted
    transaction is never opened from its saved state.
    """

    async def live(self, world: World) -> None:
        rng = self.random(world)
        options = producer_options(transaction_timeout_ms=COMMITTER_TIMEOUT_MS)
        producer = Producer(world.bootstrap_servers, transactional_id=self.name, **options)
        await producer.start()
        try:
            goes_on = self.counts_down(world)
            while goes_on:
                await self._commit(producer, rng)
                await pause(world, rng.expovariate(1 / COMMITTER_PAUSE_SECONDS))
        finally:
            await producer.close(0)

    async def _commit(self, producer: Producer, rng: Random) -> None:
        producer.begin_transaction()
        transaction = self.notes.history.transaction(self.name)
        try:
            for _ in range(rng.choice((1, 2))):
                await self._send(producer, transaction, rng)
            await until_known(producer.commit_transaction)
        except AbortableError:
            await self._abort(producer, transaction)
            return
        self.notes.history.ended(transaction, End.COMMITTED)
        self.notes.step(self.name)


class SlowTableWriter(TableWriter):
    """Writes to the topic of a table writer in transactions that stay open while the table writer fills segments."""

    async def prepare(self, world: World) -> None:
        self.notes.tables[self.name] = self._may_hold

    async def _wait_to_end(self, producer: Producer, rng: Random) -> None:
        await producer.flush()
        await asyncio.sleep(rng.uniform(*OPEN_SECONDS))


ALL: Final[Mapping[str, Callable[[Notes, str], ClientWorkload]]] = {
    "scene-writer-1": lambda notes, name: IdempotentWriter(notes, name, TOPIC),
    "scene-writer-2": lambda notes, name: IdempotentWriter(notes, name, TOPIC),
    "scene-payer-1": ScenePayer,
    "scene-payer-2": ScenePayer,
    "scene-payer-3": ScenePayer,
    "scene-committer-1": SceneCommitter,
    "scene-committer-2": SceneCommitter,
    "stable-watcher": StableWatcher,
    "slow-table-writer": SlowTableWriter,
}
"""The actors by name."""
