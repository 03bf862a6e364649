"""Runs half of the combinations of crossed parameters in `make test`, and the other half in a soak.

Use it where each value of a parameter matters, and not each combination of values: both versions of transactions, and
both commit and abort, because unit tests and the simulation have all four combinations of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest


class Halves:
    """Marks the second half of the combinations of each test as `soak`, while tests are collected.

    The first half are the combinations in which the sum of the positions of the values is even, like the white fields
    of a chessboard: with at least two values of each of at least two parameters, each value is in the first half.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], list[Any]] = defaultdict(list)
        """Test, parameter -> its values in the order in which they were collected, which is that of their positions."""

    def mark(self, item: pytest.Item) -> None:
        mark = item.get_closest_marker("crossed")
        if mark is None:
            return
        assert len(mark.args) > 1
        parameters: Mapping[str, Any] = item.callspec.params  # type: ignore[attr-defined]
        test = item.nodeid.partition("[")[0]
        if sum(self._position(test, name, parameters[name]) for name in mark.args) % 2:
            item.add_marker("soak")

    def _position(self, test: str, name: str, value: Any) -> int:
        values = self._values[test, name]
        if value not in values:
            values.append(value)
        return values.index(value)
