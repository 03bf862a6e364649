"""Has the markers of committed and aborted transactions written, on this broker and on other brokers, and retries until
all markers are written (S39, E7).

There is one task for each broker with queued markers. The task for another broker sends one WriteTxnMarkers request and
waits for its response before it sends the next request. The task for this broker itself appends markers to the
partitions that this broker leads, and handles all these partitions of a transaction in one pass. Only markers that
could not be appended immediately are queued. If a task raises an exception, the markers that it took from the queue and
that have no result are queued again, because otherwise their transaction would never end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from weakref import WeakSet

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.transaction.marker_queue import Decision, MarkerQueue, Outcome, WaitingMarker
from oncelog_broker.coordinator.transaction.markers import Marker, MarkerAppender
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.stores.store import StoreUnavailable
from oncelog_broker.replication.peers import Peers, PeerUnavailable, Purpose
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.slices import SLICE_SECONDS, Pauses
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

logger = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 30.0
"""If a marker gets no response within this number of seconds, the marker is sent again. If the first marker was
written, the second marker does no harm (S39).
"""
FIRST_MARKERS_SECONDS: Final = 0.008
"""The number of seconds for which the first slice appends markers, before other work runs: enough for some 200 markers,
or for 15 markers that each roll a segment. The slice is long enough that nearly every transaction is complete before
its producer sends the next request.
"""
MARKERS_SECONDS: Final = SLICE_SECONDS
"""The number of seconds for which each later slice appends markers. Later slices are shorter, so that a transaction
with thousands of partitions does not delay other clients.
"""

Asked = WriteTxnMarkersRequest.WritableTxnMarker
Key = tuple[int, TopicPartition]
"""The producer id and the partition of a marker. This pair identifies a marker in a request, because one request ends
at most one transaction of a producer.
"""


class MarkerSender:
    """Has the markers of all transactions written that this broker coordinates."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataCache,
        appender: MarkerAppender,
        peers: Peers,
        host: Host,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._appender = appender
        self._peers = peers
        self._clock = host.clock
        self._tasks = host.tasks
        self._slices = host.slices
        self._deadlines = host.deadlines
        self._queue = MarkerQueue(metadata)
        self._walks: deque[tuple[Decision, deque[TopicPartition]]] = deque()
        """New commit and abort decisions, each with those partitions of the transaction that this broker leads and that
        have no marker yet.
        """
        self._is_walk_due = False
        """Whether `_walk_at_once` runs in the next iteration of the event loop."""
        self._decisions: WeakSet[Decision] = WeakSet()
        """The decisions whose markers are queued or in flight. Most decisions never are: all of their markers are
        written in one walk.
        """
        self._at_work: set[int | None] = set()
        """The ids of the brokers to which a sender task is running. The element None stands for the task that checks
        unknown partitions.
        """
        self._woken_at = float("inf")

    def write(self, decision: Decision) -> None:
        """Write the markers of `decision`, starting in the next iteration of the event loop. The response to EndTxn is
        sent in this iteration (S38), and the transaction is usually complete before the next request of the same
        producer is read. Exception: a connection's first EndTxn is decoded in slices, so its response is sent in the
        next iteration.
        """
        led = self._queue.add(decision, self._node_id)
        if led:
            self._walks.append((decision, deque(led)))
        if len(led) == len(decision.end.partitions):
            self._walk_soon()
        else:
            self._decisions.add(decision)
            self._go_on()

    @property
    def outstanding(self) -> int:
        """Number of markers of committed or aborted transactions that are not confirmed as written."""
        decisions = {decision for decision, _ in self._walks}.union(self._decisions)
        return sum(decision.outstanding for decision in decisions if decision.is_live)

    def on_image(self) -> None:
        """Put markers that waited for a new cluster image into the queue again."""
        self._queue.on_image()
        self._go_on()

    def _go_on(self) -> None:
        """Start a sender task for every destination that has queued markers and no running task."""
        self._walk_soon()
        for broker_id in self._queue.brokers():
            self._begin_work_for(broker_id)
        if self._queue.has_unknown and None not in self._at_work:
            self._at_work.add(None)
            self._tasks.supervise("markers for unknown partitions", self._look_into_unknown)
        due = self._queue.next_due()
        if due is not None and due < self._woken_at:
            self._woken_at = due
            self._deadlines.after(max(0.0, due - self._clock.monotonic()), self._wake)

    def _begin_work_for(self, broker_id: int) -> None:
        if broker_id not in self._at_work:
            self._at_work.add(broker_id)
            self._tasks.supervise(f"markers for broker {broker_id}", partial(self._work_for, broker_id))

    def _wake(self) -> None:
        self._woken_at = float("inf")
        self._queue.wake(self._clock.monotonic())
        self._go_on()

    # --- methods that append and send markers -------------------------------------------------------------------------

    def _walk_soon(self) -> None:
        """Begin to append the markers of new decisions in the next iteration of the event loop, if no task does it."""
        if self._walks and not self._is_walk_due and self._node_id not in self._at_work:
            self._is_walk_due = True
            asyncio.get_running_loop().call_soon(self._walk_at_once)

    def _walk_at_once(self) -> None:
        """Append the markers of all new decisions; if the first slice does not suffice, a task does the rest."""
        self._is_walk_due = False
        pauses = self._slices.pauses(MARKERS_SECONDS, FIRST_MARKERS_SECONDS)
        while self._walks:
            if self._walk(*self._walks[0], pauses):
                self._walks.popleft()
            if self._walks and pauses.is_due:
                self._begin_work_for(self._node_id)
                return
        if not self._queue.is_empty:
            self._go_on()  # markers that could not be written are in the queue

    async def _work_for(self, broker_id: int) -> None:
        pauses = self._slices.pauses(MARKERS_SECONDS, 0.0)
        if broker_id == self._node_id:
            while self._walks:
                await pauses.here()
                if self._walks and self._walk(*self._walks[0], pauses):
                    self._walks.popleft()
        while markers := deque(self._queue.take(broker_id)):
            with self._giving_back(markers):
                if broker_id == self._node_id:
                    await self._append(markers, pauses)
                else:
                    await self._send(broker_id, markers)
        self._at_work.discard(broker_id)  # not in a `finally`: after an error `supervise` runs the task again
        self._go_on()

    @contextmanager
    def _giving_back(self, markers: deque[WaitingMarker]) -> Iterator[None]:
        """Context manager: if the block raises an exception, the markers that remain in `markers` are sent again after
        a pause."""
        try:
            yield
        except Exception:
            logger.exception("markers not written", extra={"markers": len(markers)})
            for waiting in markers:
                self._queue.again(waiting, self._clock.monotonic())

    def _walk(self, decision: Decision, left: deque[TopicPartition], pauses: Pauses) -> bool:
        """Append the markers of a decision to the partitions in `left`, which this broker leads: at least one marker,
        and further markers until a pause is due. Returns False if a pause is due, and partitions are left.
        """
        marker = None
        try:
            while left:
                if marker is None or marker.coordinator_epoch != decision.coordinator_epoch:
                    if not decision.is_live:
                        break
                    marker = _marker(decision)
                answer = self._appender.append(marker, left[0])
                where = left.popleft()
                if answer is not ErrorCode.NONE:
                    self._decisions.add(decision)
                    self._take_in(WaitingMarker(decision, where), answer)
                elif (code := _acknowledged(answer)) is not ErrorCode.NONE:
                    self._decisions.add(decision)
                    self._settle(WaitingMarker(decision, where), code)
                elif decision.mark_written(where) and decision.is_live:
                    decision.on_answer(decision, Outcome.COMPLETE)
                if left and pauses.is_due:
                    return False
        except Exception:
            logger.exception("markers not written", extra={"markers": len(left)})
            self._decisions.add(decision)
            for where in left:
                self._queue.again(WaitingMarker(decision, where), self._clock.monotonic())
        return True

    async def _append(self, markers: deque[WaitingMarker], pauses: Pauses) -> None:
        """Append the markers of partitions that this broker leads. Other work runs after each slice of time, because a
        marker may roll a segment, which opens files and takes long. Does not wait for markers whose append is
        acknowledged later.
        """
        while markers:
            await pauses.here()
            waiting = markers[0]
            if not waiting.decision.is_live:
                markers.popleft()
                continue
            answer = self._appender.append(_marker(waiting.decision), waiting.where)
            markers.popleft()
            self._take_in(waiting, answer)

    def _take_in(self, waiting: WaitingMarker, answer: Answer[ErrorCode]) -> None:
        """Handle the result of an append on this broker; a result that is a future is handled when the future
        completes.
        """
        if isinstance(answer, asyncio.Future):
            no_longer_than(ANSWER_SECONDS, answer, self._deadlines)
            answer.add_done_callback(partial(self._came, waiting))
        else:
            self._answered(waiting, answer)

    def _came(self, waiting: WaitingMarker, answer: asyncio.Future[ErrorCode]) -> None:
        self._answered(waiting, ErrorCode.REQUEST_TIMED_OUT if answer.cancelled() else answer.result())
        self._go_on()

    async def _send(self, broker_id: int, markers: deque[WaitingMarker]) -> None:
        codes: dict[Key, ErrorCode] = {}
        try:
            response = await self._peers.send(
                broker_id, request_of(markers), purpose=Purpose.MARKERS, timeout=ANSWER_SECONDS
            )
            codes = codes_of(response)
        except PeerUnavailable as error:
            logger.warning("markers not acknowledged", extra={"broker": broker_id, "reason": error})
        pauses = self._slices.pauses()
        while markers:
            await pauses.here()
            waiting = markers.popleft()
            key = waiting.decision.end.producer.producer_id, waiting.where
            self._answered(waiting, codes.get(key, ErrorCode.REQUEST_TIMED_OUT))

    # --- methods that handle the results of sent and appended markers -------------------------------------------------

    def _answered(self, waiting: WaitingMarker, code: ErrorCode) -> None:
        self._settle(waiting, _acknowledged(code))

    def _settle(self, waiting: WaitingMarker, code: ErrorCode) -> None:
        outcome = self._queue.answered(waiting, code, self._clock.monotonic())
        self._end(waiting.decision, outcome)

    @staticmethod
    def _end(decision: Decision, outcome: Outcome) -> None:
        if outcome is not Outcome.MORE_TO_COME:
            decision.on_answer(decision, outcome)

    async def _look_into_unknown(self) -> None:
        """Check in the metadata store whether the partitions exist that are missing from the cluster image of this
        broker or of the leader. A partition that does not exist needs no marker; for all other partitions the markers
        are sent again.
        """
        while markers := deque(self._queue.take_unknown()):
            with self._giving_back(markers):
                await self._see_what_exists(markers)
        self._at_work.discard(None)
        self._go_on()

    async def _see_what_exists(self, markers: deque[WaitingMarker]) -> None:
        try:
            image = await self._metadata.synced()
        except StoreUnavailable:
            image = None
        while markers:
            waiting = markers.popleft()
            if image is None or image.has_partition(*waiting.where):
                self._queue.again(waiting, self._clock.monotonic())
            else:
                self._end(waiting.decision, self._queue.gone(waiting))


