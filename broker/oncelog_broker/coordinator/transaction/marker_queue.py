"""Queues the markers for each broker, and decides what a response about a marker means (S39, E7). Pure.

A committed or aborted transaction stays in the queue until each of its partitions has its marker. Leader changes do no
harm, because the leader is looked up each time that a marker is sent. A failed marker is sent again after a pause,
which grows with each attempt. Markers that are added while a request to the same broker is in flight are sent with the
next request.
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
"""Maximum number of markers in one request; appending them takes the leader some tens of milliseconds, in slices."""
RETRY_SECONDS: Final = 0.1
"""A marker that was not written is sent again after this number of seconds. Each further pause is twice as long, up to
MAX_RETRY_SECONDS.
"""
MAX_RETRY_SECONDS: Final = 1.0
MAX_DOUBLINGS: Final = 10
NEEDS_NO_MARKER: Final = frozenset(
    {
        ErrorCode.NONE,
        # INVALID_PRODUCER_EPOCH means that the log has a later producer epoch: an earlier marker has already ended this
        # transaction, and a restart has repeated the marker (S39).
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""The error codes after which a partition needs no further marker."""


class Decision:
    """A committed or aborted transaction whose markers are being written. The markers contain `coordinator_epoch`."""

    __slots__ = ("__weakref__", "_is_current", "_left", "coordinator_epoch", "end", "on_answer", "was_fenced")

    def __init__(
        self,
        end: TransactionEnd,
        coordinator_epoch: int,
        is_current: Callable[[], bool],
        on_answer: Callable[[Decision, Outcome], None],
    ) -> None:
        """`is_current` returns whether this broker still coordinates the transaction. `on_answer` is called with each
        outcome of a marker except MORE_TO_COME, and with COMPLETE only once.
        """
        self.end = end
        self.on_answer = on_answer
        self.coordinator_epoch = coordinator_epoch
        """The coordinator epoch with which further markers of this decision are sent."""
        self.was_fenced = False
        """Whether a partition has refused a marker because of a later coordinator. If True, the warning about the later
        coordinator is not logged again.
        """
        self._is_current = is_current
        self._left = set(end.partitions)

    @property
    def is_live(self) -> bool:
        return self._is_current()

    @property
    def outstanding(self) -> int:
        """Number of partitions whose marker is not confirmed as written."""
        return len(self._left)

    def mark_written(self, where: TopicPartition) -> bool:
        """Note that the partition `where` has its marker. Returns True if `where` was the last partition without a
        marker; this happens only once per decision (E8).
        """
        if where not in self._left:
            return False
        self._left.remove(where)
        return not self._left


class WaitingMarker:
    """One marker (of a commit or abort decision) that is not confirmed as written."""

    __slots__ = ("attempts", "decision", "where")

    def __init__(self, decision: Decision, where: TopicPartition) -> None:
        self.decision = decision
        self.where = where
        self.attempts = 0


class Outcome(Enum):
    """What the response to one marker means for the decision (commit or abort) to which the marker belongs."""

    MORE_TO_COME = "other partitions, or this one again"
    COMPLETE = "every partition has its marker"
    FENCED = "a log knows a later coordinator (S40): this one again, while we are the coordinator all the same"


