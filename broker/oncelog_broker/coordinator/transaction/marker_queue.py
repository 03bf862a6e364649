"""Which markers wait for which broker, and what an answer about one means (S39, E7). Pure.

A decided transaction stays here until each of its partitions has its marker, however often leaders change meanwhile:
where a marker goes is asked anew each time that one is taken. What fails comes again after a pause that grows. What
gathers for a broker while a request is under way to it goes with the next.
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
"""Of one request: some tens of milliseconds of a leader's time, in slices."""
RETRY_SECONDS: Final = 0.1
"""How soon a partition is tried again; twice as long each time, up to the next."""
MAX_RETRY_SECONDS: Final = 1.0
MAX_DOUBLINGS: Final = 10
NEEDS_NO_MARKER: Final = frozenset(
    {
        ErrorCode.NONE,
        # The log has seen a later epoch, so a marker that ended this transaction: sent again after a restart (S39).
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""The answers after which a partition is done with."""


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
        """`is_current` says whether this broker coordinates the transaction still; `on_answer` is for who asks for the
        markers, and hears of each outcome but MORE_TO_COME, of COMPLETE once."""
        self.end = end
        self.on_answer = on_answer
        self.coordinator_epoch = coordinator_epoch
        """What its markers carry from now on."""
        self.was_fenced = False
        """Whether that was said."""
        self._is_current = is_current
        self._left = set(end.partitions)

    @property
    def is_live(self) -> bool:
        return self._is_current()

    @property
    def outstanding(self) -> int:
        """How many partitions have no marker yet, as far as is known."""
        return len(self._left)

    def mark_written(self, where: TopicPartition) -> bool:
        """`where` is done with. Whether it was the last partition; that is said once (E8)."""
        if where not in self._left:
            return False
        self._left.remove(where)
        return not self._left


class WaitingMarker:
    """One marker of a decision that is not written, as far as is known."""

    __slots__ = ("attempts", "decision", "where")

    def __init__(self, decision: Decision, where: TopicPartition) -> None:
        self.decision = decision
        self.where = where
        self.attempts = 0


class Outcome(Enum):
    """What an answer means for the decision."""

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
        """Of partitions that are deleted, or not known everywhere yet."""
        self._later: list[tuple[float, int, WaitingMarker]] = []
        self._numbers = count()

    def __len__(self) -> int:
        """How many wait; those that are taken, or were left to the caller of `add`, are not counted."""
        return sum(map(len, self._queues.values())) + len(self._leaderless) + len(self._unknown) + len(self._later)

    def add(self, decision: Decision, broker_id: int) -> list[TopicPartition]:
        """Have the markers of a decision wait for their brokers. Returns the partitions that `broker_id` leads, in
        order: their markers do not wait here, and one that cannot be written comes back by `answered` or `again`."""
        image = self._metadata.image
        led: list[TopicPartition] = []
        others: list[WaitingMarker] = []
        is_there = broker_id in image.brokers
        for where in sorted(decision.end.partitions):
            partition = image.partition(*where)
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
        """Those for which markers wait."""
        return list(self._queues)

    def take(self, broker_id: int, most: int = MAX_MARKERS) -> list[WaitingMarker]:
        """The markers to send to a broker now; of each the answer is told by `answered`.

        Those of decisions that are ours no more are forgotten; those whose partition is led by another broker go there.
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
        """What has become of a marker that was taken; unless that is an end it waits to be sent again."""
        decision = marker.decision
        if code in NEEDS_NO_MARKER:
            return self.gone(marker)
        if not decision.is_live:
            return Outcome.MORE_TO_COME
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # If there is another one, we shall hear of it, and the decision lives no longer. If there is none, and a
            # log was told a wrong epoch, the other partitions must not wait for it.
            self.again(marker, now)
            return Outcome.FENCED
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown.append(marker)
        else:
            self.again(marker, now)
        return Outcome.MORE_TO_COME

    @property
    def has_unknown(self) -> bool:
        """Whether `take_unknown` gives something."""
        return bool(self._unknown)

    def take_unknown(self) -> list[WaitingMarker]:
        """The markers of partitions that the image, or their leader, does not know. An image may be late: the caller
        finds out for certain and says `gone` or `again` of each."""
        unknown, self._unknown = self._unknown, []
        return [marker for marker in unknown if marker.decision.is_live]

    def gone(self, marker: WaitingMarker) -> Outcome:
        """The partition needs no marker (any more)."""
        complete = marker.decision.mark_written(marker.where)
        return Outcome.COMPLETE if complete and marker.decision.is_live else Outcome.MORE_TO_COME

    def again(self, marker: WaitingMarker, now: float) -> None:
        """To be sent once more, after a pause."""
        pause = min(RETRY_SECONDS * 2**marker.attempts, MAX_RETRY_SECONDS)
        marker.attempts = min(marker.attempts + 1, MAX_DOUBLINGS)
        heappush(self._later, (now + pause, next(self._numbers), marker))

    def next_due(self) -> float | None:
        """When a pause ends next."""
        return self._later[0][0] if self._later else None

    def wake(self, now: float) -> None:
        """Those whose pause has ended wait for their broker again."""
        due = []
        while self._later and self._later[0][0] <= now:
            due.append(heappop(self._later)[2])
        self._put(marker for marker in due if marker.decision.is_live)

    def on_image(self) -> None:
        """What had no leader may have one now."""
        leaderless, self._leaderless = self._leaderless, []
        self._put(marker for marker in leaderless if marker.decision.is_live)
