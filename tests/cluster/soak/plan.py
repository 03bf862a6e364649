"""Derives from a seed which faults strike which victims at which times, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

BROKERS = (1, 2, 3)
GAP_SECONDS = (5.0, 15.0)
"""The range of seconds from the beginning of one fault to the beginning of the next."""
DOUBLE = 0.2
"""The share of faults during which a second fault occurs."""
DOUBLE_GAP_SECONDS = (0.2, 2.0)


class Fault(Enum):
    KILL = "kill -9 of a broker"
    KILL_TWO = "kill -9 of two brokers"
    KILL_ALL = "kill -9 of all three"
    PAUSE = "SIGSTOP of a broker"
    ONE_WAY = "one broker hears another no more"
    TWO_WAYS = "two brokers hear each other no more"
    CUT_OFF = "a broker is cut off from the others"
    UNHEARD = "ZooKeeper hears a broker no more"
    DEAF = "a broker hears ZooKeeper no more"
    NO_ZOOKEEPER = "a broker is cut off from ZooKeeper"
    ZOOKEEPER_KILL = "kill -9 of a ZooKeeper server"
    ZOOKEEPER_PAUSE = "SIGSTOP of a ZooKeeper server"
    ENSEMBLE_PAUSE = "SIGSTOP of the ensemble"
    SESSION_END = "a broker's session is ended"
    DISK_FULL = "a broker's disk is full"
    CLOCK_JUMP = "a broker's clock jumps"
    ROLLING = "rolling restart"


class Strike(NamedTuple):
    at: float
    """Time at which the fault begins, in seconds after the moment at which all clients were working for the first time.
    """
    fault: Fault
    victims: tuple[int, ...]
    """The brokers that the fault strikes, in the order in which the fault uses them; for `ZOOKEEPER_...` faults,
    ZooKeeper servers instead.
    """
    seconds: float
    """How many seconds the fault lasts."""
    amount: float = 0.0
    """Seconds by which the broker's clock jumps; only for the fault that changes clocks."""

    def __str__(self) -> str:
        whom = ", ".join(map(str, self.victims))
        much = f" by {self.amount:+.0f} s" if self.amount else ""
        return f"{self.fault.value}{much} ({whom}) for {self.seconds:.1f} s"


Making = Callable[[random.Random, float], Strike]


def _one(fault: Fault, shortest: float, longest: float) -> Making:
    return lambda rng, at: Strike(at, fault, (rng.choice(BROKERS),), rng.uniform(shortest, longest))


def _some(fault: Fault, count: int, shortest: float, longest: float) -> Making:
    return lambda rng, at: Strike(at, fault, tuple(rng.sample(BROKERS, count)), rng.uniform(shortest, longest))


def _clock(rng: random.Random, at: float) -> Strike:
    """Return by how many seconds a clock jumps: forward at most by the age that brokers accept for a record's
    timestamp, and back at most by how far they accept it in the future.
    """
    amount = rng.choice((-2800.0, -60.0, 60.0, 3600.0, 7200.0))
    return Strike(at, Fault.CLOCK_JUMP, (rng.choice(BROKERS),), rng.uniform(2.0, 6.0), amount)


MAKINGS: Mapping[Fault, Making] = {
    Fault.KILL: _one(Fault.KILL, 0.0, 5.0),
    Fault.KILL_TWO: _some(Fault.KILL_TWO, 2, 0.0, 6.0),
    Fault.KILL_ALL: _some(Fault.KILL_ALL, 3, 0.0, 4.0),
    Fault.PAUSE: _one(Fault.PAUSE, 0.5, 8.0),
    Fault.ONE_WAY: _some(Fault.ONE_WAY, 2, 1.0, 7.0),
    Fault.TWO_WAYS: _some(Fault.TWO_WAYS, 2, 1.0, 7.0),
    Fault.CUT_OFF: _one(Fault.CUT_OFF, 1.0, 7.0),
    Fault.UNHEARD: _one(Fault.UNHEARD, 1.0, 7.0),
    Fault.DEAF: _one(Fault.DEAF, 1.0, 7.0),
    Fault.NO_ZOOKEEPER: _one(Fault.NO_ZOOKEEPER, 1.0, 7.0),
    Fault.ZOOKEEPER_KILL: _one(Fault.ZOOKEEPER_KILL, 0.5, 6.0),
    Fault.ZOOKEEPER_PAUSE: _one(Fault.ZOOKEEPER_PAUSE, 0.5, 8.0),
    Fault.ENSEMBLE_PAUSE: _some(Fault.ENSEMBLE_PAUSE, 3, 0.5, 7.0),
    Fault.SESSION_END: _one(Fault.SESSION_END, 0.0, 0.0),
    Fault.DISK_FULL: _one(Fault.DISK_FULL, 1.0, 6.0),
    Fault.CLOCK_JUMP: _clock,
    Fault.ROLLING: _some(Fault.ROLLING, 3, 0.0, 0.0),
}


def plan(seed: int, seconds: float, faults: Sequence[Fault] = tuple(Fault)) -> list[Strike]:
    """Return a plan in which each fault of `faults` occurs once before any fault occurs again."""
    return list(_strikes(random.Random(seed), seconds, faults))


def _strikes(rng: random.Random, seconds: float, faults: Sequence[Fault]) -> Iterator[Strike]:
    at = rng.uniform(*GAP_SECONDS)
    bag: list[Fault] = []
    while at < seconds:
        if not bag:
            bag = list(faults)
            rng.shuffle(bag)
        yield MAKINGS[bag.pop()](rng, at)
        at += rng.uniform(*(DOUBLE_GAP_SECONDS if rng.random() < DOUBLE else GAP_SECONDS))
