"""The timers of state machines: which are due, and when the next one is. Pure: the time is an argument.

A timer that is set again and again (a session, by each heartbeat) costs one dict entry each time: its place in the heap
is corrected only when it comes to the top.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class TimerQueue(Generic[K]):
    """Timers by key; a key has one at most.

    Invariant: each key of `_deadlines` has exactly one entry in the heap that counts, the one named by `_placed`, and
    its time is not later than the deadline. Outdated entries are removed when they come to the top, or when they are
    more than half of the heap.
    """

    def __init__(self) -> None:
        self._deadlines: dict[K, float] = {}
        self._placed: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline: float) -> None:
        """Be due at `deadline`, instead of when it was before."""
        self._deadlines[key] = deadline
        placed = self._placed.get(key)
        if placed is None or deadline < placed:
            self._place(key, deadline)

    def cancel(self, key: K) -> None:
        """Harmless for a key without a timer."""
        if self._deadlines.pop(key, None) is not None:
            del self._placed[key]
            self._drop_dead_entries()

    def next_due(self) -> float | None:
        """When to ask again: no timer is due before it (one may be due later)."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Iterator[K]:
        """Take out the timers that are due, in the order of their deadlines."""
        while True:
            self._settle()
            if not self._heap or self._heap[0][0] > now:
                return
            _, _, key = heapq.heappop(self._heap)
            del self._deadlines[key], self._placed[key]
            yield key

    def _settle(self) -> None:
        """Let the top of the heap be a timer at its true deadline."""
        heap = self._heap
        while heap:
            time, _, key = heap[0]
            if self._placed.get(key) != time:
                heapq.heappop(heap)
            elif self._deadlines[key] > time:
                heapq.heappop(heap)
                self._place(key, self._deadlines[key])
            else:
                return

    def _place(self, key: K, time: float) -> None:
        self._placed[key] = time
        self._sequence += 1
        heapq.heappush(self._heap, (time, self._sequence, key))

    def _drop_dead_entries(self) -> None:
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._deadlines):
            self._heap = [(time, index, key) for index, (key, time) in enumerate(self._placed.items())]
            self._sequence = len(self._heap)
            heapq.heapify(self._heap)
