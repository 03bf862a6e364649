"""Compares the windows in the target topic with the records in the source topic.

The expected result is computed from the records that a `read_committed` consumer finds in the source topic. What the
writer knows is not enough: a transaction whose outcome the writer never learned may be committed or aborted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from spark_soak.orders import Order, Window, windows_of

EXAMPLES = 5


@dataclass(frozen=True)
class Verdict:
    """Numbers of windows and of faulty windows and orders; all but the first two must be 0."""

    windows: int
    rows: int
    lost: int
    """The number of missing windows."""
    twice: int
    """The number of duplicated windows."""
    wrong: int
    """The number of windows with wrong content, and of windows that must not exist."""
    rows_lost: int
    rows_twice: int
    source_lost: int
    """The number of orders that the writer knows as committed, and that the source topic lacks."""
    source_wrong: int
    """The number of orders in the source topic that are duplicated, or that were aborted."""
    examples: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        return not any(
            (self.lost, self.twice, self.wrong, self.rows_lost, self.rows_twice, self.source_lost, self.source_wrong)
        )


def judged(
    source: Sequence[Order], target: Sequence[Window], committed: Collection[int], aborted: Collection[int]
) -> Verdict:
    """Compare the topics. `committed` and `aborted` are the numbers of the orders whose transaction has ended in that
    way, as far as the writer knows.
    """
    expected = windows_of(source)
    found: dict[tuple[int, str], list[Window]] = {}
    for window in target:
        found.setdefault((window.start_ms, window.customer), []).append(window)
    lost = [key for key in expected if key not in found]
    twice = [key for key, windows in found.items() if len(windows) > 1]
    wrong = [key for key, windows in found.items() if any(window != expected.get(key) for window in windows)]
    wanted = Counter(number for window in expected.values() for number in window.numbers)
    got = Counter(number for window in target for number in window.numbers)
    in_source = Counter(order.number for order in source)
    return Verdict(
        windows=len(expected),
        rows=sum(wanted.values()),
        lost=len(lost),
        twice=len(twice),
        wrong=len(wrong),
        rows_lost=len(wanted.keys() - got.keys()),
        rows_twice=sum(1 for count in got.values() if count > 1),
        source_lost=len(set(committed) - in_source.keys()),
        source_wrong=sum(1 for number, count in in_source.items() if count > 1 or number in aborted),
        examples=tuple(_examples(expected, found, lost, twice, wrong)),
    )


def _examples(
    expected: dict[tuple[int, str], Window],
    found: dict[tuple[int, str], list[Window]],
    *problems: list[tuple[int, str]],
) -> Iterator[str]:
    for name, keys in zip(("lost", "twice", "wrong"), problems, strict=True):
        for key in keys[:EXAMPLES]:
            yield f"{name}: {key}: expected {expected.get(key)}, found {found.get(key)}"
