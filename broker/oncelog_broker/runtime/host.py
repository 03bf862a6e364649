"""What one broker runs on: its clock, disk and network, and what runs its background work.

One value, handed to every part of a broker that needs any of it. A test or a simulation replaces the clock, the disk or
the network in one place, and the tasks, slices and deadlines of a broker are those of nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncelog_broker.runtime.clock import Clock, SystemClock
from oncelog_broker.runtime.disk import Disk, RealDisk
from oncelog_broker.runtime.network import Network, RealNetwork
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Deadlines, Tasks


@dataclass(frozen=True, slots=True)
class Host:
    """Make one with `Host.of`; `tasks.close` ends its background work."""

    clock: Clock
    disk: Disk
    network: Network
    tasks: Tasks
    slices: Slices
    deadlines: Deadlines

    @classmethod
    def of(cls, clock: Clock | None = None, disk: Disk | None = None, network: Network | None = None) -> Host:
        """The real ones where nothing is given, and tasks, slices and deadlines by that clock."""
        clock, tasks = clock or SystemClock(), Tasks()
        return cls(
            clock,
            disk or RealDisk(),
            network or RealNetwork(),
            tasks,
            Slices(clock, tasks),
            Deadlines(clock.monotonic),
        )
