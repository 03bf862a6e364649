"""The `Host` of a part that is tested alone: a clock that stands still unless the test has another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.clock import Clock, ManualClock
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks


def host_of(clock: Clock | None = None, tasks: Tasks | None = None, **parts: Any) -> Host:
    """With these parts (`disk`, `network`, `slices`, `deadlines`); slices are by the clock, and run as these tasks."""
    clock, tasks = clock or ManualClock(), tasks or Tasks()
    return replace(Host.of(clock), **{"tasks": tasks, "slices": Slices(clock, tasks), **parts})


@dataclass
class Shown:
    """An `ImageView` that shows one image."""

    image: ClusterImage
