"""The plan of a run: a value that lists all workloads and faults, so that it can be printed, shrunk and run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog_simulation.links import LATE_SHARE


@dataclass(frozen=True)
class Strike:
    """One strike of a fault: its time, machine, duration and strength."""

    at: float
    """When the fault strikes, in virtual seconds since the workloads started."""
    fault: str
    """The name of the fault, a key of `faults.catalogue.FAULTS`."""
    machines: tuple[str, ...] = ()
    """The names of the struck machines: "broker-1", "client-2", "store-1"."""
    seconds: float = 0.0
    """Virtual seconds that the fault lasts; ignored by faults that take effect at one moment."""
    strength: float = 0.0
    """A random number in [0, 1), which each fault uses in its own way, for example to select a client or a rate."""


@dataclass(frozen=True)
class Plan:
    """The workloads, settings and faults of a run. The seed determines everything else."""

    seed: int
    brokers: int = 3
    seconds: float = 20.0
    """Virtual seconds in which workloads work and faults strike."""
    directories: int = 1
    """Number of data directories of each broker."""
    pace: float = 1.0
    """Factor by which clients pause longer than usual between two steps; runs with slow clients cost less CPU."""
    leisure: float = 1.0
    """Factor by which everything in this run takes longer that is not a request: the limits of the run and of its
    judges, and the pauses between two looks of the judges or two ticks of the metadata store. Above 1, periodic work of
    brokers also pauses for at least `leisure` times `machine.LEAST_PAUSE_SECONDS`.
    """
    late_share: float = LATE_SHARE
    """Fraction of the packets that are late; with many late packets, races between messages have more varied outcomes.
    """
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of all brokers, by Kafka's keys."""
    strikes: tuple[Strike, ...] = ()
    workloads: tuple[str, ...] = ()
    """Names of the workloads; the scenario knows the workload of each name."""
    scene: str = ""
    """The name of the scene that is played again and again, a key of `scenes.catalogue.SCENES`; empty means none."""