class MarkerQueue:
    """The queued markers of all transactions that this broker coordinates. Times are monotonic seconds."""

    def __init__(self, metadata: ImageView) -> None:
        self._metadata = metadata
        self._queues: dict[int, deque[WaitingMarker]] = {}
        self._leaderless: list[WaitingMarker] = []
        self._unknown: list[WaitingMarker] = []
        """Markers of partitions that are missing from the cluster image of this broker or of the leader: a partition
        may be deleted, or newer than the image.
        """
        self._later: list[tuple[float, int, WaitingMarker]] = []
        self._numbers = count()

    def __len__(self) -> int:
        """The number of queued markers. Markers that were taken for sending, or whose partitions `add` returned, are
        not counted.
        """
        return sum(map(len, self._queues.values())) + len(self._leaderless) + len(self._unknown) + len(self._later)

    @property
    def is_empty(self) -> bool:
        """Whether no marker is queued."""
        return not (self._queues or self._later or self._leaderless or self._unknown)

    def add(self, decision: Decision, broker_id: int) -> list[TopicPartition]:
        """Queue the markers of a decision for the leaders of the partitions. Returns the partitions that the broker
        `broker_id` leads. Markers of these partitions are not queued; the caller writes them, and must pass a marker
        that cannot be written to `answered` or `again`.
        """
        image = self._metadata.image
        led: list[TopicPartition] = []
        others: list[WaitingMarker] = []
        is_there, topics = broker_id in image.brokers, image.topics
        partitions = decision.end.partitions
        for where in sorted(partitions) if len(partitions) > 1 else partitions:
            topic = topics.get(where.topic)
            partition = None if topic is None else topic.partitions.get(where.partition)
            if is_there and partition is not None and partition.leader == broker_id:
                led.append(where)
            else:
                others.append(WaitingMarker(decision, where))
        if others:
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
        """Return the ids of the brokers that have queued markers."""
        return list(self._queues)

    def take(self, broker_id: int, most: int = MAX_MARKERS) -> list[WaitingMarker]:
        """Take the markers that must be sent to a broker now out of the queue; the caller reports the result of each
        marker with `answered`.

        Markers of transactions that this broker no longer coordinates are dropped. Markers of partitions that another
        broker leads now are moved to that broker's queue.
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
        if moved:
            self._put(moved)
        return taken

    def answered(self, marker: WaitingMarker, code: ErrorCode, now: float) -> Outcome:
        """Handle the result of sending a marker that `take` has removed from the queue. A marker that was not written
        is queued to be sent again.
        """
        decision = marker.decision
        if code in NEEDS_NO_MARKER:
            return self.gone(marker)
        if not decision.is_live:
            return Outcome.MORE_TO_COME
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # If a later coordinator exists, this broker drops the decision when the cluster image names that
            # coordinator. If no later coordinator exists, the log of this partition has a wrong coordinator epoch; the
            # other partitions must still get their markers.
            self.again(marker, now)
            return Outcome.FENCED
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown.append(marker)
        else:
            self.again(marker, now)
        return Outcome.MORE_TO_COME

    @property
    def has_unknown(self) -> bool:
        """Whether `take_unknown` would return any markers, that is, markers of partitions without a known leader."""
        return bool(self._unknown)

    def take_unknown(self) -> list[WaitingMarker]:
        """Remove and return the markers of partitions that the cluster image or the leader does not know. The cluster
        image may be outdated, so for each marker the caller checks the metadata store and calls `gone` or `again`.
        """
        unknown, self._unknown = self._unknown, []
        return [marker for marker in unknown if marker.decision.is_live]

    def gone(self, marker: WaitingMarker) -> Outcome:
        """Handle a partition that needs no further marker, because the marker is written or the partition does not
        exist.
        """
        complete = marker.decision.mark_written(marker.where)
        return Outcome.COMPLETE if complete and marker.decision.is_live else Outcome.MORE_TO_COME

    def again(self, marker: WaitingMarker, now: float) -> None:
        """Send the marker again after a pause, which grows with each attempt."""
        pause = min(RETRY_SECONDS * 2**marker.attempts, MAX_RETRY_SECONDS)
        marker.attempts = min(marker.attempts + 1, MAX_DOUBLINGS)
        heappush(self._later, (now + pause, next(self._numbers), marker))

    def next_due(self) -> float | None:
        """Return the time at which the next pause of a marker ends; None if no marker is pausing."""
        return self._later[0][0] if self._later else None

    def wake(self, now: float) -> None:
        """Queue the markers whose pause has ended, for the leaders of their partitions."""
        due = []
        while self._later and self._later[0][0] <= now:
            due.append(heappop(self._later)[2])
        self._put(marker for marker in due if marker.decision.is_live)

    def on_image(self) -> None:
        """Queue the markers whose partitions have a leader in the new cluster image."""
        leaderless, self._leaderless = self._leaderless, []
        self._put(marker for marker in leaderless if marker.decision.is_live)
