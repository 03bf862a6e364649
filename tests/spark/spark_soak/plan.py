"""Which process dies, and when: a function of the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Kind(StrEnum):
    """A process that is killed with -9."""

    DRIVER = "driver"
    """The JVM and the Python process that started it; started again at once, on the same checkpoint."""
    WORKER = "worker"
    """One of the Python processes that the JVM has started: a task's, the source's, the one that commits."""
    BROKER = "broker"
    """One of three; started again after `away_s`."""


EARLY: Final = 0.25
"""The share of drivers and workers that die whatever the driver does then: some before its first batch."""
EARLY_SECONDS: Final = 30.0
"""Latest early death of a driver, in seconds after its start."""
LATER_SECONDS: Final = 6.0
"""After the first batch since its start that a driver has finished."""
GAP_SECONDS: Final = 3.0
"""Between the death before and that of a worker or a broker."""
AWAY_SECONDS: Final = 5.0


class Death(NamedTuple):
    kind: Kind
    is_early: bool
    """Does not wait for the first batch that this life of the driver finishes."""
    after_s: float
    pick: float
    """Which of several candidates dies, from 0 to 1."""
    away_s: float
    """How long a broker is away."""


def plan(seed: int, deaths: Mapping[Kind, int]) -> list[Death]:
    """Return the deaths of a soak in the order that the seed gives. `deaths`: how many there are of each kind."""
    dice = random.Random(seed)
    kinds = [kind for kind in Kind for _ in range(deaths.get(kind, 0))]
    dice.shuffle(kinds)
    return [_death(kind, dice) for kind in kinds]


def _death(kind: Kind, dice: random.Random) -> Death:
    is_early = kind is not Kind.BROKER and dice.random() < EARLY
    if kind is Kind.DRIVER:
        after_s = dice.uniform(0, EARLY_SECONDS if is_early else LATER_SECONDS)
    else:
        after_s = dice.uniform(0, GAP_SECONDS)
    return Death(kind, is_early, after_s, dice.random(), dice.uniform(0, AWAY_SECONDS))
