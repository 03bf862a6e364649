"""A link of the simulated network: one direction between two hosts, with the delay of its packets, and whether it is
cut.
"""

from __future__ import annotations

from random import Random
from typing import Final, Protocol

LATENCY_SECONDS: Final = (0.00005, 0.0008)
"""Minimum and maximum delay in seconds of a packet on a healthy link."""
LATE_SHARE: Final = 0.01
"""Fraction of the packets that are late, unless the plan of the run sets another fraction."""
LATE_SECONDS: Final = 0.03
"""Maximum seconds by which a late packet is delayed in addition to the usual delay."""


class Stuck(Protocol):
    """A stream whose packets wait for the link to be repaired."""

    def send_again(self, delay: float) -> None:
        """Deliver the packets after `delay` seconds."""


class Link:
    """One direction of the network between two hosts."""

    __slots__ = ("_late_share", "_random", "is_cut", "last_arrival", "slowness", "waiting")

    def __init__(self, random: Random, late_share: float = LATE_SHARE) -> None:
        self._random = random
        self._late_share = late_share
        self.is_cut = False
        self.slowness = 1.0
        """The factor by which all transfers on this link take longer."""
        self.last_arrival = 0.0
        """Virtual time at which all packets that were sent so far have arrived; a packet that was sent while the link
        was slow may arrive long after that, and so do all later packets of its stream.
        """
        self.waiting: dict[Stuck, None] = {}
        """Streams with packets that wait because the link is cut."""

    def latency(self) -> float:
        """Draw the delay of the next packet, in seconds."""
        random, (least, most) = self._random, LATENCY_SECONDS
        seconds = least + random.random() * (most - least)
        if random.random() < self._late_share:
            seconds += random.random() * LATE_SECONDS
        return seconds * self.slowness
