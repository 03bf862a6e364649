"""A compacted topic whose keys are overwritten and deleted, with and without transactions.

A compacted log keeps the last value of each key. The judge compares the compacted log with the last values that the
writers have written.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from oncelog import Producer
from oncelog.errors import AbortableError, EndNotKnown
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import ClientWorkload, make_topic, pause, producer_options

if TYPE_CHECKING:
    from oncelog_simulation.world import World

TABLE: Final = "table"
KEYS: Final = 3
"""Number of keys that a writer overwrites at a time, before it changes to other keys."""
NUMBERS_PER_KEYS: Final = 12
"""Number of records after which other keys are written."""
DELETE_RETENTION_MS: Final = ("100", "600000")
"""Values of delete.retention.ms, the time for which tombstones and markers are kept. With the small value, some are
removed while the cluster runs.
"""
AFTER_SECONDS: Final = 400.0
"""Virtual seconds that a run may last beyond the time of its workloads."""
WRITTEN: Final = 0.8
"""Fraction of the aborted transactions whose records reach the log."""
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "600",
    "segment.index.bytes": "1024",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "2000",
    "segment.ms": "1000",
}
TRANSACTION_TIMEOUT_MS: Final = 10_000


class TableWriter(ClientWorkload):
    """The only writer of its keys, so it knows the values that each key may have at the end."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._number = 0
        self._may_hold: dict[bytes, set[bytes | None]] = {}
        """For each key, the last value whose write is certain, and the later values that may have been written."""
        self._keeps_tombstones = False
        """Whether delete.retention.ms is longer than any run, so that each tombstone that is the last record of its key
        stays in the log.
        """

    async def prepare(self, world: World) -> None:
        kept = world.random("table").choice(DELETE_RETENTION_MS)
        self._keeps_tombstones = int(kept) > 1000 * (world.plan.seconds + AFTER_SECONDS)
        await make_topic(world, self.notes, TABLE, 1, {**CONFIGS, "delete.retention.ms": kept})
        self.notes.topics.pop(TABLE, None)  # not judged as an entire log, because compaction removes records
        self.notes.tables[self.name] = self._may_hold

    async def live(self, world: World) -> None:
        rng = self.random(world)
        options = producer_options(transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        producer = Producer(world.bootstrap_servers, transactional_id=self.name, **options)
        await producer.start()
        try:
            goes_on = self.counts_down(world)
            while goes_on:
                await self._transact(producer, rng)
                await pause(world, rng.expovariate(2))
        finally:
            await producer.close(0)

    async def _transact(self, producer: Producer, rng: Random) -> None:
        changes: dict[bytes, bytes | None] = {}
        for _ in range(rng.choice((1, 3))):
            self._number += 1
            # From time to time the writer changes to other keys, so that the cleaner can compact the older keys.
            key = f"{self.name}/{self._number // NUMBERS_PER_KEYS}.{rng.randrange(KEYS)}".encode()
            changes[key] = None if rng.random() < 0.2 else b"%d" % self._number
        self.notes.deleted -= changes.keys()
        before = {key: set(self._may_hold.get(key, {None})) for key in changes}
        commits = rng.random() < 0.75
        producer.begin_transaction()
        try:
            for key, value in changes.items():
                await producer.send(TABLE, value, key, partition=0)
            if not commits:
                if rng.random() < WRITTEN:
                    await producer.flush()  # without this flush, an abort would drop the records that are not sent yet
                await self._wait_to_end(producer, rng)
                await _end(producer, commits=False)
                return
            await self._wait_to_end(producer, rng)
            self._may_hold.update({key: before[key] | {value} for key, value in changes.items()})
            await _end(producer, commits=True)
        except AbortableError:
            await _end(producer, commits=False)
            self._may_hold.update(before)
            return
        self._may_hold.update({key: {value} for key, value in changes.items()})
        self.notes.deleted -= changes.keys()
        if self._keeps_tombstones:
            self.notes.deleted.update(key for key, value in changes.items() if value is None)
        self.notes.step(self.name)

    async def _wait_to_end(self, producer: Producer, rng: Random) -> None:
        """Leave the transaction open for a while; this writer ends its transactions at once."""


async def _end(producer: Producer, *, commits: bool) -> None:
    while True:
        try:
            return await (producer.commit_transaction() if commits else producer.abort_transaction())
        except EndNotKnown:
            continue
