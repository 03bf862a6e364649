"""The purgatory of a partition: requests that wait for the high watermark (acks=all appends), for bytes (fetches) or
for the low watermark (DeleteRecords), each until a deadline.

Each waiting request is an answer (`runtime/answers.py`); cancelling the answer removes the request. An append costs one
subtraction per waiting fetch, and a fetch is read once, when it has enough bytes. A waiting append is an entry in a
heap until the high watermark passes it.

Completing an answer causes work in the next turn of the event loop (a read or a socket write). When one event completes
many answers, only WOKEN_PER_TURN complete in each turn (S87).

A follower's fetch completes when records are appended, a consumer's when they are replicated. A follower also learns of
a new high watermark soon, since it may become leader from there.
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
"""The purgatory drops completed appends when it holds this many: their deadlines have passed."""
WOKEN_PER_TURN: Final = 32
"""At most this many waiting fetches, or appends, complete in one iteration of the event loop for one event."""
NEWS_SECONDS: Final = 0.01
"""Seconds for which the news of a higher high watermark or a new partition waits in a follower's fetch for records to
go with it; without the wait a sparse producer would cause two responses per record."""
NEWS_SECONDS_PER_PARTITION: Final = 0.001
"""Additional seconds until a follower's next early response, for each partition that the fetch reads: about fifty times
the cost of reading one."""


class Purgatory:
    """The requests that wait at one partition. Answers are error codes: NONE, or why the append or deletion failed."""

    __slots__ = ("_look_at", "_numbers", "appends", "deletions", "fetches", "replica_fetches")

    def __init__(self) -> None:
        self.fetches: dict[DelayedFetch, None] = {}
        self.replica_fetches: dict[DelayedFetch, None] = {}
        """Both in order of arrival."""
        self.appends: list[tuple[int, int, bool, asyncio.Future[ErrorCode]]] = []
        """A heap of (next offset, sequence number, whether an ISR below min.insync.replicas fails it, answer)."""
        self.deletions: list[tuple[int, asyncio.Future[ErrorCode]]] = []
        """(offset, answer)."""
        self._numbers = count()
        self._look_at = APPENDS_BEFORE_LOOK

    def for_offset(self, next_offset: int, *, needs_replicas: bool) -> asyncio.Future[ErrorCode]:
        """NONE when the high watermark reaches `next_offset`; NOT_LEADER_OR_FOLLOWER if this broker stops leading
        before.

        With `needs_replicas`, completes with NOT_ENOUGH_REPLICAS_AFTER_APPEND as soon as the ISR is smaller than
        min.insync.replicas.
        """
        if len(self.appends) >= self._look_at:
            self.appends = [entry for entry in self.appends if not entry[3].done()]
            heapify(self.appends)
            self._look_at = max(APPENDS_BEFORE_LOOK, 2 * len(self.appends))
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        heappush(self.appends, (next_offset, next(self._numbers), needs_replicas, answer))
        return answer

    def for_low_watermark(self, offset: int) -> asyncio.Future[ErrorCode]:
        """NONE when every in-sync replica has deleted the records before `offset`; NOT_LEADER_OR_FOLLOWER if this
        broker stops leading before."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.deletions.append((offset, answer))
        return answer

    def on_low_watermark(self, low_watermark: int) -> None:
        """Complete the deletions up to `low_watermark`, the lowest log start offset of the in-sync replicas."""
        for offset, answer in self.deletions:
            if offset <= low_watermark:
                _end(answer, ErrorCode.NONE)
        self.deletions = [entry for entry in self.deletions if not entry[1].done()]

    def on_high_watermark(self, high_watermark: int) -> None:
        """Complete the appends below `high_watermark`: they are replicated."""
        if not self.appends or self.appends[0][0] > high_watermark:
            return
        ended = []
        while self.appends and self.appends[0][0] <= high_watermark:
            ended.append(heappop(self.appends)[3])
        if len(ended) == 1:
            _end(ended[0], ErrorCode.NONE)
        else:
            _end_all(ended, ErrorCode.NONE)

    def on_readable(self, new_bytes: int, stable_bytes: int) -> None:
        """Count newly readable bytes for the waiting fetches: `new_bytes` for read_uncommitted, `stable_bytes` for
        read_committed."""
        if self.fetches:
            ended = list[DelayedFetch]()
            for fetch in self.fetches:
                if fetch.on_readable(stable_bytes if fetch.read_committed else new_bytes):
                    ended.append(fetch)
            _finish_all(ended)

    def on_appended(self, new_bytes: int) -> None:
        """Count `new_bytes` that followers can fetch now."""
        if self.replica_fetches:
            ended = list[DelayedFetch]()
            for fetch in self.replica_fetches:
                if fetch.on_readable(new_bytes):
                    ended.append(fetch)
            _finish_all(ended)

    def on_news(self) -> None:
        """Hurry the followers' fetches: the high watermark or log start offset has moved, without new records."""
        for fetch in self.replica_fetches:
            fetch.hurry()

    def on_too_few_replicas(self) -> None:
        """Fail the appends that need replicas: the ISR is smaller than min.insync.replicas."""
        ended = [answer for _, _, needs_replicas, answer in self.appends if needs_replicas]
        self.appends = [entry for entry in self.appends if not entry[2]]
        heapify(self.appends)
        _end_all(ended, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def on_resigned(self) -> None:
        """Complete all waiting requests, since this broker no longer leads. Appends get NOT_LEADER_OR_FOLLOWER, as
        their outcome is unknown; fetches are read again and get their error then."""
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


def _finish_all(fetches: list[DelayedFetch]) -> None:
    if len(fetches) <= WOKEN_PER_TURN:
        for fetch in fetches:
            fetch.finish()
    else:
        _in_turns(iter([fetch.finish for fetch in fetches]))


def _in_turns(calls: Iterator[Callable[[], None]]) -> None:
    """Run WOKEN_PER_TURN calls now, and the rest in the following turns of the event loop."""
    for number, call in enumerate(calls, 1):
        call()
        if number == WOKEN_PER_TURN:
            asyncio.get_running_loop().call_soon(_in_turns, calls)
            return


def no_longer_than(seconds: float, answer: Answer[ErrorCode], deadlines: Deadlines) -> Answer[ErrorCode]:
    """The same answer, or REQUEST_TIMED_OUT after `seconds`."""
    if isinstance(answer, asyncio.Future):
        deadlines.unless_done(answer, seconds, partial(_end, answer, ErrorCode.REQUEST_TIMED_OUT))
    return answer


class NewsPace:
    """Paces early responses to followers that carry no records, so that reading partitions for them takes only a small
    part of the leader's time. Without it, the followers of a leader that gets a thousand partitions one by one keep it
    busy.
    """

    def __init__(self) -> None:
        self._not_before: dict[int, float] = {}
        """Follower id -> monotonic seconds before which it gets no further early response."""

    def seconds(self, follower_id: int, partitions: int, now: float) -> float:
        """Return how many seconds a fetch of this many partitions waits before its early response, and count that
        response."""
        at = max(now + NEWS_SECONDS, self._not_before.get(follower_id, 0.0))
        self._not_before[follower_id] = at + partitions * NEWS_SECONDS_PER_PARTITION
        return at - now


class Readable(Protocol):
    """A partition, as far as waiting fetches need it."""

    purgatory: Purgatory


class DelayedFetch:
    """A fetch that waits for `missing_bytes` (at least 1) more bytes in its partitions. `enough` completes once: when
    the bytes are there, when this broker stops leading one of the partitions, or with `finish`."""

    __slots__ = ("_hurry", "_missing_bytes", "_partitions", "enough", "read_committed")

    def __init__(
        self,
        partitions: Sequence[Readable],
        missing_bytes: int,
        *,
        read_committed: bool = False,
        hurry: Callable[[DelayedFetch], None] | None = None,
    ) -> None:
        """`hurry` makes it a follower's fetch: called once, when the fetch should be answered soon although bytes are
        missing."""
        self.read_committed = read_committed
        """Whether it reads up to the last stable offset only, and so waits for the LSO to advance."""
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._hurry = hurry
        self.enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in partitions:
            purgatory = partition.purgatory
            (purgatory.fetches if hurry is None else purgatory.replica_fetches)[self] = None
        self.enough.add_done_callback(self._leave)

    def on_readable(self, new_bytes: int) -> bool:
        """Count `new_bytes` more readable bytes. True when that first makes enough: the caller then calls `finish`."""
        missed = self._missing_bytes
        self._missing_bytes = missed - new_bytes
        return missed > 0 >= self._missing_bytes

    def hurry(self) -> None:
        """Ask for an early response, which may still wait a little for records."""
        hurry, self._hurry = self._hurry, _has_hurried
        if hurry is not None:
            hurry(self)

    def finish(self) -> None:
        """Complete `enough`; does nothing the second time (a late deadline)."""
        if not self.enough.done():
            self.enough.set_result(None)

    def _leave(self, _: asyncio.Future[None]) -> None:
        for partition in self._partitions:
            partition.purgatory.fetches.pop(self, None)
            partition.purgatory.replica_fetches.pop(self, None)


def _has_hurried(_: DelayedFetch) -> None:
    """Replaces `hurry` after its first call."""
