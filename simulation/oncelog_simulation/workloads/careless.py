"""A topic with unclean leader elections, whose producer waits for one replica: records may be lost.

The remaining records must still be the same in each replica, and after the faults the topic must accept records again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog import KafkaError, Producer
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import COMMON, ClientWorkload, make_topic, pause

if TYPE_CHECKING:
    from oncelog_simulation.world import World

CARELESS: Final = "careless"
CONFIGS: Final = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
    "segment.bytes": "4096",
    "segment.index.bytes": "1024",
}
DELIVERY_MS: Final = 6_000


class CarelessWriter(ClientWorkload):
    """Writes records with acks=1, and tolerates their loss."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._number = 0

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, CARELESS, 1, CONFIGS)
        self.notes.careless[CARELESS] = self.notes.topics.pop(CARELESS)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with Producer(
            world.bootstrap_servers,
            **COMMON,
            acks=1,
            enable_idempotence=False,
            delivery_timeout_ms=DELIVERY_MS,
        ) as producer:
            goes_on = self.counts_down(world)
            while goes_on:
                for _ in range(rng.choice((1, 4))):
                    self._number += 1
                    try:
                        await producer.send_and_wait(CARELESS, b"%d" % self._number, partition=0)
                    except KafkaError as error:
                        world.note(self.name, "has lost a record", error=error.code.name)
                    else:
                        self.notes.step(self.name)
                await pause(world, rng.expovariate(2))
