"""Creates the `Host` (clock, disk, network and tasks) for a component that is tested alone; by default, the clock does
not advance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.clock import Clock, ManualClock
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks


def host_of(clock: Clock | None = None, tasks: Tasks | None = None, **parts: Any) -> Host:
    """Return a host with these components (`disk`, `network`, `slices`, `deadlines`); the slices use the host's clock
    and tasks.
    """
    clock, tasks = clock or ManualClock(), tasks or Tasks()
    return replace(Host.of(clock), **{"tasks": tasks, "slices": Slices(clock, tasks), **parts})


@dataclass
class Shown:
    """An `ImageView` that always shows one image."""

    image: ClusterImage
