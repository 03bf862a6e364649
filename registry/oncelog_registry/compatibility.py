"""The compatibility levels: the versions of a subject with which a new schema is compared, and in which direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

BACKWARD: Final = "BACKWARD"
FORWARD: Final = "FORWARD"
FULL: Final = "FULL"
TRANSITIVE: Final = "_TRANSITIVE"


def pairs(level: str, earlier: Sequence[T]) -> list[tuple[T, bool]]:
    """Return what to check of a new schema: each earlier version with whether the new schema must read it (True), or it
    must read the new schema (False). `earlier`: ascending; the newest is compared first."""
    base = level.removesuffix(TRANSITIVE)
    compared = list(reversed(earlier)) if level.endswith(TRANSITIVE) else list(reversed(earlier[-1:]))
    directions = {BACKWARD: (True,), FORWARD: (False,), FULL: (True, False)}.get(base, ())
    return [(each, new_reads) for each in compared for new_reads in directions]
