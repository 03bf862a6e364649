"""The markers that wait for each broker, and the meaning of a response about a marker (S39, E7). Pure.

A decided transaction stays here until each of its partitions has its marker, however often leaders change: the leader
is looked up each time that a marker is sent. A marker that fails is sent again after a pause that grows. Markers that
are added for a broker while a request to it is in flight are sent with the next request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from typing import Final

from oncelog_broker.coordinator.transaction.machine import TransactionEnd
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.model.image import ImageView
from oncelog_protocol.errors import ErrorCode

MAX_MARKERS: Final = 1000
"""Limit on the markers of one request: some tens of milliseconds of a leader's time, in slices."""
RETRY_SECONDS: Final = 0.1
"""The first pause before a marker is sent again; it doubles each time, up to MAX_RETRY_SECONDS."""
MAX_RETRY_SECONDS: Final = 1.0
MAX_DOUBLINGS: Final = 10
NEEDS_NO_MARKER: Final = frozenset(
    {
        ErrorCode.NONE,
        # The log has a later epoch, so it has a marker that ended this transaction: a repeat after a restart (S39).
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""The codes after which a partition needs no further marker."""


class Decision:
    """A decided transaction whose markers are being written, by the coordinator of `coordinator_epoch`."""

    __slots__ = ("__weakref__", "_is_current", "_left", "coordinator_epoch", "end", "on_answer", "was_fenced")

    def __init__(
        self,
        end: TransactionEnd,
        coordinator_epoch: int,
        is_current: Callable[[], bool],
        on_answer: Callable[[Decision, Outcome], None],
    ) -> None:
        """`is_current` returns whether this broker still coordinates the transaction. `on_answer` is called with each
        outcome except MORE_TO_COME; with COMPLETE once."""
        self.end = end
        self.on_answer = on_answer
        self.coordinator_epoch = coordinator_epoch
        """The coordinator epoch of its next markers."""
        self.was_fenced = False
        """Whether a log has refused a marker for a later coordinator, and the broker's log has said so."""
        self._is_current = is_current
        self._left = set(end.partitions)

    @property
    def is_live(self) -> bool:
        return self._is_current()

    @property
    def outstanding(self) -> int:
        """The partitions whose marker is not known to be written."""
        return len(self._left)

    def mark_written(self, where: TopicPartition) -> bool:
        """Remove `where`. Returns whether it was the last partition: True once only (E8)."""
        if where not in self._left:
            return False
        self._left.remove(where)
        return not self._left


class WaitingMarker:
    """One marker of a decision that is not known to be written."""

    __slots__ = ("attempts", "decision", "where")

    def __init__(self, decision: Decision, where: TopicPartition) -> None:
        self.decision = decision
        self.where = where
        self.attempts = 0


class Outcome(Enum):
    """The meaning of a response for the decision."""

    MORE_TO_COME = "other partitions, or this one again"
    COMPLETE = "every partition has its marker"
    FENCED = "a log knows a later coordinator (S40): this one again, while we are the coordinator all the same"


class MarkerQueue:
    """The markers of all transactions that this broker coordinates. Times are monotonic seconds."""

    def __init__(self, metadata: ImageView) -> None:
        self._metadata = metadata
        self._queues: dict[int, deque[WaitingMarker]] = {}
        self._leaderless: list[WaitingMarker] = []
        self._unknown: list[WaitingMarker] = []
        """Markers of partitions that are deleted, or not in every broker's image yet."""
        self._later: list[tuple[float, int, WaitingMarker]] = []
        self._numbers = count()

    def __len__(self) -> int:
        """The number of waiting markers; markers that were taken, or left to the caller of `add`, are not counted."""
        return sum(map(len, self._queues.values())) + len(self._leaderless) + len(self._unknown) + len(self._later)

    def add(self, decision: Decision, broker_id: int) -> list[TopicPartition]:
        """Have the markers of a decision wait for their brokers. Returns the partitions that `broker_id` leads, in
        order: their markers are not queued, and a marker that cannot be written is returned by `answered` or
        `again`."""
        image = self._metadata.image
        led: list[TopicPartition] = []
        others: list[WaitingMarker] = []
        is_there, topics = broker_id in image.brokers, image.topics
        for where in sorted(decision.end.partitions):
            topic = topics.get(where.topic)
            partition = None if topic is None else topic.partitions.get(where.partition)
            if is_there and partition is not None and partition.leader == broker_id:
                led.append(where)
            else:
                others.append(WaitingMarker(decision, where))
        self._put(others)
        return led

    def _put(self, markers: Iterable[WaitingMarker]) -> None:
        image = self._metadata.image
        for marker in markers:
            partition = image.partition(*marker.where)
            if partition is None:
                self._unknown.append(marker)
            elif partition.leader in image.brokers:
                self._queues.setdefault(partition.leader, deque()).append(marker)
            else:
                self._leaderless.append(marker)

    def brokers(self) -> list[int]:
        """The ids of brokers for which markers wait."""
        return list(self._queues)

    def take(self, broker_id: int, most: int = MAX_MARKERS) -> list[WaitingMarker]:
        """Take the markers to send to a broker now; the caller reports the response of each with `answered`.

        Drops markers of transactions that this broker no longer coordinates; markers of partitions that another broker
        leads move to that broker's queue.
        """
        image, queue = self._metadata.image, self._queues.get(broker_id)
        taken: list[WaitingMarker] = []
        moved: list[WaitingMarker] = []
        while queue and len(taken) < most:
            marker = queue.popleft()
            if not marker.decision.is_live:
                continue
            partition = image.partition(*marker.where)
            is_led = partition is not None and partition.leader == broker_id and broker_id in image.brokers
            (taken if is_led else moved).append(marker)
        if not queue:
            self._queues.pop(broker_id, None)
        self._put(moved)
        return taken

    def answered(self, marker: WaitingMarker, code: ErrorCode, now: float) -> Outcome:
        """Handle the response about a marker that was taken. If it is not written, it waits to be sent again."""
        decision = marker.decision
        if code in NEEDS_NO_MARKER:
            return self.gone(marker)
        if not decision.is_live:
            return Outcome.MORE_TO_COME
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # If a later coordinator exists, this broker will learn of it and drop the decision. If none exists, and the
            # log has a wrong epoch, the other partitions must still get their markers.
            self.again(marker, now)
            return Outcome.FENCED
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown.append(marker)
        else:
            self.again(marker, now)
        return Outcome.MORE_TO_COME

    @property
    def has_unknown(self) -> bool:
        """Whether any markers are left for `take_unknown`."""
        return bool(self._unknown)

    def take_unknown(self) -> list[WaitingMarker]:
        """Take the markers of partitions that the image, or the leader, does not know. The image may be out of date:
        for each marker the caller checks the metadata store and calls `gone` or `again`."""
        unknown, self._unknown = self._unknown, []
        return [marker for marker in unknown if marker.decision.is_live]

    def gone(self, marker: WaitingMarker) -> Outcome:
        """The partition has its marker, or does not exist."""
        complete = marker.decision.mark_written(marker.where)
        return Outcome.COMPLETE if complete and marker.decision.is_live else Outcome.MORE_TO_COME

    def again(self, marker: WaitingMarker, now: float) -> None:
        """Send the marker again after a pause."""
        pause = min(RETRY_SECONDS * 2**marker.attempts, MAX_RETRY_SECONDS)
        marker.attempts = min(marker.attempts + 1, MAX_DOUBLINGS)
        heappush(self._later, (now + pause, next(self._numbers), marker))

    def next_due(self) -> float | None:
        """The time at which the next pause ends; None if no marker pauses."""
        return self._later[0][0] if self._later else None

    def wake(self, now: float) -> None:
        """Queue the markers whose pause has ended, for the leaders of their partitions."""
        due = []
        while self._later and self._later[0][0] <= now:
            due.append(heappop(self._later)[2])
        self._put(marker for marker in due if marker.decision.is_live)

    def on_image(self) -> None:
        """Queue the markers whose partition now has a leader."""
        leaderless, self._leaderless = self._leaderless, []
        self._put(marker for marker in leaderless if marker.decision.is_live)
