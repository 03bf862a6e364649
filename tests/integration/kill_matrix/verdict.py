"""Defines the conditions that must be true at the end, whatever has happened before. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kill_matrix.worker import Output


def problems_of(seen: Iterable[Output], written: Iterable[Output], inputs: int) -> list[str]:
    """Return the violations of three rules: each input is written exactly once; of each attempt at a transaction,
    either all records are visible or none; no unknown record exists.

    `seen` are the records that a read_committed consumer has read, `written` all records in the log.
    """
    seen = list(seen)
    times = Counter(output.input for output in seen)
    expected = {str(number) for number in range(inputs)}
    problems = [f"input {number} {times[number]} times" for number in sorted(expected, key=int) if times[number] != 1]
    problems += [f"unknown input {name}" for name in sorted(times.keys() - expected)]
    sizes = {output.attempt: output.size for output in seen}
    records = Counter(output.attempt for output in seen)
    problems += [
        f"transaction {attempt} is torn: {records[attempt]} of {size} records"
        for attempt, size in sizes.items()
        if records[attempt] != size
    ]
    if set(seen) - set(written):
        problems.append(f"read, but not in the log: {sorted(set(seen) - set(written))}")
    return problems


def attempts(outputs: Iterable[Output]) -> set[str]:
    return {output.attempt for output in outputs}
