"""The accumulator stores batches per partition, in order, until the sender takes them.

The module is pure: the time is passed in as loop time, and futures are only stored. Adding a record costs only one
append, because memory, readiness and order are tracked per batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from oncelog.cluster import NO_NODE, Cluster, TopicPartition
from oncelog.config import ProducerConfig
from oncelog.errors import KafkaError, MessageTooLarge, OutcomeUnknown
from oncelog.fail_points.point import fail_point
from oncelog.producer.batch import ProducerBatch, Waiter, unsendable
from oncelog.producer.column_waiter import ColumnWaiter
from oncelog.producer.record_metadata import NO_OFFSET
from oncelog.producer.sequences import PartitionSequences
from oncelog.producer.session import ProducerSession
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.records.batch import Buffer
from oncelog_protocol.records.builder import HeaderSequence, RecordBatchBuilder, record_size_upper_bound
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.packing import Packed

SPLIT_FACTOR: Final = 2
"""A batch that is too large for its topic is split into this number of batches."""
MAY_STILL_ARRIVE: Final = (
    "an earlier batch is missing in the log, and an attempt to send this one was never answered: it may still "
    "arrive, so it is"
    " not sent again"
)


class PartitionQueue:
    """The batches of one partition that are not in flight.

    Invariants: `batches` are in order. `tail` is the last batch while it accepts records, otherwise None. While a
    retried batch is in flight (`is_retrying`), no other batch of the partition is in flight.
    """

    __slots__ = (
        "batches",
        "in_flight",
        "is_retrying",
        "leader",
        "partition",
        "sequences",
        "tail",
        "topic",
        "topic_partition",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_partition = TopicPartition(topic, partition)
        self.leader = NO_NODE
        self.batches: deque[ProducerBatch] = deque()
        self.tail: ProducerBatch | None = None
        self.in_flight = 0
        self.is_retrying = False
        self.sequences = PartitionSequences()


@dataclass(slots=True)
class Ready:
    """The batches that can be sent now, by node, and the time (loop time) of the next check. A time of None means that
    no timer is needed, because an event will trigger the check.
    """

    nodes: dict[int, list[PartitionQueue]] = field(default_factory=dict)
    next_check: float | None = None
    leaderless: set[str] = field(default_factory=set)
    """Topics with batches for partitions that have no leader."""


class Accumulator:
    """Stores the batches of a producer. The methods are called in this order: `append` adds a record to a queue's tail,
    or `open` starts a new batch; `ready` and `drain` take batches; `complete`, `give_up`, `split` or `requeue` then
    records the result of each batch that was taken.

    With a `session`, batches get sequence numbers when they are drained; `may_send` says whether the transaction is
    ready for a partition. Invariant: `free_memory` plus the reservations of the `incomplete` batches is buffer.memory.
    """

    def __init__(
        self,
        config: ProducerConfig,
        session: ProducerSession | None = None,
        may_send: Callable[[TopicPartition], bool] | None = None,
    ) -> None:
        self._session = session
        self._may_send = may_send
        self._batch_size = max(1, min(config.batch_size, config.max_request_size))
        self._max_request_size = config.max_request_size
        self._buffer_memory = config.buffer_memory
        self._linger_s = config.linger_ms / 1000
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._is_strictly_ordered = config.max_in_flight_requests_per_connection == 1
        self._compression = Compression[config.compression_type.upper()]
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._waiting: dict[PartitionQueue, None] = {}  # the queues that have batches, in round-robin order
        self._last_number = 0
        self.incomplete: dict[int, list[ProducerBatch]] = {}
        self.free_memory = config.buffer_memory
        self.is_flushing = False
        self.abandoned: list[tuple[ProducerBatch, KafkaError]] = []
        """Batches that were removed from their queues without being sent, each with the error with which the sender
        must fail its records.
        """

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return the queue of a partition, which is created at its first use."""
        key = TopicPartition(topic, partition)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = PartitionQueue(topic, partition)
        return queue

    def set_leaders(self, cluster: Cluster) -> None:
        """Update the leaders of all queues."""
        for queue in self._queues.values():
            queue.leader = cluster.leader(queue.topic, queue.partition)

    def open(
        self,
        queue: PartitionQueue,
        now: float,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeaderSequence,
        waiter: Waiter,
    ) -> bool:
        """Start a new tail with this record; return False if no memory is available for the batch.

        Raises MessageTooLarge, and the builder's error for a record that cannot be encoded; neither changes the state.
        """
        bound = record_size_upper_bound(key, value, headers)
        self._check_size(bound)
        reserved = min(max(bound, self._batch_size), self._buffer_memory)
        if reserved > self.free_memory:
            return False
        batch = ProducerBatch(
            queue.topic,
            queue.partition,
            (self._last_number + 1,),
            RecordBatchBuilder(self._batch_size),
            now,
            now + self._delivery_timeout_s,
        )
        batch.append(timestamp, key, value, headers, waiter)
        self._add(queue, batch, reserved)
        queue.tail = batch
        return True

    def add_whole(self, queue: PartitionQueue, now: float, packed: Packed, waiter: ColumnWaiter) -> bool:
        """Add a batch that has all its records (`RecordBatchBuilder.whole`), and accept no more records in the tail;
        return False if no memory is available for the batch.

        Raises MessageTooLarge without changing the state.
        """
        size = len(packed.data)
        self._check_size(size)
        if size > self.free_memory:
            return False
        deadline = now + self._delivery_timeout_s
        number = (self._last_number + 1,)
        batch = ProducerBatch.whole(queue.topic, queue.partition, number, packed, waiter, now, deadline)
        self._add(queue, batch, size)
        queue.tail = None
        return True

    def _check_size(self, bound: int) -> None:
        """Raise MessageTooLarge if a record of up to `bound` bytes cannot be sent."""
        for limit, name in ((self._max_request_size, "max.request.size"), (self._buffer_memory, "buffer.memory")):
            if bound > limit:
                raise MessageTooLarge(
                    ErrorCode.MESSAGE_TOO_LARGE, f"a record of up to {bound} bytes: {name} is {limit}"
                )

    def _add(self, queue: PartitionQueue, batch: ProducerBatch, reserved: int) -> None:
        self._last_number += 1
        self._reserve(batch, reserved)
        self.incomplete[batch.number] = [batch]
        queue.batches.append(batch)
        self._waiting.setdefault(queue)

    def ready(self, now: float, *, is_memory_short: bool = False) -> Ready:
        """Return the queues whose first batch may be sent, because it is full, has lingered long enough, or is urgent
        for memory or a flush.
        """
        ready = Ready()
        is_urgent = self.is_flushing or is_memory_short
        for queue in self._waiting:
            head = queue.batches[0]
            if queue.is_retrying or (queue.in_flight and (head.attempts or self._is_strictly_ordered)):
                continue  # send nothing, to keep the order; the response to the batch in flight wakes the sender
            due = head.not_before
            if not is_urgent and not head.attempts and head is queue.tail and head.size < self._batch_size:
                due = max(due, head.created + self._linger_s)
            if queue.leader == NO_NODE:
                ready.leaderless.add(queue.topic)
                due = head.deadline
            elif due <= now and not self._may_drain(queue, head):
                # A response or a new epoch, for which this batch waits, wakes the sender.
                due = head.deadline
            elif due <= now:
                ready.nodes.setdefault(queue.leader, []).append(queue)
                continue
            due = min(due, head.deadline)
            if ready.next_check is None or due < ready.next_check:
                ready.next_check = due
        return ready

    @fail_point("drain")
    def drain(self, queues: list[PartitionQueue]) -> list[ProducerBatch]:
        """Return one closed batch of each queue, up to max.request.size; drained queues move to the end of the order.

        The queues must come from `ready`, with no other call of the accumulator between `ready` and `drain`.
        """
        batches: list[ProducerBatch] = []
        size = 0
        for queue in queues:
            head = queue.batches[0]
            if head is queue.tail:
                queue.tail = None
            try:
                head.close(self._compression)
            except Exception as error:  # if encoding fails (memory, a codec), only this batch fails
                self._drop_head(queue, unsendable(error))
                continue
            if batches and size + head.size > self._max_request_size:
                break
            size += head.size
            queue.batches.popleft()
            del self._waiting[queue]
            if queue.batches:
                self._waiting[queue] = None
            queue.in_flight += 1
            queue.is_retrying = head.attempts > 0
            if self._session is not None and not head.is_stamped:
                queue.sequences.stamp(head)
            head.attempts += 1
            self._reserve(head, head.size)
            batches.append(head)
        return batches

    def complete(self, batch: ProducerBatch, base_offset: int = NO_OFFSET) -> None:
        """Record that the in-flight `batch` is in the log."""
        if self._forget(batch):
            queue = self._landed(batch)
            queue.sequences.acknowledged(batch, base_offset)
            self._settle(queue)

    def give_up(self, batch: ProducerBatch) -> None:
        """Record that the in-flight `batch` will not be sent again."""
        if self._forget(batch):
            queue = self._landed(batch)
            queue.sequences.given_up(batch)
            self._settle(queue)

    def requeue(self, batch: ProducerBatch, not_before: float) -> None:
        """Put the in-flight `batch` back at its place in the queue; it is sent at `not_before` or later.

        Raises RuntimeError for a batch that is not in flight according to its sequences (S23).
        """
        if batch.number in self.incomplete:
            queue = self._landed(batch)
            if self._session is not None:
                queue.sequences.check_tracked(batch)
            batch.not_before = not_before
            self._insert(queue, batch)
            self._settle(queue)

    def split(self, batch: ProducerBatch) -> None:
        """Replace the in-flight `batch`, which is too large for its topic, by smaller batches."""
        if batch.number not in self.incomplete:
            return
        pieces = batch.split(max(1, batch.uncompressed_size // SPLIT_FACTOR))
        for piece in pieces:
            piece.close(self._compression)
        # No statement from here on can fail. Add the pieces before the original is removed, because a flush would
        # otherwise miss the batch number for a moment.
        self.incomplete[batch.number] += pieces
        self._forget(batch)
        queue = self._landed(batch)
        queue.sequences.split(batch, pieces)
        for piece in pieces:
            self._reserve(piece, piece.size)
            self._insert(queue, piece)

    def expire(self, now: float) -> list[ProducerBatch]:
        """Remove the batches whose delivery.timeout.ms has passed and that are not in flight."""
        expired = []
        for queue in list(self._waiting):
            while queue.batches and queue.batches[0].deadline <= now:
                expired.append(self._take_out_first(queue))
            if not queue.batches:
                self._waiting.pop(queue)
            self._settle(queue)
        return expired

    def drop_waiting(self) -> list[ProducerBatch]:
        """Remove the batches that are not in flight, because their transaction will not be committed."""
        dropped = []
        for queue in list(self._waiting):
            while queue.batches:
                dropped.append(self._take_out_first(queue))
            self._settle(queue)
        self._waiting.clear()
        return dropped

    def drop_all(self) -> list[ProducerBatch]:
        """Remove every batch, in flight or not, because the producer closes; later responses are ignored."""
        dropped = [batch for siblings in self.incomplete.values() for batch in siblings]
        for batch in dropped:
            self._forget(batch)
        for queue in self._queues.values():
            queue.batches.clear()
            queue.tail = None
        self._waiting.clear()
        return dropped

    @property
    def batch_size(self) -> int:
        """The maximum bytes of a batch with several records, before compression."""
        return self._batch_size

    @property
    def last_number(self) -> int:
        """The number of the newest batch. A flush stores this number, and is done when no batch up to the number is
        incomplete.
        """
        return self._last_number

    def is_complete(self, number: int) -> bool:
        """Return whether all batches up to `number` have a final result."""
        oldest = next(iter(self.incomplete), None)  # batch numbers, and therefore the keys, are in order
        return oldest is None or oldest > number

    def _may_drain(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        if self._may_send is not None and not self._may_send(queue.topic_partition):
            return False
        return self._session is None or self._session.may_drain(queue.sequences, head)

    def _settle(self, queue: PartitionQueue) -> None:
        """Decide which of the given-up batches (which are not sent again, and not acknowledged) are in the log. While a
        batch is in flight, wait, because its response may show which batches are in the log.
        """
        if self._session is None or queue.in_flight or not queue.sequences.needs_settling:
            return
        self._session.settle(queue.sequences)
        if queue.sequences.needs_restart:
            for batch in [batch for batch in queue.batches if batch.is_maybe_written]:
                queue.batches.remove(batch)
                self._forget(batch)
                queue.sequences.given_up(batch)
                self.abandoned.append((batch, OutcomeUnknown(MAY_STILL_ARRIVE)))
            if not queue.batches:
                self._waiting.pop(queue, None)

    def _drop_head(self, queue: PartitionQueue, error: KafkaError) -> None:
        self.abandoned.append((self._take_out_first(queue), error))
        if not queue.batches:
            self._waiting.pop(queue, None)
        self._settle(queue)

    def _take_out_first(self, queue: PartitionQueue) -> ProducerBatch:
        batch = queue.batches.popleft()
        if batch is queue.tail:
            queue.tail = None
        self._forget(batch)
        queue.sequences.given_up(batch)
        return batch

    def _reserve(self, batch: ProducerBatch, size: int) -> None:
        self.free_memory -= size - batch.reserved
        batch.reserved = size

    def _forget(self, batch: ProducerBatch) -> bool:
        """Release the resources of the batch; return False if they were already released."""
        siblings = self.incomplete.get(batch.number)
        if siblings is None or batch not in siblings:
            return False
        siblings.remove(batch)
        if not siblings:
            del self.incomplete[batch.number]
        self._reserve(batch, 0)
        return True

    def _landed(self, batch: ProducerBatch) -> PartitionQueue:
        queue = self._queues[TopicPartition(batch.topic, batch.partition)]
        queue.in_flight -= 1
        queue.is_retrying = False
        return queue

    def _insert(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        index = 0
        for waiting in queue.batches:
            if waiting.order > batch.order:
                break
            index += 1
        queue.batches.insert(index, batch)
        self._waiting.setdefault(queue)
