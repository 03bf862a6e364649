"""The compatibility levels of subjects, such as BACKWARD and FULL: which versions of a subject a new schema is compared
with, and in which direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

BACKWARD: Final = "BACKWARD"
FORWARD: Final = "FORWARD"
FULL: Final = "FULL"
TRANSITIVE: Final = "_TRANSITIVE"


def pairs(level: str, earlier: Sequence[T]) -> list[tuple[T, bool]]:
    """Return the comparisons for a new schema as pairs of an earlier version and a bool. True means that the new schema
    must be able to read data of the earlier version, False that the earlier version must be able to read data of the
    new schema. `earlier`: the earlier versions in ascending order; the newest is compared first.
    """
    base = level.removesuffix(TRANSITIVE)
    compared = list(reversed(earlier)) if level.endswith(TRANSITIVE) else list(reversed(earlier[-1:]))
    directions = {BACKWARD: (True,), FORWARD: (False,), FULL: (True, False)}.get(base, ())
    return [(each, new_reads) for each in compared for new_reads in directions]