def _marker(decision: Decision) -> Marker:
    end = decision.end
    return Marker(end.producer, end.commits, decision.coordinator_epoch, end.transaction_version)


@fail_point("marker-acknowledged", dropped=lambda: ErrorCode.REQUEST_TIMED_OUT)
def _acknowledged(code: ErrorCode) -> ErrorCode:
    """Return `code`, the error code in the response about one marker. At this fail point, a test can lose or delay the
    response."""
    return code


def request_of(markers: Iterable[WaitingMarker]) -> WriteTxnMarkersRequest:
    """Create the WriteTxnMarkers request, with the markers grouped by decision and topic."""
    by_decision: dict[Decision, dict[str, list[int]]] = {}
    for waiting in markers:
        topics = by_decision.setdefault(waiting.decision, {})
        topics.setdefault(waiting.where.topic, []).append(waiting.where.partition)
    return WriteTxnMarkersRequest(
        markers=[
            Asked(
                producer_id=decision.end.producer.producer_id,
                producer_epoch=decision.end.producer.epoch,
                transaction_result=decision.end.commits,
                topics=[
                    Asked.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
                coordinator_epoch=decision.coordinator_epoch,
                transaction_version=decision.end.transaction_version,
            )
            for decision, topics in by_decision.items()
        ]
    )


def codes_of(response: WriteTxnMarkersResponse) -> dict[Key, ErrorCode]:
    """Return the error code of each marker in the response. An unknown code becomes UNKNOWN_SERVER_ERROR, after which
    the marker is sent again."""
    return {
        (result.producer_id, TopicPartition(topic.name, partition.partition_index)): ErrorCode.of(partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }
