"""Growth laws: how a figure depends on the size of a cluster, fitted to the measured sizes.

A law is a sum of terms, such as "brokers x partitions" and "partitions", each with a coefficient that is not negative.
The coefficients are those with the least sum of squared relative errors, so small clusters count as much as large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog_simulation.scale.size import INTERNAL_PARTITIONS, Size

Term = Callable[[Size], float]

INTERNAL_TOPICS: Final = 2


def partitions(size: Size) -> int:
    """Return the number of partitions, with those of the internal topics."""
    return size.partitions + INTERNAL_TOPICS * INTERNAL_PARTITIONS


TERMS: Final[Mapping[str, Term]] = {
    "1": lambda size: 1.0,
    "B": lambda size: size.brokers,
    "P": partitions,
    "P/B": lambda size: partitions(size) / size.brokers,
    "B P": lambda size: size.brokers * partitions(size),
    "B (B - 1)": lambda size: size.brokers * (size.brokers - 1),
    "P/B²": lambda size: partitions(size) / size.brokers**2,
    "partitions of a topic": lambda size: size.topic_partitions,
}
"""The terms by their names. B: brokers, P: partitions, P/B²: partitions that one broker replicates from another."""


@dataclass(frozen=True)
class Fit:
    """A law with its coefficients."""

    coefficients: Mapping[str, float]
    """The coefficient of each term, by the name of the term."""
    error: float
    """The largest relative error at a measured size: 0.1 means that a measured figure differs by a tenth."""

    def at(self, size: Size) -> float:
        return sum(coefficient * TERMS[name](size) for name, coefficient in self.coefficients.items())


def fit(terms: Sequence[str], figures: Sequence[tuple[Size, float]]) -> Fit:
    """Fit a law with these terms to the figures of some sizes. A figure of zero is not used."""
    used = [(size, figure) for size, figure in figures if figure > 0]
    names = list(terms)
    while names:
        solved = _least_squares([[TERMS[name](size) / figure for name in names] for size, figure in used])
        negative = [name for name, coefficient in zip(names, solved, strict=True) if coefficient < 0]
        if not negative:
            break
        names.remove(negative[-1])
    found = Fit(dict(zip(names, solved, strict=True)) if names else {}, 0.0)
    errors = [abs(found.at(size) / figure - 1) for size, figure in used]
    return Fit(found.coefficients, max(errors, default=0.0))


def _least_squares(rows: list[list[float]]) -> list[float]:
    """Return the coefficients for which each row's sum is nearest to 1: the normal equations, by elimination."""
    count = len(rows[0])
    matrix = [[sum(row[i] * row[j] for row in rows) for j in range(count)] for i in range(count)]
    values = [sum(row[i] for row in rows) for i in range(count)]
    for i in range(count):
        pivot = max(range(i, count), key=lambda k: abs(matrix[k][i]))
        matrix[i], matrix[pivot], values[i], values[pivot] = matrix[pivot], matrix[i], values[pivot], values[i]
        if abs(matrix[i][i]) < 1e-30:
            continue  # the sizes do not tell this term from the others
        for k in range(i + 1, count):
            factor = matrix[k][i] / matrix[i][i]
            values[k] -= factor * values[i]
            for j in range(i, count):
                matrix[k][j] -= factor * matrix[i][j]
    solved = [0.0] * count
    for i in reversed(range(count)):
        rest = values[i] - sum(matrix[i][j] * solved[j] for j in range(i + 1, count))
        solved[i] = 0.0 if abs(matrix[i][i]) < 1e-30 else rest / matrix[i][i]
    return solved
