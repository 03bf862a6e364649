"""The brokers that run, as the judges see into them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from oncelog_broker.metadata.model.image import ClusterImage, PartitionState
from oncelog_broker.replication.partition import Partition

if TYPE_CHECKING:
    from oncelog_broker.broker import Parts
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World


class Running(NamedTuple):
    """A broker that has started and is not being stopped."""

    machine: BrokerMachine
    parts: Parts

    @property
    def number(self) -> int:
        """Its node id."""
        return self.machine.number

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it."""
        return self.parts.membership.metadata.image

    def hosted(self) -> Iterator[Partition]:
        """All partitions whose logs it has open, led or followed."""
        yield from self.parts.replication.replicas.partitions()


def running(world: World) -> list[Running]:
    """All brokers that run now, in the order of their numbers."""
    machines = world.brokers.values()
    return [Running(machine, machine.broker.parts) for machine in machines if machine.broker is not None]


def newest_state(brokers: list[Running], topic: str, topic_id: bytes, index: int) -> tuple[PartitionState, int] | None:
    """The newest state of a partition that a broker has read, and the version of that broker's knowledge: the broker's
    place in `brokers`. None where no broker knows the topic with this id."""
    best: tuple[PartitionState, int] | None = None
    for place, broker in enumerate(brokers):
        found = broker.image.topics.get(topic)
        state = None if found is None or found.topic_id != topic_id else found.partitions.get(index)
        if state is not None and (best is None or state.partition_epoch > best[0].partition_epoch):
            best = state, place
    return best
