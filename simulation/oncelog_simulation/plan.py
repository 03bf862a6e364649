"""The plan of a run: values that list all faults of a world, so that it can be printed, shrunk and run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog_simulation.links import LATE_SHARE


@dataclass(frozen=True)
class Strike:
    """One fault: its time, machine, duration and strength."""

    at: float
    """Virtual seconds since the workloads began."""
    fault: str
    """The name of the fault: a key of `faults.FAULTS`."""
    machines: tuple[str, ...] = ()
    """The names of the machines that it strikes: "broker-1", "client-2", "store-1"."""
    seconds: float = 0.0
    """How long it lasts, for faults that last."""
    strength: float = 0.0
    """A number in [0, 1), which each fault interprets in its own way."""


@dataclass(frozen=True)
class Plan:
    """The workloads and faults of a run. The seed decides everything else."""

    seed: int
    brokers: int = 3
    seconds: float = 20.0
    """Virtual seconds in which workloads work and faults strike."""
    directories: int = 1
    """Data directories of each broker."""
    pace: float = 1.0
    """By which factor clients rest longer than usual between their steps: slow clients make cheap runs."""
    late_share: float = LATE_SHARE
    """Share of packets that are late: with many of them, races between messages end in any order."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of all brokers, by Kafka's keys."""
    strikes: tuple[Strike, ...] = ()
    workloads: tuple[str, ...] = ()
    """Names that the scenario knows."""
