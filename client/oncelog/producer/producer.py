"""The public producer."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Unpack

from oncelog.clock import now_ms
from oncelog.cluster import Topic, TopicPartition
from oncelog.config import ProducerConfig, load
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import (
    BufferExhausted,
    ClientClosed,
    ConfigError,
    ErrorCode,
    FatalError,
    InvalidTransactionState,
    KafkaError,
    MessageTooLarge,
    StaleMetadata,
)
from oncelog.group_offsets import ConsumerGroupMetadata, Offset, offset_and_metadata
from oncelog.interceptors import ProducerInterceptor, call_all
from oncelog.lifecycle import Lifecycle
from oncelog.metadata.metadata import Metadata
from oncelog.prepared_transaction import PreparedTransaction
from oncelog.producer.accumulator import Accumulator, PartitionQueue
from oncelog.producer.batch import ProducerBatch, Waiter
from oncelog.producer.column_waiter import ColumnWaiter
from oncelog.producer.columns import MAX_TIMESTAMP, NO_HEADERS, Columns, Row, hand_over
from oncelog.producer.coordinator_calls import CoordinatorCalls
from oncelog.producer.counts import ProducerCounts
from oncelog.producer.packable_rows import HandOver, PackableRows, all_columns, hand_over_packed
from oncelog.producer.partitioner import StickyPartition, chosen_partition, partition_for_key
from oncelog.producer.producer_ids import ProducerIds
from oncelog.producer.record_metadata import RecordMetadata
from oncelog.producer.sender import Sender
from oncelog.producer.serializing import Serializing
from oncelog.producer.session import ProducerSession
from oncelog.producer.transaction import Transaction
from oncelog.producer.transaction_manager import TransactionManager
from oncelog.producer.transactions import Transactions
from oncelog.serialization.serializer import Serializer
from oncelog.tracing.headers import TracedColumn, TracedHeaders
from oncelog.tracing.wanted import wanted_spans
from oncelog.typed_options import ProducerOptions
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.batch import Buffer
from oncelog_protocol.records.builder import HeaderSequence
from oncelog_protocol.records.packing import Packed

__all__ = ["Producer", "RecordMetadata"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Buffer)
    V = TypeVar("V", default=Buffer)
else:  # the standard library supports defaults of type variables since Python 3.13
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class _Route:
    """The queues of one topic's partitions, and the sticky partition for records without a key."""

    __slots__ = ("count", "queues", "sticky", "sticky_batch")

    def __init__(self, queues: list[PartitionQueue], sticky: StickyPartition) -> None:
        self.queues = queues
        self.count = len(queues)
        self.sticky = sticky
        self.sticky_batch: ProducerBatch | None = None

    def next_sticky_queue(self) -> PartitionQueue:
        """Choose the partition for the next records without a key, after a full batch, and return its queue."""
        ended, self.sticky_batch = self.sticky_batch, None
        if ended is not None:
            self.sticky.batch_ended(ended.uncompressed_size or ended.size)
        self.sticky.check_leader()
        return self.queues[self.sticky.current]


