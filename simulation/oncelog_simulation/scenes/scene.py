"""Defines a scene: a short script that brings about one rare situation with the brokers and clients of a run, again
and again until the time of the run is over. A scene draws its details, such as times and replicas, from the seed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog_simulation.scenes.stage import Stage

Act = Callable[[Stage], Awaitable[bool]]
"""A function that plays a scene once. It returns whether the rare situation came about; it may raise `stage.Missed`.
The effects of its faults are undone afterwards.
"""
Choices = Mapping[str, Sequence[str]]
"""For each setting, by Kafka's key, the values from which a seed draws one."""

SECONDS: Final = 12.0
"""Virtual seconds of a run with a scene, unless the scene needs another duration."""
ACTORS: Final = ("scene-writer-1", "scene-payer-1", "scene-payer-2", "scene-payer-3")
FEW: Final = 2
"""Number of further workloads that each seed draws for a scene that has such workloads."""
SMALL_SEGMENTS: Final[Choices] = {
    "segment.bytes": ("300", "600", "1500", "5000"),
    "segment.index.bytes": ("1024",),
    "index.interval.bytes": ("100", "4096"),
}
"""Settings of topics whose segments have few batches, so that a truncation removes whole segments and snapshots."""
NEVER: Final = "9223372036854775807"
FAST: Final[Choices] = {
    "zookeeper.session.timeout.ms": ("2000", "4000"),
    "replica.lag.time.max.ms": ("3000",),
    "log.flush.scheduler.interval.ms": ("200",),
    "log.flush.interval.messages": ("1", NEVER),
    "replica.high.watermark.checkpoint.interval.ms": ("300", "2000"),
}
"""Settings of brokers with which a scene takes few seconds, and snapshots reach the disk soon."""
SYNCED: Final[Choices] = {**FAST, "log.flush.interval.messages": ("1",)}
"""Broker settings with group commit: each acknowledged record is on a disk, so a power cut does not destroy it."""
UNSYNCED: Final[Choices] = {
    **FAST,
    "log.flush.interval.messages": (NEVER,),
    "log.flush.scheduler.interval.ms": ("2000",),
}
"""With these settings, a machine that loses its power loses records, too."""


class Scene(NamedTuple):
    """One scene, and the cluster and clients that it needs."""

    name: str
    title: str
    """The rare situation, for lists and reports."""
    act: Act
    workloads: tuple[str, ...]
    """Workloads of `workloads.catalogue` that work during each run of the scene."""
    others: tuple[str, ...]
    """Further workloads, of which each seed draws FEW."""
    actors: tuple[str, ...]
    """Clients of `scenes.actors`, which write to the scene's topic."""
    settings: Choices
    """Settings of the brokers."""
    topic: Choices
    """Settings of the scene's topic."""
    directories: int
    """The number of data directories of each broker."""
    deletes: bool
    """Whether the oldest records of the scene's topic may be deleted at any time."""
    seconds: float


def scene(
    scenes: dict[str, Scene],
    name: str,
    title: str,
    *,
    workloads: tuple[str, ...] = (),
    others: tuple[str, ...] = (),
    actors: tuple[str, ...] = ACTORS,
    settings: Choices | None = None,
    topic: Choices | None = None,
    directories: int = 1,
    deletes: bool = False,
    seconds: float = SECONDS,
) -> Callable[[Act], Act]:
    """Return a decorator that adds a function to the table `scenes`."""

    def add(act: Act) -> Act:
        scenes[name] = Scene(
            name, title, act, workloads, others, actors, settings or {}, topic or {}, directories, deletes, seconds
        )
        return act

    return add
