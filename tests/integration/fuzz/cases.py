"""Yields request after request; a seed and the broker's responses determine them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fuzz.encoder import Encoder
from fuzz.plausible import Plausible
from fuzz.twists import TWISTS, WEIGHTS, Twisted
from fuzz.world import World
from oncelog_protocol.api import ApiKey

SECOND_TWIST = 0.2
"""The share of requests with more than one unexpected change."""
SHOWN_CHARACTERS = 400


@dataclass(frozen=True)
class Case:
    """One request. With `is_awaited` the broker must respond or close the connection soon. `plain` describes the
    request before the unexpected change.
    """

    number: int
    key: ApiKey
    version: int
    request: Any
    twist: str
    plain: str
    frame: bytes
    is_awaited: bool

    def __str__(self) -> str:
        return (
            f"#{self.number} {self.key.name} v{self.version} ({self.twist}; {len(self.frame):,} bytes) "
            f"made from {self.plain[:SHOWN_CHARACTERS]}"
        )


def cases(world: World, seed: int) -> Iterator[Case]:
    """Yield cases endlessly: each round has every API at every version once, in random order."""
    rng = random.Random(seed)
    plausible = Plausible(world, rng)
    number = 0
    while True:
        for key, version in rng.sample(routes := world.routes(), len(routes)):
            number += 1
            yield _case(plausible.request(key, version), key, version, rng, number)


def _case(request: Any, key: ApiKey, version: int, rng: random.Random, number: int) -> Case:
    plain = str(request)
    twisted = Twisted(request, Encoder(key, version), rng)
    done = _twist(twisted)
    if not twisted.is_grown and rng.random() < SECOND_TWIST:
        done += f", {_twist(twisted)}"
    frame = twisted.encoder.frame(request, number, twisted.client_id, twisted.header_tags)
    return Case(number, key, version, request, done, plain, frame, twisted.is_awaited)


def _twist(twisted: Twisted) -> str:
    while True:
        (twist,) = twisted.rng.choices(TWISTS, WEIGHTS)
        done = twist(twisted)
        if done is not None:
            return done
