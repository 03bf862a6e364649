"""The purgatory of a partition: requests that wait, at most until a deadline. Appends with acks=all wait for the high
watermark, appends with acks=1 under group commit for the leader's disk, fetches for bytes, and DeleteRecords for the
low watermark.

Each waiting request has an answer, a future of its result (`runtime/answers.py`); cancelling the answer removes the
request. An append costs one subtraction for each waiting fetch. The records of a waiting fetch are read only once, when
there are enough bytes. A waiting append is an entry in a heap until the high watermark reaches its offset.

Each completed answer causes work in the next iteration of the event loop (a read or a socket write). When one event
completes many answers, only WOKEN_PER_TURN of them complete in each iteration (S87).

A follower's fetch completes when records are appended. A consumer's fetch completes when the records are replicated. A
follower's fetch also completes soon after the high watermark has advanced, since the follower may become leader with
that high watermark.

A follower's fetch session does not visit its idle partitions, those without news for the follower. They are registered
here (`idle`), and each event that may be news for a follower makes them active again, before any other effect.
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
"""When the heap of waiting appends has this many entries, the appends whose deadline has passed are removed."""
WOKEN_PER_TURN: Final = 32
"""The maximum number of waiting fetches, or of appends, that one event completes in one iteration of the event loop."""
NEWS_SECONDS: Final = 0.01
"""When only the high watermark has advanced, or the follower must fetch an additional partition, the follower's fetch
waits this many seconds for records before its response is sent. Without this delay, each record of a producer that
writes rarely would cause two responses: one with the record, and one with the new high watermark.
"""
NEWS_SECONDS_PER_PARTITION: Final = 0.001
"""The minimum time between two early responses to a follower (responses without records), in seconds for each partition
that the fetch reads. The value is about fifty times the cost of reading one partition.
"""


class Purgatory:
    """The purgatory of one partition: the requests that wait at this partition. The answers of waiting requests
    complete with error codes: NONE, or the reason why the append or deletion failed.
    """

    __slots__ = (
        "_look_at",
        "_look_at_unsynced",
        "_numbers",
        "appends",
        "deletions",
        "fetches",
        "idle",
        "replica_fetches",
        "syncing",
        "unsynced",
    )

    def __init__(self) -> None:
        self.fetches: dict[DelayedFetch, None] = {}
        self.replica_fetches: dict[DelayedFetch, None] = {}
        """The waiting fetches of consumers and of followers, both in order of arrival."""
        self.idle: dict[IdleReader, None] = {}
        """The followers' sessions in which this partition is idle."""
        self.appends: list[tuple[int, int, bool, asyncio.Future[ErrorCode]]] = []
        """The waiting appends, a heap of tuples: next offset, sequence number, whether the append fails when the ISR is
        smaller than min.insync.replicas, answer.
        """
        self.deletions: list[tuple[int, asyncio.Future[ErrorCode]]] = []
        """The waiting deletions (DeleteRecords), as pairs of offset and answer."""
        self.unsynced: list[asyncio.Future[ErrorCode]] = []
        self.syncing: list[asyncio.Future[ErrorCode]] = []
        """The answers that wait only for the leader's disk: one list for the next sync of the log, and one for the
        running sync.
        """
        self._numbers = count()
        self._look_at = self._look_at_unsynced = APPENDS_BEFORE_LOOK

    def for_offset(self, next_offset: int, *, needs_replicas: bool) -> asyncio.Future[ErrorCode]:
        """Return an answer that completes with NONE when the high watermark reaches `next_offset`, or with
        NOT_LEADER_OR_FOLLOWER if this broker stops leading before.

        If `needs_replicas` is True, the answer completes with NOT_ENOUGH_REPLICAS_AFTER_APPEND as soon as the ISR is
        smaller than min.insync.replicas.
        """
        if len(self.appends) >= self._look_at:
            self.appends = [entry for entry in self.appends if not entry[3].done()]
            heapify(self.appends)
            self._look_at = max(APPENDS_BEFORE_LOOK, 2 * len(self.appends))
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        heappush(self.appends, (next_offset, next(self._numbers), needs_replicas, answer))
        return answer

    def for_sync(self) -> asyncio.Future[ErrorCode]:
        """Return an answer that completes with NONE after the next sync of the log, with KAFKA_STORAGE_ERROR if the
        disk fails before, or with NOT_LEADER_OR_FOLLOWER if this broker stops leading before.
        """
        if len(self.unsynced) >= self._look_at_unsynced:  # while a disk hangs, many requests may time out
            self.unsynced[:] = [
                waiting for waiting in self.unsynced if not waiting.done()
            ]  # removed the completed answers
            self._look_at_unsynced = max(APPENDS_BEFORE_LOOK, 2 * len(self.unsynced))
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.unsynced.append(answer)
        return answer

    def for_low_watermark(self, offset: int) -> asyncio.Future[ErrorCode]:
        """Return an answer that completes with NONE when every in-sync replica has deleted the records before `offset`,
        or with NOT_LEADER_OR_FOLLOWER if this broker stops leading before.
        """
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
        """Complete the appends up to `high_watermark`, because their records are replicated."""
        if not self.appends or self.appends[0][0] > high_watermark:
            return
        ended = []
        while self.appends and self.appends[0][0] <= high_watermark:
            ended.append(heappop(self.appends)[3])
        if len(ended) == 1:
            _end(ended[0], ErrorCode.NONE)
        else:
            _end_all(ended, ErrorCode.NONE)

    def on_sync_begun(self) -> None:
        """Record that a sync begins now, which covers all records appended so far."""
        self.syncing, self.unsynced = self.unsynced, []

    def on_synced(self) -> None:
        """Complete the answers that waited for the sync that has ended."""
        ended, self.syncing = self.syncing, []
        _end_all(ended, ErrorCode.NONE)

    def on_disk_failed(self) -> None:
        """Complete all waiting appends with KAFKA_STORAGE_ERROR, because the leader's log went offline: their outcome
        is unknown.
        """
        self._end_appends(ErrorCode.KAFKA_STORAGE_ERROR)

    def _end_appends(self, code: ErrorCode) -> None:
        ended = [*(entry[3] for entry in self.appends), *self.syncing, *self.unsynced]
        self.appends, self.syncing, self.unsynced = [], [], []
        _end_all(ended, code)

    def on_readable(self, new_bytes: int, stable_bytes: int) -> None:
        """Count newly readable bytes for the waiting fetches: `new_bytes` for read_uncommitted, `stable_bytes` for
        read_committed."""
        if self.fetches:
            ended = list[DelayedFetch]()
            for fetch in self.fetches:
                if fetch.on_readable(stable_bytes if fetch.read_committed else new_bytes):
                    ended.append(fetch)
            _finish_all(ended)

    def activate(self) -> None:
        """Make this partition active in the fetch sessions in which it is idle. Their waiting fetches then wait here,
        too.
        """
        idle, self.idle = self.idle, {}
        for reader in idle:
            waiting = reader.activate()
            if waiting is not None and not waiting.enough.done():
                waiting.purgatories.append(self)
                self.replica_fetches[waiting] = None

    def on_appended(self, new_bytes: int) -> None:
        """Count `new_bytes` that followers can fetch now."""
        if self.idle:
            self.activate()
        if self.replica_fetches:
            ended = list[DelayedFetch]()
            for fetch in self.replica_fetches:
                if fetch.on_readable(new_bytes):
                    ended.append(fetch)
            _finish_all(ended)

    def on_news(self) -> None:
        """Let the followers' fetches complete soon, after the high watermark or log start offset has moved without new
        records.
        """
        if self.idle:
            self.activate()
        for fetch in self.replica_fetches:
            fetch.hurry()

    def on_too_few_replicas(self) -> None:
        """Fail the appends that need replicas, after the ISR became smaller than min.insync.replicas."""
        ended = [answer for _, _, needs_replicas, answer in self.appends if needs_replicas]
        self.appends = [entry for entry in self.appends if not entry[2]]
        heapify(self.appends)
        _end_all(ended, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def on_resigned(self) -> None:
        """Complete all requests that wait at the partition, since this broker no longer leads. A waiting append gets
        NOT_LEADER_OR_FOLLOWER, because its outcome is unknown. A waiting fetch is read again, and that read returns its
        error.
        """
        self.activate()
        self._end_appends(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        deletions, self.deletions = self.deletions, []
        _end_all([entry[1] for entry in deletions], ErrorCode.NOT_LEADER_OR_FOLLOWER)
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
    """Run WOKEN_PER_TURN calls now, and the rest in the following iterations of the event loop."""
    for number, call in enumerate(calls, 1):
        call()
        if number == WOKEN_PER_TURN:
            asyncio.get_running_loop().call_soon(_in_turns, calls)
            return


def no_longer_than(seconds: float, answer: Answer[ErrorCode], deadlines: Deadlines) -> Answer[ErrorCode]:
    """Return `answer`, which now completes with REQUEST_TIMED_OUT after `seconds` at the latest."""
    if isinstance(answer, asyncio.Future):
        deadlines.unless_done(answer, seconds, partial(_end, answer, ErrorCode.REQUEST_TIMED_OUT))
    return answer


class NewsPace:
    """Limits the rate of early responses without records, because the leader must read all partitions of a follower's
    fetch for each response. Without this limit, a leader that gets a thousand partitions one by one would spend all its
    time on its followers' fetches.
    """

    def __init__(self) -> None:
        self._not_before: dict[int, float] = {}
        """Maps each follower's id to the monotonic seconds before which the follower gets no further early response."""

    def seconds(self, follower_id: int, partitions: int, now: float) -> float:
        """Return the seconds that a fetch of this many partitions must wait before its early response, and count that
        response for the rate limit.
        """
        at = max(now + NEWS_SECONDS, self._not_before.get(follower_id, 0.0))
        self._not_before[follower_id] = at + partitions * NEWS_SECONDS_PER_PARTITION
        return at - now


class Readable(Protocol):
    """The attributes of a partition that waiting fetches use."""

    purgatory: Purgatory


class IdleReader(Protocol):
    """A partition of a follower's fetch session."""

    def activate(self) -> DelayedFetch | None:
        """Make the partition active, so that the next Fetch visits it. Returns the last fetch of the session that
        waits, or has waited.
        """


class DelayedFetch:
    """A fetch that waits until `missing_bytes` (at least 1) more bytes are readable in its partitions. `enough`
    completes once: when the bytes are readable, when this broker stops leading one of the partitions, or when `finish`
    is called.
    """

    __slots__ = ("_hurry", "_missing_bytes", "enough", "purgatories", "read_committed")

    def __init__(
        self,
        partitions: Sequence[Readable],
        missing_bytes: int,
        *,
        read_committed: bool = False,
        hurry: Callable[[DelayedFetch], None] | None = None,
    ) -> None:
        """`hurry` is given only for a follower's fetch. `hurry` is called once, when the leader should respond soon
        although fewer than `missing_bytes` bytes are readable.
        """
        self.read_committed = read_committed
        """Whether the fetch reads only up to the last stable offset (LSO), and therefore waits for the LSO to advance.
        """
        self.purgatories = [partition.purgatory for partition in partitions]
        """The purgatories in which this fetch waits."""
        self._missing_bytes = missing_bytes
        self._hurry = hurry
        self.enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for purgatory in self.purgatories:
            (purgatory.fetches if hurry is None else purgatory.replica_fetches)[self] = None
        self.enough.add_done_callback(self._leave)

    def on_readable(self, new_bytes: int) -> bool:
        """Count `new_bytes` more bytes as readable. Returns True when there are enough bytes for the first time; the
        caller must then call `finish`.
        """
        missed = self._missing_bytes
        self._missing_bytes = missed - new_bytes
        return missed > 0 >= self._missing_bytes

    def hurry(self) -> None:
        """Request an early response to this fetch; the response may still be delayed for some milliseconds to include
        new records.
        """
        hurry, self._hurry = self._hurry, _has_hurried
        if hurry is not None:
            hurry(self)

    def finish(self) -> None:
        """Complete `enough`; does nothing if `enough` is already complete."""
        if not self.enough.done():
            self.enough.set_result(None)

    def _leave(self, _: asyncio.Future[None]) -> None:
        for purgatory in self.purgatories:
            purgatory.fetches.pop(self, None)
            purgatory.replica_fetches.pop(self, None)


def _has_hurried(_: DelayedFetch) -> None:
    """A callback that does nothing; replaces `hurry` after `hurry` was called once."""