class Producer(Lifecycle, Generic[K, V]):
    """Sends records to topics.

        async with Producer("127.0.0.1:9092", acks="all", compression_type="lz4") as producer:
            metadata = await producer.send_and_wait("topic", b"value", key=b"key")
            future = await producer.send("topic", b"value")
            await producer.flush()

    By default the producer is idempotent: retries never write a record twice. Idempotence is limited to the lifetime of
    one producer: a record that the application sends again, or that another process sends, is a new record (S29). With
    a `transactional_id`, records and the offsets of the input are written together or not at all:

        async with Producer("127.0.0.1:9092", transactional_id="billing-1") as producer:
            async with producer.transaction():
                await producer.send("invoices", b"value")
                await producer.send_offsets({TopicPartition("orders", 0): 42}, consumer.group_metadata())

    Keys and values are bytes, or objects that `key_serializer` and `value_serializer` turn into bytes
    (`oncelog.serialization`): a `Producer[str, Order]` sends keys of type str and values of type Order. Other keyword
    arguments are options of `config.ProducerConfig`. A producer must not be used from several threads or event loops.

    With `connections=admin.connections` the producer shares the connections of a started Admin, which saves the CPU of
    connecting if the producer is short-lived. All options that Producer and Admin have in common must be equal. Close
    the producer before the Admin.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        connections: ConnectionPool | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Raises ConfigError for an invalid option, for acks=0 with `connections`, and for an option that differs from
        the same option of the client whose `connections` are shared.
        """
        self._serializing: Serializing | None = None
        if key_serializer is not None or value_serializer is not None:
            self._serializing = Serializing(_checked(key_serializer), _checked(value_serializer))
        self.config = load(ProducerConfig, bootstrap_servers, options)
        self._lender = connections
        if connections is not None:
            connections.check_borrower(self.config)
            if not self.config.required_acks:
                raise ConfigError(
                    "acks=0 is impossible with connections of another client: close() would have to end them"
                )
        self._rng = random.Random()  # noqa: S311 - spreads records, no secret
        self._routes: dict[str, _Route] = {}
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        self._flush_waiters: list[tuple[int, asyncio.Future[None]]] = []
        transactional_id = self.config.transactional_id
        self._session: ProducerSession | None = None
        self._manager: TransactionManager | None = None
        if self.config.is_idempotent:
            self._session = ProducerSession(is_transactional=transactional_id is not None)
            if transactional_id is not None:
                self._manager = TransactionManager(transactional_id, self._session)
        self._accumulator = Accumulator(
            self.config, self._session, None if self._manager is None else self._manager.may_send
        )
        self._transactions: Transactions | None = None
        self._producer_ids: ProducerIds | None = None
        self._fatal: FatalError | None = None
        self._pool: ConnectionPool | None = None
        self._ignores_keys = self.config.partitioner_ignore_keys
        self._partitioner = self.config.partitioner
        self._interceptors: tuple[ProducerInterceptor, ...] = tuple(self.config.interceptors)
        self._is_closed = False
        self.spans = wanted_spans(self.config.tracing, self.config.client_id)

    async def start(self) -> None:
        """Connect to the cluster; with a transactional id, initialise it, which fences earlier producers with that id
        (S41).

        Raises KafkaError if no broker can be reached or the transactional id cannot be initialised.
        """
        if self._is_closed or self._pool is not None:
            raise ClientClosed("a producer can be started only once")
        lender = self._lender
        self._pool = ConnectionPool(self.config, self._rng) if lender is None else lender.lend(self.config, self._rng)
        self._metadata = Metadata(
            self._pool,
            self.config,
            allow_auto_topic_creation=True,
            max_idle_ms=self.config.metadata_max_idle_ms,
            rng=self._rng,
        )
        self._metadata.listeners.append(self._cluster_changed)
        self._sender = Sender(
            self._accumulator,
            self._metadata,
            self._pool,
            self.config,
            is_memory_short=lambda: bool(self._room_waiters),
            on_progress=self._progressed,
            session=self._session,
            manager=self._manager,
            on_identity_wanted=self._want_identity,
            on_failed=self._batch_failed,
        )
        self._loop = asyncio.get_running_loop()
        # this partial replaces `loop.create_future`, without a Python frame, because each record needs a future
        self._create_future: Callable[[], asyncio.Future[RecordMetadata]] = partial(asyncio.Future, loop=self._loop)
        try:
            if lender is None or not self._pool.open_connections:  # an open connection shows that a broker is reachable
                await self._metadata.refresh()
            if self._manager is not None:
                calls = CoordinatorCalls(self._pool, self.config, self._rng)
                self._transactions = Transactions(
                    self._manager,
                    calls,
                    self.config,
                    wake=self._sender.wake,
                    flush=self.flush,
                    drop_waiting=self._drop_waiting,
                    spans=self.spans,
                )
                await self._transactions.initialise()
            elif self._session is not None:
                self._producer_ids = ProducerIds(
                    self._pool,
                    self._metadata,
                    self.config,
                    self._rng,
                    on_identity=self._identify,
                    on_fatal=self._end_for_good,
                )
                self._producer_ids.want()
        except BaseException:
            await self.close(timeout_s=0)
            raise

    def transaction(self) -> Transaction:
        """Return a context manager whose block is a transaction: `async with producer.transaction(): ...` (S60)."""
        return Transaction(self._need_transactions())

    def begin_transaction(self) -> None:
        """Begin a transaction; no request is sent (S45). Raises InvalidTransactionState, FatalError."""
        self._need_transactions().begin()

    async def send_offsets(self, offsets: Mapping[TopicPartition, Offset], group: ConsumerGroupMetadata) -> None:
        """Commit a consumer's offsets with the transaction; the offset of each partition is the offset of the next
        record to read.

        `group` is the result of `consumer.group_metadata()`; with `group`, the coordinator fences a consumer whose
        generation is outdated (S37, S46). Raises AbortableError, FatalError, InvalidTransactionState, and ValueError
        for a negative offset or a missing group id.
        """
        if not group.group_id:
            raise ValueError("group: has no group id, so no offsets can be committed for it")
        told = {TopicPartition(*partition): offset_and_metadata(offset) for partition, offset in offsets.items()}
        await self._need_transactions().send_offsets(told, group)

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Send the queued records, and prepare the transaction: it stays open, even if this producer is closed.

        Store the result to end the transaction later. With two_phase_commit=True, the next producer with this
        transactional id ends the transaction with `complete_transaction`, at any later time. Without two-phase commit,
        any process ends the transaction with `admin.transactions.end`, before transaction.timeout.ms has passed since
        its first record. This producer can only complete, commit or abort the prepared transaction. Returns None if no
        record was sent; the transaction is then over.

        Raises AbortableError if the transaction has failed and can only be aborted; FatalError;
        InvalidTransactionState. After RequestTimedOut (max.block.ms), another call continues to wait.
        """
        return await self._need_transactions().prepare()

    async def complete_transaction(self, stored: PreparedTransaction | None) -> bool | None:
        """Commit the prepared transaction if it equals `stored`, otherwise abort it (KIP-939, S121).

        Call this after each `start`, with the last stored result of `prepare_transaction`, or None. Returns whether the
        transaction was committed; None if no transaction is open any more. Raises ValueError for a
        transaction of another transactional id; InvalidTransactionState in a transaction that is not prepared;
        FatalError (ProducerFenced means that another producer has taken the transaction over and ends it). After
        EndNotKnown (max.block.ms), another call continues to wait.
        """
        return await self._need_transactions().complete(stored)

    async def commit_transaction(self) -> None:
        """Send the queued records, and commit the entire transaction (S38).

        Raises AbortableError if the transaction has failed and can only be aborted; FatalError;
        InvalidTransactionState. After EndNotKnown (max.block.ms), another call continues to wait.
        """
        await self._need_transactions().commit()

    async def abort_transaction(self) -> None:
        """Drop unsent records, and abort the transaction.

        Raises FatalError and InvalidTransactionState. After EndNotKnown (max.block.ms), another call continues to wait.
        """
        await self._need_transactions().abort()

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeaderSequence = NO_HEADERS,
    ) -> asyncio.Future[RecordMetadata]:
        """Send a record; the returned future gets the record's RecordMetadata when the record is acknowledged, or a
        KafkaError when the record fails.

        The call waits only for the topic's metadata and for room in buffer.memory. Records that one task sends to one
        partition keep their order. If the application never reads the future, its error is only logged, as a warning.

        Raises MessageTooLarge, BufferExhausted, RequestTimedOut (no metadata within max.block.ms), AuthorizationFailed,
        ClientClosed and InvalidTopic. With a transactional id, raises InvalidTransactionState and AbortableError; with
        serializers, SerializationError and SchemaRegistryError. Raises TypeError for a key or value that is not bytes,
        and ValueError for a timestamp that is negative or above MAX_TIMESTAMP or a partition of `partitioner` that does
        not exist.

        A `send` that raises, or is cancelled, has queued nothing, so the call may be repeated. Inside a transaction,
        only `abort_transaction` is possible after a KafkaError or a cancellation, because the record is missing from
        the transaction; a TypeError or ValueError leaves the transaction unchanged.
        """
        if self.spans is not None and not isinstance(headers, TracedHeaders):
            place = {"partition": partition, "timestamp_ms": timestamp_ms}
            return await self.spans.send(self.send, topic, value, key, headers, **place)
        data: Any = value
        key_data: Any = key
        if self._serializing is not None:
            with self._record_waits():
                key_data, data = await self._serializing.record(topic, key, value, headers)
        route = self._routes.get(topic)
        if route is None or (partition is not None and not 0 <= partition < route.count):
            with self._record_waits():
                route = await self._route(topic, partition)
        if timestamp_ms is None:
            timestamp_ms = now_ms()
        elif not 0 <= timestamp_ms <= MAX_TIMESTAMP:
            raise ValueError(f"timestamp_ms={timestamp_ms}: must be from 0 to {MAX_TIMESTAMP}")
        is_sticky = False
        if partition is None:
            if self._partitioner is None:
                is_sticky = key_data is None or self._ignores_keys
                partition = route.sticky.current if is_sticky else partition_for_key(key_data, route.count)
            else:
                partition = chosen_partition(self._partitioner, key_data, route.count, route.sticky.available)
        queue = route.queues[partition]
        if self._manager is not None:
            self._manager.check_in_transaction()
        future: asyncio.Future[RecordMetadata] = self._create_future()
        batch = queue.tail
        try:
            if batch is not None and batch.builder.append(timestamp_ms, key_data, data, headers) is not None:
                batch.timestamps.append(timestamp_ms)
                batch.waiters.append(future)
            else:
                sticky = route if is_sticky else None
                await self._begin_batch(sticky, queue, timestamp_ms, key_data, data, headers, future)
        except (TypeError, ValueError) as error:
            raise TypeError(
                "key and value must be bytes or None, headers a sequence of (name, value) pairs, where the name is"
                f" str and the value bytes or None: {error}"
            ) from error
        if self._interceptors:
            self._intercept(topic, partition, key_data, data, future)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeaderSequence = NO_HEADERS,
    ) -> RecordMetadata:
        """Send a record, wait for the acknowledgement, and return its RecordMetadata. Raises the errors of `send`, and
        the errors that the future of `send` gets.
        """
        return await (
            await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        )

    async def send_columns(
        self,
        topic: str,
        partition: int,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        *,
        timestamps_ms: Sequence[int] | None = None,
        headers: Sequence[HeaderSequence] | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Send a record for each of `values` to one partition, in order; each other column must be None or as long as
        `values`.

        All records share one future: it gets the metadata of the first record when all are acknowledged, or the first
        error. One call is cheaper than calling `send` for each record. Raises the errors of `send`, and ValueError if
        there are no values or a column has another length. The records before a refused record have then been queued;
        inside a transaction, abort the transaction.
        """
        if self.spans is not None and not isinstance(headers, TracedColumn):
            told = topic, partition, values, headers
            return await self.spans.send_columns(self.send_columns, *told, keys=keys, timestamps_ms=timestamps_ms)
        columns = Columns(values, keys, timestamps_ms, headers)
        columns.check()
        return await self._send_many(topic, partition, len(values), partial(hand_over, columns))

    async def send_packed(self, topic: str, partition: int, rows: PackableRows) -> asyncio.Future[RecordMetadata]:
        """Send records that encode themselves (for example an Arrow table) to one partition, in order; the returned
        future is done when all records are acknowledged. See `oncelog.producer.packable_rows.PackableRows` for the
        requirements on `rows`.

        With `tracing`, an object is nevertheless created for each record, to add headers.
        """
        if self.spans is not None:
            values, keys, timestamps_ms, headers = all_columns(rows)
            return await self.send_columns(topic, partition, values, keys, timestamps_ms=timestamps_ms, headers=headers)
        hand_over = partial(hand_over_packed, rows, self._add_whole, self._accumulator.batch_size)
        return await self._send_many(topic, partition, len(rows), hand_over)

    async def _send_many(
        self, topic: str, partition: int, count: int, hand_over: HandOver
    ) -> asyncio.Future[RecordMetadata]:
        route = self._routes.get(topic)
        if route is None or not 0 <= partition < route.count:
            with self._record_waits():
                route = await self._route(topic, partition)
        if self._manager is not None:
            self._manager.check_in_transaction()
        waiter = ColumnWaiter(self._create_future(), count)
        try:
            await hand_over(now_ms(), route.queues[partition], waiter, self._begin_batch_of_column)
        except BaseException:
            waiter.future.cancel()  # the future was not returned, so no caller will await its error
            raise
        return waiter.future

    async def _begin_batch_of_column(self, queue: PartitionQueue, row: Row, waiter: ColumnWaiter) -> None:
        await self._begin_batch(None, queue, *row, waiter)

    async def flush(self) -> None:
        """Send all queued records without lingering, and wait until every record sent before is acknowledged or has
        failed.
        """
        number = self._accumulator.last_number
        if self._accumulator.is_complete(number):
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        entry = (number, waiter)
        self._flush_waiters.append(entry)
        self._accumulator.is_flushing = True
        self._sender.wake()
        try:
            await waiter
        finally:
            if entry in self._flush_waiters:
                self._flush_waiters.remove(entry)
            self._accumulator.is_flushing = bool(self._flush_waiters)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush for at most `timeout_s` (None means as long as delivery.timeout.ms allows), then close the producer. An
        open transaction is aborted, unless it was prepared. With acks=0, brokers get the same time, but at most
        request.timeout.ms, to read the data.

        After that time, unacknowledged records fail with ClientClosed. A second call does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._routes.clear()
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                if self._transactions is None:
                    await self.flush()
                    async with asyncio.timeout(self.config.request_timeout_ms / 1000):
                        await self._pool.finish()
                else:
                    await self._transactions.close()
        except TimeoutError:
            pass
        finally:
            await self._shut_down(self._pool)

    def metrics(self) -> dict[str, float]:
        """Return the counters and the buffer sizes of this producer, by the metric names of Kafka's client. The values
        are zero before `start`.

        record-send-total counts acknowledged records, record-error-total failed records, and record-retry-total records
        that were sent again. There are also outgoing-byte-total, batch-split-total and request-total.
        buffer-total-bytes, buffer-available-bytes and connection-count are current values.
        """
        counts = ProducerCounts() if self._pool is None else self._sender.counts
        return counts.metrics() | {
            "buffer-total-bytes": self.config.buffer_memory,
            "buffer-available-bytes": self._accumulator.free_memory,
            "connection-count": 0 if self._pool is None else self._pool.open_connections,
        }

    def _intercept(
        self, topic: str, partition: int, key: Any, value: Any, future: asyncio.Future[RecordMetadata]
    ) -> None:
        """Call `on_send` now, and `on_acknowledgement` when the record has a result."""
        call_all(self._interceptors, lambda each: each.on_send(topic, partition, key, value))

        def settled(done: asyncio.Future[RecordMetadata]) -> None:
            error = asyncio.CancelledError() if done.cancelled() else done.exception()
            metadata = None if error is not None else done.result()
            call_all(self._interceptors, lambda each: each.on_acknowledgement(metadata, error))

        future.add_done_callback(settled)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises KafkaError."""
        await self._route(topic, None)
        return sorted(self._metadata.cluster.topics[topic].partitions)

    async def _shut_down(self, pool: ConnectionPool) -> None:
        for batch in self._accumulator.drop_all():
            batch.fail(ClientClosed("the producer was closed before the record was acknowledged"))
        self._progressed()
        if self._producer_ids is not None:
            await self._producer_ids.close()
        await self._sender.close()
        await self._metadata.close()
        await pool.close()

    async def _route(self, topic: str, partition: int | None) -> _Route:
        self._check_usable()
        timeout_s = self.config.max_block_ms / 1000
        known = await self._metadata.topic(topic, timeout_s)
        if partition is not None and partition not in known.partitions:
            await self._metadata.refresh_again()  # the refreshed topic may have more partitions
            known = await self._metadata.topic(topic, timeout_s)
            if partition not in known.partitions:
                raise StaleMetadata(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{topic!r} has the partitions 0 to {len(known.partitions) - 1}, not {partition}",
                )
        self._check_usable()
        return self._updated_route(known)

    def _updated_route(self, topic: Topic) -> _Route:
        """Return the queues and the sticky partition of a topic, updated for changed partitions or leaders."""
        count = len(topic.partitions)  # the partitions are numbered from 0 on (`cluster.error_of`)
        leaders = self._metadata.cluster.leader
        available = [index for index in sorted(topic.partitions) if leaders(topic.name, index) >= 0]
        choices: Sequence[int] = available or sorted(topic.partitions)
        route = self._routes.get(topic.name)
        if route is None or route.count != count:
            queues = [self._accumulator.queue(topic.name, index) for index in range(count)]
            load = partial(self._load, queues)
            sticky = StickyPartition(self.config.batch_size, choices, self._rng, load)
            route = self._routes[topic.name] = _Route(queues, sticky)
            self._accumulator.set_leaders(self._metadata.cluster)
        else:
            route.sticky.update(choices)
        return route

    def _load(self, queues: Sequence[PartitionQueue], index: int) -> int | None:
        """Return the number of unacknowledged batches of a partition; None if its leader does not respond."""
        queue = queues[index]
        assert self._pool is not None
        return None if self._pool.is_stuck(queue.leader) else len(queue.batches) + queue.in_flight

    def _cluster_changed(self) -> None:
        cluster = self._metadata.cluster
        self._accumulator.set_leaders(cluster)
        for name in list(self._routes):
            topic = cluster.topics.get(name)
            if topic is not None and topic.partitions:
                self._updated_route(topic)
            else:
                # The topic was deleted or is idle. The next record requests the topic's metadata again, and queued
                # batches wait until they expire.
                del self._routes[name]
        self._sender.wake()

    async def _begin_batch(
        self,
        sticky_route: _Route | None,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeaderSequence,
        future: Waiter,
    ) -> None:
        """Start a batch with a record that does not fit into the tail; wait for memory if needed."""
        if queue.tail is not None:
            # The tail is full, so it must not accept more records. Let the event loop run, because a caller that never
            # waits would otherwise keep the loop from sending the batch. The record is queued after this iteration of
            # the event loop, so a cancellation here leaves nothing queued.
            queue.tail = None
            self._sender.wake()
            with self._record_waits():
                await asyncio.sleep(0)
            if sticky_route is not None:
                queue = sticky_route.queues[sticky_route.sticky.current]
        if sticky_route is not None and queue.tail is None:
            queue = sticky_route.next_sticky_queue()
        self._metadata.use(queue.topic)
        if self._transactions is not None:
            self._transactions.sending_to(queue.topic_partition)

        has_fitted = False

        def add() -> bool:
            nonlocal has_fitted
            tail = queue.tail
            has_fitted = tail is not None and tail.append(timestamp_ms, key, value, headers, future)
            return has_fitted or self._accumulator.open(
                queue, self._loop.time(), timestamp_ms, key, value, headers, future
            )

        await self._added(add)
        if has_fitted:
            return
        if sticky_route is not None:
            sticky_route.sticky_batch = queue.tail
        if self.config.linger_ms == 0:
            self._sender.wake()
        else:
            self._sender.wake_at(self._loop.time() + self.config.linger_ms / 1000)

    async def _add_whole(self, queue: PartitionQueue, packed: Packed, waiter: ColumnWaiter) -> None:
        """Add a whole batch behind the tail of the queue; wait for memory if needed."""
        # Let the event loop send earlier batches, as in `_begin_batch`.
        with self._record_waits():
            await asyncio.sleep(0)
        self._metadata.use(queue.topic)
        if self._transactions is not None:
            self._transactions.sending_to(queue.topic_partition)
        await self._added(lambda: self._accumulator.add_whole(queue, self._loop.time(), packed, waiter))
        self._sender.wake()

    async def _added(self, add: Callable[[], bool]) -> None:
        """Wait until `add` has memory for its batch and returns True. Raises MessageTooLarge, BufferExhausted, and the
        errors of `_check_usable`.
        """
        deadline: float | None = None
        is_first_try = True
        while True:
            # Records that already wait for room come before new records, so that the records of one task stay in order
            # and no task starves.
            if not (is_first_try and self._room_waiters):
                try:
                    if add():
                        return
                except MessageTooLarge as error:
                    if self._transactions is not None:
                        # this record is missing from the transaction, so the transaction must be aborted
                        self._transactions.failed(error)
                    raise
            if deadline is None:
                deadline = self._loop.time() + self.config.max_block_ms / 1000
            try:
                with self._record_waits():
                    await self._wait_for_room(deadline, is_newcomer=is_first_try)
            except BaseException:
                self._progressed()  # let the next waiter use the room
                raise
            is_first_try = False

    async def _wait_for_room(self, deadline: float, *, is_newcomer: bool) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        if is_newcomer:
            self._room_waiters.append(waiter)
        else:
            self._room_waiters.appendleft(waiter)
        self._sender.wake()
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            raise BufferExhausted(
                f"no room within max.block.ms={self.config.max_block_ms}:"
                f" {self._accumulator.free_memory} of buffer.memory={self.config.buffer_memory} bytes are free"
            ) from None
        finally:
            if waiter in self._room_waiters:
                self._room_waiters.remove(waiter)
        self._check_usable()

    def _record_waits(self) -> AbstractContextManager[None]:
        """Return a context manager for a record's wait for metadata or room. Raises the errors of `_check_usable`."""
        self._check_usable()
        return nullcontext() if self._transactions is None else self._transactions.record_waits()

    def _check_usable(self) -> None:
        """Raise ClientClosed if the producer is closed, and the fatal error if one has occurred."""
        if self._is_closed or self._pool is None:
            raise ClientClosed("the producer is closed" if self._is_closed else "the producer is not started")
        if self._fatal is not None:
            raise self._fatal.with_traceback(None)

    def _need_transactions(self) -> Transactions:
        if self._manager is None:
            raise InvalidTransactionState("transactions need a transactional_id")
        self._check_usable()
        assert self._transactions is not None
        return self._transactions

    def _want_identity(self) -> None:
        if self._producer_ids is not None and self._fatal is None:
            self._producer_ids.want()

    def _identify(self, identity: ProducerIdAndEpoch) -> None:
        assert self._session is not None
        self._session.identify(identity)
        self._sender.wake()

    def _end_for_good(self, error: FatalError) -> None:
        """Fail all records, because the producer cannot send any more."""
        self._fatal = error
        self._routes.clear()  # set before failing the records, so that the next `send` raises the error
        for batch in self._accumulator.drop_all():
            batch.fail(error)
        self._progressed()

    def _batch_failed(self, error: KafkaError) -> None:
        if self._transactions is not None:
            self._transactions.failed(error)

    def _drop_waiting(self, error: KafkaError) -> None:
        for batch in self._accumulator.drop_waiting():
            batch.fail(error)
        self._progressed()

    def _progressed(self) -> None:
        """Wake the waiting calls after batches have ended: memory may be free, and flushes may be complete."""
        accumulator = self._accumulator
        batches = accumulator.free_memory // max(1, min(self.config.batch_size, self.config.buffer_memory))
        while self._room_waiters and (batches > 0 or self._is_closed):
            waiter = self._room_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                batches -= 1
        for number, flushed in self._flush_waiters:
            if accumulator.is_complete(number) and not flushed.done():
                flushed.set_result(None)


def _checked(serializer: Any) -> Any:
    if serializer is not None and not isinstance(serializer, Serializer):
        raise ConfigError(f"a serializer must be a Serializer of oncelog.serialization, not {serializer!r:.100}")
    return serializer
