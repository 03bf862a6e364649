"""Random streams that a run draws from its seed: one for each purpose, so that one purpose does not influence
another."""

from __future__ import annotations

from random import Random


def stream(seed: int, purpose: str) -> Random:
    """Return a random generator for one purpose of the run with this seed. The generator is the same on every machine
    and in every process.
    """
    return Random(f"{seed}/{purpose}")
