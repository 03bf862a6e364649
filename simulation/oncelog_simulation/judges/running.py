"""The running brokers, with access to their internal state for the judges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from oncelog_broker.metadata.model.image import ClusterImage
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
        """The broker's node id."""
        return self.machine.number

    @property
    def image(self) -> ClusterImage:
        """The cluster metadata that this broker has."""
        return self.parts.membership.metadata.image

    def hosted(self) -> Iterator[Partition]:
        """Yield all partitions of this broker whose logs are open, led or followed."""
        yield from self.parts.replication.replicas.partitions()


def running(world: World) -> list[Running]:
    """Return all running brokers, in the order of their numbers."""
    machines = world.brokers.values()
    return [Running(machine, machine.broker.parts) for machine in machines if machine.broker is not None]
