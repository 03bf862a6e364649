"""The random generators of a run, all seeded from the run's seed: one for each purpose, so that draws for one purpose
do not change the draws for another.
"""

from __future__ import annotations

from random import Random


def stream(seed: int, purpose: str) -> Random:
    """Return a random generator for one purpose of the run with this seed. The generator is the same on every machine
    and in every process.
    """
    return Random(f"{seed}/{purpose}")
