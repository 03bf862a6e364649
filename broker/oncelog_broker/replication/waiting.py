"""Who waits at a partition: appends for the high watermark, fetches for bytes, both no longer than to a deadline.

Each waits as an answer (`runtime/answers.py`); cancelling it is how the partition is told that nobody waits any more.
An append costs one subtraction for each waiting fetch, which is read once, when it has enough. What a waiting append
costs is a place in a heap, until the high watermark passes it.

Each answer sets off work in the next turn of the loop: a fetch is read, an answer is written. So where many come at
once, WOKEN_PER_TURN of them come in each turn (S87).

Followers wait here as consumers do, but for what is appended; consumers wait for what is replicated. A follower is also
told soon where the high watermark is, since it may have to lead from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Protocol

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.tasks import Deadlines
from oncelog_protocol.errors import ErrorCode

APPENDS_BEFORE_LOOK: Final = 1024
"""With so many waiting appends we look for those that nobody waits for any more: their deadline was earlier."""
WOKEN_PER_TURN: Final = 32
"""Waiting fetches, or appends, that one event answers in one turn of the loop."""
NEWS_SECONDS: Final = 0.01
"""How long a follower that is to know of a higher high watermark, or of a new partition, waits for records to come with
it: with one answer for each, a sparse producer would cost two."""
NEWS_SECONDS_PER_PARTITION: Final = 0.001
"""How much later the next one can be told, for each partition that is read for it: some fifty times what that costs."""


class Waiting:
    """All who wait at one partition. `ErrorCode` answers: NONE, or what has become of the append."""

    __slots__ = ("_look_at", "_numbers", "appends", "deletions", "fetches", "replica_fetches")

    def __init__(self) -> None:
        self.fetches: dict[WaitingFetch, None] = {}
        self.replica_fetches: dict[WaitingFetch, None] = {}
        """Both in the order of coming."""
        self.appends: list[tuple[int, int, bool, asyncio.Future[ErrorCode]]] = []
        """A heap of (next offset, number, whether too few replicas end it, answer)."""
        self.deletions: list[tuple[int, asyncio.Future[ErrorCode]]] = []
        """(offset, answer)."""
        self._numbers = count()
        self._look_at = APPENDS_BEFORE_LOOK

    def for_offset(self, next_offset: int, *, needs_replicas: bool) -> asyncio.Future[ErrorCode]:
        """NONE when the high watermark has reached `next_offset`; NOT_LEADER_OR_FOLLOWER if this broker resigns before.

        With `needs_replicas` NOT_ENOUGH_REPLICAS_AFTER_APPEND, as soon as too few are in sync.
        """
        if len(self.appends) >= self._look_at:
            self.appends = [entry for entry in self.appends if not entry[3].done()]
            heapify(self.appends)
            self._look_at = max(APPENDS_BEFORE_LOOK, 2 * len(self.appends))
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        heappush(self.appends, (next_offset, next(self._numbers), needs_replicas, answer))
        return answer

    def for_low_watermark(self, offset: int) -> asyncio.Future[ErrorCode]:
        """NONE when nobody in sync holds records before `offset`; NOT_LEADER_OR_FOLLOWER if this broker resigns
        before."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.deletions.append((offset, answer))
        return answer

    def on_low_watermark(self, low_watermark: int) -> None:
        """The logs of all replicas in sync begin there, or later."""
        for offset, answer in self.deletions:
            if offset <= low_watermark:
                _end(answer, ErrorCode.NONE)
        self.deletions = [entry for entry in self.deletions if not entry[1].done()]

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything below is replicated."""
        if not self.appends or self.appends[0][0] > high_watermark:
            return
        ended = []
        while self.appends and self.appends[0][0] <= high_watermark:
            ended.append(heappop(self.appends)[3])
        _end_all(ended, ErrorCode.NONE)

    def on_readable(self, new_bytes: int, stable_bytes: int) -> None:
        """So many bytes more can be read, and so many of them by those who read what is committed only."""
        if self.fetches:
            _finish_all(
                fetch
                for fetch in tuple(self.fetches)
                if fetch.on_readable(stable_bytes if fetch.read_committed else new_bytes)
            )

    def on_appended(self, new_bytes: int) -> None:
        """So many bytes are there for followers to fetch."""
        if self.replica_fetches:
            _finish_all(fetch for fetch in tuple(self.replica_fetches) if fetch.on_readable(new_bytes))

    def on_news(self) -> None:
        """The high watermark or the log start has moved: there is nothing to fetch in it, but followers are to know."""
        for fetch in self.replica_fetches:
            fetch.hurry()

    def on_too_few_replicas(self) -> None:
        """Fewer are in sync than min.insync.replicas."""
        ended = [answer for _, _, needs_replicas, answer in self.appends if needs_replicas]
        self.appends = [entry for entry in self.appends if not entry[2]]
        heapify(self.appends)
        _end_all(ended, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def on_resigned(self) -> None:
        """This broker leads no more. What becomes of the appends is not known; the fetches will find out."""
        appends, self.appends = self.appends, []
        deletions, self.deletions = self.deletions, []
        _end_all(
            [*(entry[3] for entry in appends), *(entry[1] for entry in deletions)], ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        _finish_all([*self.fetches, *self.replica_fetches])


def _end(answer: asyncio.Future[ErrorCode], code: ErrorCode) -> None:
    if not answer.done():
        answer.set_result(code)


def _end_all(answers: Iterable[asyncio.Future[ErrorCode]], code: ErrorCode) -> None:
    _in_turns(iter([partial(_end, answer, code) for answer in answers]))


def _finish_all(fetches: Iterable[WaitingFetch]) -> None:
    _in_turns(iter([fetch.finish for fetch in fetches]))


def _in_turns(calls: Iterator[Callable[[], None]]) -> None:
    """Some of them now, the rest in the next turns of the loop."""
    for number, call in enumerate(calls, 1):
        call()
        if number == WOKEN_PER_TURN:
            asyncio.get_running_loop().call_soon(_in_turns, calls)
            return


def no_longer_than(seconds: float, answer: Answer[ErrorCode], deadlines: Deadlines) -> Answer[ErrorCode]:
    """The same answer, REQUEST_TIMED_OUT if it is not there in so many seconds."""
    if isinstance(answer, asyncio.Future):
        deadlines.unless_done(answer, seconds, partial(_end, answer, ErrorCode.REQUEST_TIMED_OUT))
    return answer


class NewsPace:
    """When followers are told what brings no records: soon, but again only when reading all their partitions for it has
    become a small part of the time. Else followers keep a leader busy that gets a thousand partitions, one by one."""

    def __init__(self) -> None:
        self._not_before: dict[int, float] = {}
        """Follower -> when it can be told the next time, monotonic seconds."""

    def seconds(self, follower_id: int, partitions: int, now: float) -> float:
        """How long a fetch of so many partitions that is to tell waits for more to come. Counts as told."""
        at = max(now + NEWS_SECONDS, self._not_before.get(follower_id, 0.0))
        self._not_before[follower_id] = at + partitions * NEWS_SECONDS_PER_PARTITION
        return at - now


class Readable(Protocol):
    """A partition, as far as those who wait for its records need it."""

    waiting: Waiting


class WaitingFetch:
    """One fetch that waits at its partitions for `missing_bytes` more, at least 1. `enough` comes once: when they are
    there, when a partition is led no more, or with `finish`."""

    __slots__ = ("_hurry", "_missing_bytes", "_partitions", "enough", "read_committed")

    def __init__(
        self,
        partitions: Sequence[Readable],
        missing_bytes: int,
        *,
        read_committed: bool = False,
        hurry: Callable[[WaitingFetch], None] | None = None,
    ) -> None:
        """`hurry` is a replica's: called once, when the fetch should not wait to the end of its time for the bytes."""
        self.read_committed = read_committed
        """Whether it reads up to the last stable offset only, so that it waits for that one to advance."""
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._hurry = hurry
        self.enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in partitions:
            waiting = partition.waiting
            (waiting.fetches if hurry is None else waiting.replica_fetches)[self] = None
        self.enough.add_done_callback(self._leave)

    def on_readable(self, new_bytes: int) -> bool:
        """`new_bytes` more can be read from one of the partitions. Whether that makes enough, for the first time: then
        the caller has it `finish`."""
        missed = self._missing_bytes
        self._missing_bytes = missed - new_bytes
        return missed > 0 >= self._missing_bytes

    def hurry(self) -> None:
        """There is something to be told, which can wait for more a little."""
        hurry, self._hurry = self._hurry, _has_hurried
        if hurry is not None:
            hurry(self)

    def finish(self) -> None:
        """Wait no more; harmless when that has happened already (a late deadline)."""
        if not self.enough.done():
            self.enough.set_result(None)

    def _leave(self, _: asyncio.Future[None]) -> None:
        for partition in self._partitions:
            partition.waiting.fetches.pop(self, None)
            partition.waiting.replica_fetches.pop(self, None)


def _has_hurried(_: WaitingFetch) -> None:
    """Once is enough."""
