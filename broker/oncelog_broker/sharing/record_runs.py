"""The states of the records of a share partition, as runs: ranges of offsets with the same state. Pure.

Kafka's SharePartition stores batches of the log, and single records for divided batches. Unlike in Kafka, runs do not
depend on the batches of the log: a run is divided where the states of two offsets differ, and adjacent runs with the
same state are joined.

Invariant: runs are ordered by offset and cover the offsets from `start` (included) to `end` (excluded) without gaps.
Records from `end` on were never acquired.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch

NOBODY: Final = ""
"""The value of `owner` for a run that no member has."""


class Run:
    """A range of offsets with the same state, from `first` to `last`, both included.

    `deliveries` is the number of deliveries of the records. In the state ACQUIRED, `owner` is the member that has the
    records, and `deadline` is the time at which the member's lock expires (monotonic seconds). `becomes` is the state
    that the owner's acknowledgement requests, while this state is not written yet; otherwise None. While `becomes` is
    set, the run does not change.
    """

    __slots__ = ("becomes", "deadline", "deliveries", "first", "last", "owner", "state", "transition")

    def __init__(
        self,
        first: int,
        last: int,
        state: DeliveryState,
        deliveries: int = 0,
        owner: str = NOBODY,
        deadline: float = 0.0,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        self.owner = owner
        self.deadline = deadline
        self.becomes: DeliveryState | None = None
        self.transition = 0
        """The number of the transition (change of state) that sets `becomes`; 0 if there is no such transition."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        becomes = "" if self.becomes is None else f" -> {self.becomes.name}"
        return f"{self.first}-{self.last} {self.state.name}{becomes} x{self.deliveries} {self.owner}"

    @property
    def is_free(self) -> bool:
        """Whether the records can be acquired."""
        return self.state is DeliveryState.AVAILABLE

    @property
    def is_done(self) -> bool:
        """Whether the run is done: its records are never delivered again."""
        return self.state.is_terminal

    @property
    def will_be_done(self) -> bool:
        """Whether the run will be done after the requested state is written."""
        return (self.state if self.becomes is None else self.becomes).is_terminal

    def settle(self, state: DeliveryState) -> None:
        """Change to the state `state`, without an owner."""
        self.state, self.owner, self.deadline, self.becomes, self.transition = state, NOBODY, 0.0, None, 0

    def to_batch(self) -> StateBatch:
        """Return the run with its requested state, as a batch for the share coordinator."""
        state = self.state if self.becomes is None else self.becomes
        return StateBatch(self.first, self.last, state, self.deliveries)

    def part(self, first: int, last: int) -> Run:
        """Return a copy of this run for some of its offsets."""
        run = Run(first, last, self.state, self.deliveries, self.owner, self.deadline)
        run.becomes, run.transition = self.becomes, self.transition
        return run

    def is_like(self, other: Run) -> bool:
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.owner == other.owner
            and self.deadline == other.deadline
            and self.becomes is other.becomes
            and self.transition == other.transition
        )


class RecordRuns:
    """The runs of one share partition: ranges of offsets with the same state, which cover all offsets from `start` to
    `end`.
    """

    __slots__ = ("end", "runs", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.runs: list[Run] = []

    def __len__(self) -> int:
        """Return the number of offsets in flight: all offsets from the first one that is not done to the last one that
        was acquired.
        """
        return self.end - self.start

    def append(self, run: Run) -> None:
        """Add a run at the end."""
        assert run.first == self.end
        self.runs.append(run)
        self.end = run.last + 1

    def over(self, first: int, last: int) -> Iterator[Run]:
        """Yield the runs that have offsets between `first` and `last` (both included), without dividing a run."""
        index = self._index(first)
        if index < len(self.runs) and self.runs[index].last < first:
            index += 1
        while index < len(self.runs) and self.runs[index].first <= last:
            yield self.runs[index]
            index += 1

    def cut(self, first: int, last: int) -> list[Run]:
        """Return the runs of exactly the offsets from `first` to `last`, after dividing runs that extend beyond these
        offsets.
        """
        self._divide(first)
        self._divide(last + 1)
        return list(self.over(first, last))

    def divide_at(self, offsets: Iterable[int]) -> None:
        """Divide the runs that contain these ascending offsets, in one pass, so that a run begins at each of these
        offsets."""
        left = iter(offsets)
        at = next(left, self.end)
        divided: list[Run] = []
        for run in self.runs:
            while at <= run.last:
                if run.first < at:
                    rest = run.part(at, run.last)
                    run.last = at - 1
                    divided.append(run)
                    run = rest
                at = next(left, self.end)
            divided.append(run)
        self.runs = divided

    def join(self) -> None:
        """Join adjacent runs with the same state."""
        joined: list[Run] = []
        for run in self.runs:
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined

    def advance(self) -> None:
        """Move `start` beyond the runs that are done, and drop these runs."""
        count = 0
        for run in self.runs:
            if not run.is_done:
                break
            count += 1
        if count:
            self.start = self.runs[count - 1].last + 1
            del self.runs[:count]

    def begin_at(self, offset: int) -> None:
        """Drop all runs below `offset`."""
        if offset <= self.start:
            return
        self._divide(offset)
        self.runs = [run for run in self.runs if run.first >= offset]
        self.start = offset
        self.end = max(self.end, offset)

    def end_at(self, offset: int) -> None:
        """Drop the offsets from `offset` on; `offset` becomes the end of the runs. If `offset` is below `start`, all
        runs are dropped."""
        if offset >= self.end:
            return
        self._divide(offset)
        self.runs = [run for run in self.runs if run.last < offset]
        self.start, self.end = min(self.start, offset), offset

    def _index(self, offset: int) -> int:
        """Return the index of the run that contains the offset; 0 for an offset below `start`."""
        return max(0, bisect_right(self.runs, offset, key=lambda run: run.first) - 1)

    def _divide(self, offset: int) -> None:
        """Divide the run that contains `offset`, so that a run begins at `offset`."""
        if not self.start < offset < self.end:
            return
        index = self._index(offset)
        run = self.runs[index]
        if run.first < offset:
            self.runs.insert(index + 1, run.part(offset, run.last))
            run.last = offset - 1
