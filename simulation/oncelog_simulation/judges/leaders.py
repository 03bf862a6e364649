"""At most one broker leads a partition in a leader epoch. The high watermark of a leader never goes back, and moves
only while the ISR has min.insync.replicas (KIP-966). A broker that has resigned everything in order to stop leads
nothing again. The judge checks after each turn of a broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog_simulation.judges.last_look import Facts, LastLook

if TYPE_CHECKING:
    from oncelog_broker.replication.partition import Partition
    from oncelog_broker.replication.replicas import Replicas
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World

Epoch = tuple[bytes, int, int]
"""Type of a key: topic id, partition and leader epoch."""


class Leaders:
    """Checks a broker only after its own turns, because turns of other brokers do not change which partitions it
    leads.
    """

    name = "leaders"
    sees_only_partitions = True

    def __init__(self) -> None:
        self._led_by: dict[Epoch, int] = {}
        self._high_watermarks: dict[Epoch, int] = {}
        self._last = LastLook(_facts)
        self._led_while_stopping: set[tuple[int, Epoch]] = set()
        """The brokers that lead again while they are stopping, each with partition and leader epoch."""

    def look(self, world: World, machine: BrokerMachine) -> Iterable[str]:
        """Yield a violation for each partition that this broker leads in an epoch in which another broker has also led
        it.
        """
        if machine.broker is None:
            return ()
        wrong = list[str]()
        replicas = machine.broker.parts.replication.replicas
        if replicas._is_closed:
            wrong += self._led_again(machine, replicas)
        for partition, now, before in self._last.changed(world, machine, replicas.led(), replicas.partitions()):
            if before is not None and before[:2] == now[:2]:
                continue
            wrong += self._look_at(world, machine.number, partition)
            if before is not None and before[0] == now[0]:
                wrong += self._too_few(partition, before)
        return wrong

    def _led_again(self, machine: BrokerMachine, replicas: Replicas) -> Iterable[str]:
        """Yield a violation for each partition that a broker leads although it has resigned everything in order to
        stop; only one for each leader epoch.
        """
        for partition in replicas.led():
            led = (machine.number, (partition.topic_id, partition.index, partition.leader_epoch))
            if not partition.is_resigned and led not in self._led_while_stopping:
                self._led_while_stopping.add(led)
                yield f"{partition.log.name}: broker {machine.number} leads again although it is stopping"

    def _too_few(self, partition: Partition, before: Facts) -> Iterable[str]:
        """Yield a violation if the high watermark of the partition has moved in this turn although too few replicas
        were in sync both before and after the turn.
        """
        _, _, in_sync_before, needed_before = before
        in_sync, needed = max(in_sync_before, len(partition.isr)), min(needed_before, partition.needed_in_sync)
        if in_sync < needed:
            yield f"{partition.log.name}: the high watermark moved with {in_sync} replicas in sync, of {needed} needed"

    def _look_at(self, world: World, number: int, partition: Partition) -> Iterable[str]:
        epoch = (partition.topic_id, partition.index, partition.leader_epoch)
        if epoch not in self._led_by:
            world.note(f"broker-{number}", "leads", partition=partition.log.name, epoch=partition.leader_epoch)
        leader = self._led_by.setdefault(epoch, number)
        if leader != number:
            yield f"{partition.log.name}: brokers {leader} and {number} led in epoch {partition.leader_epoch}"
            self._led_by[epoch] = number
        before = self._high_watermarks.get(epoch, 0)
        if partition.high_watermark < before:
            yield f"{partition.log.name}: the high watermark went from {before} to {partition.high_watermark}"
        self._high_watermarks[epoch] = partition.high_watermark

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        return ()


def _facts(partition: Partition) -> Facts:
    """Return leader epoch, high watermark, size of the ISR, and how many replicas must be in sync for acks=all."""
    return partition.leader_epoch, partition.high_watermark, len(partition.isr), partition.needed_in_sync
