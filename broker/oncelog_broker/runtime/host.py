"""The clock, disk, network and background tasks of one broker, in one value.

Every part of a broker that needs the clock, disk, network or tasks gets this value. A test or a simulation can
therefore replace the clock, the disk or the network in one place, and no two brokers in one process share tasks, slices
or deadlines.
"""

from __future__ import annotations

from oncelog_broker.runtime.clock import Clock, SystemClock
from oncelog_broker.runtime.disk import Disk, RealDisk
from oncelog_broker.runtime.network import Network, RealNetwork
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Deadlines, Tasks
from oncelog_protocol.light_classes import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """The clock, disk, network and background work of one broker. Create a host with `Host.of`; `tasks.close` ends its
    background work.
    """

    clock: Clock
    disk: Disk
    network: Network
    tasks: Tasks
    slices: Slices
    deadlines: Deadlines

    @classmethod
    def of(
        cls,
        clock: Clock | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        tasks: Tasks | None = None,
    ) -> Host:
        """Create a host with this clock, disk and network, by default the machine's clock, disk and network; the tasks,
        slices and deadlines of the host use that clock.
        """
        clock, tasks = clock or SystemClock(), tasks or Tasks()
        return cls(
            clock,
            disk or RealDisk(),
            network or RealNetwork(),
            tasks,
            Slices(clock, tasks),
            Deadlines(clock.monotonic),
        )
