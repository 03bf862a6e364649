"""Starts long tests first, so that no worker runs one at the end, when the other workers have nothing left to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from itertools import islice
from math import ceil
from typing import TypeVar

import pytest

Item = TypeVar("Item", bound=Hashable)


def is_long(item: pytest.Item, timeout: float) -> bool:
    """Return whether the test is marked with a longer timeout than the default `timeout`, in seconds."""
    mark = item.get_closest_marker("timeout")
    return mark is not None and mark.args[0] > timeout


def in_pieces(items: Sequence[Item], long: Sequence[Item], pieces: int) -> list[Item]:
    """Divide the tests into pieces as pytest-xdist's `worksteal` divides them among its workers, and put an equal share
    of the `long` tests at the beginning of each piece. Apart from that, their order stays. Return all pieces, joined.
    """
    waiting, are_long = deque(long), set(long)
    others = (item for item in items if item not in are_long)
    ordered: list[Item] = []
    for left in range(pieces, 0, -1):
        size = (len(items) - len(ordered)) // left
        share = min(size, ceil(len(waiting) / left))
        ordered += [waiting.popleft() for _ in range(share)]
        ordered += islice(others, size - share)
    return ordered
