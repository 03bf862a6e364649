"""Compares the transactions that producers know of with the records that a read_committed consumer has seen."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class History:
    """The numbers (ids) of the transactions by outcome, and the duration of each committed transaction in seconds."""

    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)


@dataclass
class Verdict:
    """How many records and transactions contradict the history."""

    lost: int
    """Records of committed transactions that are missing."""
    twice: int
    """Further copies of records."""
    torn: int
    """Transactions that are visible in part, or visible although they were aborted."""


def judged(history: History, seen: Counter[tuple[int, int]], partitions: int) -> Verdict:
    """Compare the records that a read_committed consumer has seen, by transaction and partition, with the history; each
    transaction has a record in each partition.
    """
    visible = Counter(number for number, _ in seen)
    lost = sum(partitions - visible[number] for number in history.committed)
    twice = sum(count - 1 for count in seen.values())
    torn = sum(visible[number] > 0 for number in history.aborted)
    torn += sum(0 < visible[number] < partitions for number in history.unknown)
    return Verdict(lost, twice, torn)
