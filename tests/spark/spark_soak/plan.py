"""Determines from a seed which process dies, and when."""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Kind(StrEnum):
    """A process that is killed with -9."""

    DRIVER = "driver"
    """The Spark driver: the JVM and the Python process that started the JVM; both are restarted immediately, with the
    same checkpoint.
    """
    WORKER = "worker"
    """One of the Python processes that the JVM has started: the process of a task, of the source, or of a commit."""
    BROKER = "broker"
    """One of three brokers; it is restarted after `away_s` seconds."""


EARLY: Final = 0.25
"""The share of drivers and workers that die at any time, some before the driver's first batch."""
EARLY_SECONDS: Final = 30.0
"""The latest time of an early death, in seconds after the driver's start."""
LATER_SECONDS: Final = 6.0
"""The longest time, in seconds after the driver's first completed batch, of a death that is not early."""
GAP_SECONDS: Final = 3.0
"""The longest time in seconds between the previous death and that of a worker or a broker."""
AWAY_SECONDS: Final = 5.0


class Death(NamedTuple):
    kind: Kind
    is_early: bool
    """Whether the death may come before the driver's present run has completed its first batch."""
    after_s: float
    pick: float
    """A number from 0 to 1 that selects the process to kill among several candidates."""
    away_s: float
    """How many seconds a broker is down."""


def plan(seed: int, deaths: Mapping[Kind, int]) -> list[Death]:
    """Return the deaths of a soak in the order that the seed gives. `deaths` gives for each kind of death how many
    there are.
    """
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
