"""A queue of timers for state machines, which returns the due timers and the time of the next timer. This module has no
I/O and no clock; the caller passes the time.

Setting a timer again, as each heartbeat does with a session timer, costs only one update of a dict: the timer's place
in the heap (ordered by deadline) is corrected later, when the timer comes to the top of the heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class TimerQueue(Generic[K]):
    """Timers by key; a key has at most one timer.

    Invariant: each key of `_deadlines` has exactly one valid entry in the heap; `_placed` has the time of this entry.
    The time of the valid entry is not later than the deadline. Outdated entries of the heap are removed when they come
    to the top, or when more than half of the heap is outdated.
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

    def set(self, key: K, deadline: float) -> bool:
        """Set the timer of `key` to `deadline`, replacing an earlier deadline. Returns False if the timer was only
        postponed, so that the next timer of the queue is not due earlier than before.
        """
        self._deadlines[key] = deadline
        placed = self._placed.get(key)
        if placed is not None and deadline >= placed:
            return False
        self._place(key, deadline)
        return True

    def cancel(self, key: K) -> None:
        """Remove the timer of `key`, if it has one."""
        if self._deadlines.pop(key, None) is not None:
            del self._placed[key]
            self._drop_dead_entries()

    def next_due(self) -> float | None:
        """Return the earliest deadline of all timers; None if no timer is set."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Iterator[K]:
        """Remove and yield the timers that are due, in the order of their deadlines."""
        while True:
            self._settle()
            if not self._heap or self._heap[0][0] > now:
                return
            _, _, key = heapq.heappop(self._heap)
            del self._deadlines[key], self._placed[key]
            yield key

    def _settle(self) -> None:
        """Correct the heap until its top entry is valid and has the timer's actual deadline."""
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
