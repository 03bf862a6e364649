"""The public consumer. The consumer reads topics together with a group, or partitions assigned by hand; records are
returned by polls or by iteration.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack, cast

from oncelog.cluster import TopicPartition
from oncelog.config import ConsumerConfig, load
from oncelog.connection.pool import ConnectionPool
from oncelog.consumer.deserializing import Deserializing
from oncelog.consumer.fetched import FetchedPartition
from oncelog.consumer.fetcher import Fetcher
from oncelog.consumer.group.interest import Interest, RebalanceListener, check_listener
from oncelog.consumer.group.members import GroupMember, check_group_options, member_of_group
from oncelog.consumer.offset_reset import OffsetReset
from oncelog.consumer.positions import PartitionPosition, Positions
from oncelog.consumer.records import BatchHeader, ColumnBatch, ConsumerRecord, UndecodedBatch
from oncelog.consumer.view import ConsumerView
from oncelog.errors import ClientClosed, CorruptRecords, ErrorCode, KafkaError, RequestTimedOut
from oncelog.group_offsets import ConsumerGroupMetadata, Offset, OffsetAndMetadata, check_offset, offset_and_metadata
from oncelog.interceptors import ConsumerInterceptor, call_all
from oncelog.metadata.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    OffsetAndTimestamp,
    list_offsets,
    list_offsets_of,
)
from oncelog.metadata.metadata import Metadata
from oncelog.names import check_partition
from oncelog.serialization.serializer import Deserializer
from oncelog.tracing.wanted import wanted_spans
from oncelog.typed_options import ConsumerOptions
from oncelog_protocol.messages.fetch import IsolationLevel

__all__ = [
    "ColumnBatch",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceListener",
    "TopicPartition",
]

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:  # typing.TypeVar of the standard library supports defaults only since Python 3.13
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

T = TypeVar("T")

CLOSE_TIMEOUT_MS: Final = 30_000
ITERATION_WAIT_MS: Final = 60_000
"""`async for` waits for records in steps of this many milliseconds."""


class Consumer(ConsumerView, Generic[K, V]):
    """Reads records: of the partitions of subscribed topics that the group assigns to this consumer, or of partitions
    assigned by hand.

        async with Consumer("127.0.0.1:9092", group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                ...

    Keys and values are bytes, or the objects that `key_deserializer` and `value_deserializer` return
    (`oncelog.serialization`): a `Consumer[str, Order]` returns `ConsumerRecord[str, Order]`. Other keyword arguments
    are options of `config.ConsumerConfig`. Only one task may poll or iterate at the same time. As in the Java client, a
    poll (or the next record of `async for`) declares the previous records processed. Rebalances, calls of listeners and
    automatic commits happen only at that moment.

    If an exception leaves the `async with` block, the last records count as not processed. In that case, the consumer
    returns to the position of the last poll (`async for`: of the last record), or to a later manual commit, before it
    closes. The group's next consumer then reads those records again (S89). `close`, and leaving the block without an
    exception, declare all records processed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Raises ConfigError for an invalid option."""
        self._deserializing = Deserializing.wanted(key_deserializer, value_deserializer)
        self.config = load(ConsumerConfig, bootstrap_servers, options)
        if self.config.group_id is not None:
            check_group_options(self.config, options)
        self._positions = Positions()
        self._iterated: tuple[PartitionPosition, FetchedPartition] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._in_work: tuple[PartitionPosition, FetchedPartition] | None = None
        """The buffered Fetch data from which `async for` returned its last record; None while no record is being
        processed.
        """
        self._isolation_level = IsolationLevel[self.config.isolation_level.upper()]
        self._is_polling = False
        self._consumed = 0
        """The number of records that polls and iteration have returned so far."""
        self._interceptors: tuple[ConsumerInterceptor, ...] = tuple(self.config.interceptors)
        self._group: GroupMember | None = None
        self._pool: ConnectionPool | None = None
        self._is_closed = False
        self._is_leaving = False
        """Whether `close` is calling the rebalance listener; the listener may still commit although the consumer is
        closing.
        """
        self._spans = wanted_spans(self.config.tracing, self.config.client_id, self.config.group_id)

    # life

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaError if no broker can be reached."""
        if self._is_closed or self._pool is not None:
            raise ClientClosed("a consumer can be started only once")
        self._pool = ConnectionPool(self.config)
        self._metadata = Metadata(
            self._pool, self.config, allow_auto_topic_creation=self.config.allow_auto_create_topics
        )
        self._metadata.listeners.append(self._wake)
        self._fetcher = Fetcher(self._positions, self._metadata, self._pool, self.config, wake=self._wake)
        self._metadata.in_use.append(lambda: self._positions.topics)
        if self.config.group_id is not None:
            self._group = member_of_group(
                self.config, self._positions, self._metadata, attend=self._attend, progress=self._progress
            )
            self._metadata.listeners.append(self._group.metadata_changed)
            if self._interceptors:
                self._group.commits.on_committed = self._intercept_commit
        self._starts = OffsetReset(
            self._positions,
            self._metadata,
            self.config,
            list_offsets=partial(
                list_offsets_of, isolation_level=self._isolation_level, pool=self._pool, metadata=self._metadata
            ),
            committed=None if self._group is None else self._committed,
            wake=self._wake,
        )
        try:
            await self._metadata.refresh()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._positions.go_back(self._in_work)
        await self.close()

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commit if automatic commits are enabled, leave the group, stop fetching, and close the connections.

        Requests to the group's coordinator may take up to `timeout_ms`; the time of callbacks is not limited. If the
        call is cancelled, the remaining steps are done without waiting.
        Static members do not leave the group. A second call does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._attend()
        if self._pool is None:
            return
        try:
            if self._group is not None:
                self._is_leaving = True
                await self._group.close(timeout_ms / 1000)
        finally:
            self._is_leaving = False
            await self._close_connections()

    async def _close_connections(self) -> None:
        assert self._pool is not None
        await self._starts.close()
        await self._fetcher.close()
        await self._metadata.close()
        await self._pool.close()

    # The next methods choose what the consumer reads, and from where.

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics, or to all topics whose full name matches `pattern`; the next poll joins the group,
        whose members share the partitions of these topics.

        Replaces an earlier subscription. Raises ValueError if there is no group_id, if `topics` and `pattern` are both
        given or both missing, or if partitions were assigned by hand. Raises TypeError for a listener with missing or
        unknown methods, and ClientClosed.
        """
        self._check_open()
        if listener is not None:
            check_listener(listener)
        group = self._need_group()
        if self._positions.assignment and not group.is_subscribed:
            raise ValueError("partitions are assigned by hand: assign([]) first")
        group.subscribe(Interest.of(topics, pattern, self.config.exclude_internal_topics), listener)

    async def unsubscribe(self) -> None:
        """Leave the group, or drop the partitions assigned by hand. Commits first if automatic commits are enabled.

        If the call is cancelled or a callback fails, the remaining steps are done without waiting.
        """
        self._check_open()
        try:
            if self._group is not None and self._group.is_subscribed:
                await self._group.unsubscribe()
        finally:
            self._positions.assign(())  # the group may have given the partitions to other members
            self._iterated = None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Partitions that were already assigned keep their position.

        With a group_id, new partitions start at the group's committed offsets. Raises ValueError while subscribed and
        for an invalid partition number, and InvalidTopic.
        """
        if self._group is not None and self._group.is_subscribed:
            raise ValueError("the group assigns the partitions: unsubscribe first")
        self._positions.assign([check_partition(TopicPartition(*partition)) for partition in partitions])
        if self._group is not None:
            self._group.assigned_by_hand()
        self._iterated = None
        if self._pool is not None and any(
            self._metadata.cluster.partition(*partition) is None for partition in self.assignment()
        ):
            self._metadata.request_refresh()
        self._wake()

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        """Continue from `offset`; an offset with a `leader_epoch` is first checked against the leader's log.

        Raises ValueError for an offset that is negative or above MAX_OFFSET, or a partition that is not assigned.
        """
        wanted = offset_and_metadata(offset)
        self._to_move(partition).seek(wanted.offset, wanted.leader_epoch)
        self._moved()

    def seek_to_committed(self, partition: TopicPartition, came_from: int) -> None:
        """Continue from the group's committed offset, or from `came_from` if the group has not committed an offset.

        The next poll requests the committed offset, after all transactions with offsets of the partition have ended, so
        nothing can fail in this call. Raises ValueError as `seek` does.
        """
        check_offset(came_from)
        self._to_move(partition).go_back(came_from)
        self._moved()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue from the first available offset of these partitions; without arguments, of all assigned
        partitions."""
        self._reset(partitions, EARLIEST_TIMESTAMP)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue from the end of these partitions (with read_committed, from the last stable offset); without
        arguments, in all
        assigned partitions.
        """
        self._reset(partitions, LATEST_TIMESTAMP)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be returned; an unknown position is requested from the brokers.

        Raises KafkaError, RequestTimedOut if the position is not found within default.api.timeout.ms, and ValueError
        for a partition that is not assigned.
        """
        state = self._positions.get(partition)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.default_api_timeout_ms / 1000
        while True:
            self._check_open()
            position = state.position
            if position is not None:
                return position
            self._starts.look_up()
            looking_up = self._starts.task_for(state)
            if looking_up is not None:
                await asyncio.wait([looking_up], timeout=max(0.0, deadline - loop.time()))
            else:
                await asyncio.sleep(self.config.retry_backoff_ms / 1000)
            if state.error is not None:
                error, state.error = state.error, None
                raise error
            if state.position is None and loop.time() >= deadline:
                raise RequestTimedOut(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{partition} has no position after default.api.timeout.ms={self.config.default_api_timeout_ms}:"
                    " does the partition exist, and is its leader up?",
                )

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`. Buffered records are kept."""
        for partition in partitions:
            self._positions.get(partition).is_paused = True
        self._iterated = None

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        for partition in partitions:
            self._positions.get(partition).is_paused = False
        self._wake()

    # The next methods store and return offsets of the group.

    async def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None) -> None:
        """Commit these offsets, each the offset of the next record to read, as an int or OffsetAndMetadata; by default,
        commit the position after all returned records.

        Commits run one after another, and an automatic commit yields to a manual commit, so the commit that was
        requested last determines the stored offsets. After a cancellation it is unknown whether the commit took effect.

        Raises CommitFailed if the group has rebalanced since the last poll; poll again, and continue with the new
        assignment. Raises
        RequestTimedOut after default_api_timeout_ms, PartialFailure, AuthorizationFailed, FencedInstance, and
        ValueError for an offset that is negative or above MAX_OFFSET.
        """
        if not self._is_leaving:
            self._check_open()
        group = self._need_group()
        wanted: dict[TopicPartition, OffsetAndMetadata] | None = None
        if offsets is not None:
            wanted = {TopicPartition(*partition): offset_and_metadata(offset) for partition, offset in offsets.items()}
        await group.commit(wanted, self.config.default_api_timeout_ms / 1000)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition; None for a partition without a committed offset.
        Raises KafkaError.
        """
        self._check_open()
        wanted = [TopicPartition(*partition) for partition in partitions]
        found = await self._committed(wanted)
        return {partition: found.get(partition) for partition in wanted}

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of each partition that has a position. A position lies after all returned records, and
        after the markers and aborted records that follow these records. `commit` stores these positions; pass them to
        `Producer.send_offsets`.
        """
        return self._positions.consumed()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's identity in its group; its last identity if it has lost or left its partitions.

        Raises ValueError without a group_id.
        """
        return self._need_group().group_metadata

    # reading

    async def poll_one(self, timeout_ms: int = 0) -> ConsumerRecord[K, V] | None:
        """Return the next record as soon as a record is available; None after `timeout_ms`. This call has the effects
        of `poll`, but returns a single record.
        """
        for records in (await self.poll(timeout_ms, 1)).values():
            return records[0]
        return None

    async def poll(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records as soon as some are available, at most `max_records` (default max_poll_records); return an
        empty dict after `timeout_ms`.

        The records of each partition are in offset order. This call handles rebalances and calls listeners, and may
        therefore take longer than `timeout_ms`. Joining a group continues in the background between polls. Raises
        OffsetOutOfRange
        (LogTruncationError is a subclass), AuthorizationFailed, CorruptRecords and other errors that need an action;
        the position is kept, and the next polls retry after a backoff. With deserializers, also raises
        RecordDeserializationError and SchemaRegistryError; the position then stays before the failed record. Raises
        ClientClosed, and ValueError without a subscription or assignment.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records={max_records}: must be at least 1")
        started_ns = 0 if self._spans is None else time.time_ns()
        polled = await self._poll(timeout_ms, lambda: self._positions.take(limit, damaged=self._fetcher.damaged))
        if self._spans is not None and polled:
            records = [record for several in polled.values() for record in several]
            self._spans.polled(started_ns, records)
        returned: dict[TopicPartition, list[Any]] = polled
        if self._deserializing is not None and polled:
            with self._still_polling():
                returned = await self._deserializing.polled(polled, self._positions)
        for several in returned.values():
            self._consumed += len(several)
        if self._interceptors and returned:
            self._intercept_records([record for several in returned.values() for record in several])
        return returned

    def processing(
        self, records: ConsumerRecord[Any, Any] | Sequence[ConsumerRecord[Any, Any]]
    ) -> AbstractContextManager[object]:
        """Wrap the processing of one or several records: `with consumer.processing(record): ...`.

        Creates a span for the block, and records sent in the block continue the record's trace (`Tracing.processing`).
        Without `tracing`, the context manager does nothing.
        """
        if self._spans is None:
            return nullcontext()
        return self._spans.tracing.processing(records, self.config.client_id, self.config.group_id)

    async def poll_columns(self, timeout_ms: int = 0) -> dict[TopicPartition, list[ColumnBatch]]:
        """Poll like `poll`, but return columns, batch by batch: all buffered data of one partition (limited by
        fetch.max.bytes).

        This call is for programs that build tables: it creates no object per record and deserializes nothing. Raises
        the errors
        of `poll`.
        """
        polled = await self._poll(timeout_ms, self._taking(FetchedPartition.take_columns))
        self._consumed += sum(len(batch.offsets) for batches in polled.values() for batch in batches)
        return polled

    async def poll_undecoded(self, timeout_ms: int = 0) -> dict[TopicPartition, list[UndecodedBatch]]:
        """Poll like `poll_columns`, but leave the records as decompressed bytes, for a caller that decodes many batches
        at once.

        Control batches and aborted records are skipped, and CRCs are checked. Do not mix this call with `poll`, which
        may have decoded more records than it returned. Raises the errors of `poll`.
        """
        return await self._poll(timeout_ms, self._taking(FetchedPartition.take_undecoded))

    async def poll_headers(self, timeout_ms: int = 0) -> dict[TopicPartition, list[BatchHeader]]:
        """Poll like `poll_columns`, but return only the header of each batch: its producer and its sequence numbers.

        This call is for programs that check a log: control batches and aborted batches are included, and no record is
        decoded. Do not mix this call with `poll`, which would miss the records of these batches. Raises the errors of
        `poll`.
        """
        return await self._poll(timeout_ms, self._taking(FetchedPartition.take_headers))

    def _taking(self, take: Callable[[FetchedPartition], list[T]]) -> Callable[[], dict[TopicPartition, list[T]]]:
        return lambda: self._positions.take_all(take, damaged=self._fetcher.damaged)

    async def _poll(self, timeout_ms: int, take: Callable[[], dict[TopicPartition, T]]) -> dict[TopicPartition, T]:
        self._iterated = None
        self._check_wanted()
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        with self._polling():
            # Let the event loop run one iteration, because a caller that never waits would otherwise prevent the loop
            # from reading responses.
            await asyncio.sleep(0)
            while True:
                self._check_open()
                if self._group is not None:
                    await self._group.advance()
                self._starts.look_up()
                taken = take()
                if taken:
                    self._fetcher.send_fetches()
                    return taken
                if not await self._wait_for_data(deadline):
                    return {}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """Return the next record of any partition. Raises the errors of `poll`; the iteration ends when the consumer is
        closed.
        """
        while True:
            if self._iterated is not None:
                position, fetched = self._iterated
                try:
                    record = fetched.take_one()
                except CorruptRecords:
                    self._iterated = self._in_work = None
                    self._fetcher.damaged(position)
                    raise
                if record is not None:
                    if self._deserializing is None and not self._interceptors:
                        self._consumed += 1
                        return cast("ConsumerRecord[K, V]", record)  # without deserializers K and V are bytes
                    return cast("ConsumerRecord[K, V]", await self._handled(record, (position, fetched)))
                self._iterated = None
                if position.fetched and position.fetched[0] is fetched:
                    position.drop_head()
            if not await self._next_iterated():
                raise StopAsyncIteration

    async def _handled(self, raw: ConsumerRecord, source: tuple[PartitionPosition, FetchedPartition]) -> Any:
        """Deserialize a record of `async for`, and pass it to the interceptors."""
        record: Any = raw
        if self._deserializing is not None:
            try:
                with self._still_polling():
                    record = await self._deserializing.iterated(raw, source, self._positions)
            except BaseException:
                self._iterated = self._in_work = None
                raise
        self._consumed += 1
        if self._interceptors:
            self._intercept_records([record])
        return record

    async def _next_iterated(self) -> bool:
        """Find buffered data to iterate over; return False when the consumer is closed."""
        if not self._is_closed:
            self._check_wanted()
        with self._polling():
            await asyncio.sleep(0)
            while not self._is_closed:
                if self._group is not None:
                    await self._group.advance()
                self._starts.look_up()
                position = self._positions.next_in_turn()
                if position is not None:
                    self._iterated = self._in_work = (position, position.fetched[0])
                    self._fetcher.send_fetches()
                    return True
                self._check_open()
                deadline = asyncio.get_running_loop().time() + ITERATION_WAIT_MS / 1000
                try:
                    await self._wait_for_data(deadline)
                except ClientClosed:
                    break
        return False

    # The next methods query the logs of partitions.

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first available offset of each partition. Raises KafkaError."""
        found = await self._lookup(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        return {partition: answer.offset for partition, answer in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition. Raises KafkaError."""
        found = await self._lookup(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        return {partition: answer.offset for partition, answer in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after its timestamp; None for a partition without such a
        record.

        Raises KafkaError, and ValueError for a timestamp that is negative or above MAX_TIMESTAMP.
        """
        for partition, timestamp_ms in timestamps_ms.items():
            if not 0 <= timestamp_ms <= MAX_TIMESTAMP:
                raise ValueError(f"{partition}: timestamp {timestamp_ms} must be from 0 to {MAX_TIMESTAMP}")
        found = await self._lookup(timestamps_ms)
        return {partition: answer if answer.offset >= 0 else None for partition, answer in found.items()}

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises KafkaError."""
        self._check_open()
        known = await self._metadata.topic(topic, self.config.default_api_timeout_ms / 1000)
        return sorted(known.partitions)

    # inside

    def _polling(self) -> _Polling:
        return _Polling(self)

    @contextmanager
    def _still_polling(self) -> Iterator[None]:
        """Context manager whose block counts as a poll in progress: another poll is refused, and the time does not
        count toward max.poll.interval.ms.
        """
        self._is_polling = True
        try:
            yield
        finally:
            self._is_polling = False

    def _intercept_records(self, records: Sequence[ConsumerRecord[Any, Any]]) -> None:
        call_all(self._interceptors, lambda each: each.on_records(records))

    def _intercept_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        call_all(self._interceptors, lambda each: each.on_commit(offsets))

    def _check_open(self) -> None:
        if self._is_closed or self._pool is None:
            raise ClientClosed("the consumer is closed" if self._is_closed else "the consumer is not started")

    def _check_wanted(self) -> None:
        """Raise ClientClosed if the consumer is closed or not started, and ValueError if nothing is subscribed or
        assigned.
        """
        self._check_open()
        is_subscribed = self._group is not None and self._group.is_subscribed
        if not is_subscribed and not len(self._positions):
            raise ValueError(
                "nothing is subscribed to or assigned: subscribe([...]) or assign([...]) before the first poll"
            )

    def _need_group(self) -> GroupMember:
        if self._group is None:
            raise ValueError("this call needs a group_id and a started consumer")
        return self._group

    def _attend(self) -> None:
        """Make `async for` call a poll before the next record, because the group membership has pending work, such as a
        rebalance.
        """
        self._iterated = None
        self._wake()

    def _progress(self) -> object:
        """Return a value that changes whenever the application takes records; None while the application waits in a
        poll.
        """
        if self._is_polling:
            return None
        return self._positions.poll, None if self._iterated is None else self._iterated[1].next_offset

    def _moved(self) -> None:
        self._iterated = None
        self._wake()

    def _reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        for partition in tuple(partitions) or tuple(self.assignment()):
            self._to_move(partition).reset(timestamp)
        self._moved()

    def _to_move(self, partition: TopicPartition) -> PartitionPosition:
        """Return the position object of a partition, which a seek then changes. Raises ValueError for a partition that
        is not assigned.
        """
        position = self._positions.get(partition)
        self._positions.mark(position)
        return position

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait_for_data(self, deadline: float) -> bool:
        """Send fetches, and wait until data, an error or a rebalance arrives; return False when
        `deadline` has passed.
        """
        self._check_open()  # the consumer may have been closed during `advance`
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline:
            self._fetcher.send_fetches()
            return False
        # Create the future before sending, because a callback may find data before the wait begins, and those data must
        # wake this poll too.
        self._waiter = loop.create_future()
        self._fetcher.send_fetches()
        timer = loop.call_at(deadline, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        self._check_open()
        return True

    async def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        return await self._need_group().commits.committed(partitions, self.config.default_api_timeout_ms / 1000)

    async def _lookup(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        self._check_open()
        found, errors = await self._list_offsets(timestamps)
        for error in errors.values():
            raise error
        return found

    async def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp], dict[TopicPartition, KafkaError]]:
        assert self._pool is not None
        return await list_offsets(
            timestamps,
            isolation_level=self._isolation_level,
            pool=self._pool,
            metadata=self._metadata,
            config=self.config,
            timeout_s=self.config.default_api_timeout_ms / 1000,
        )


class _Polling:
    """Context manager around a poll: a second, concurrent poll raises an error."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer[Any, Any]) -> None:
        self._consumer = consumer

    def __enter__(self) -> None:
        if self._consumer._is_polling:
            raise RuntimeError("another task is polling this consumer")
        self._consumer._is_polling = True
        self._consumer._in_work = None  # the records of the previous poll count as processed now
        self._consumer._positions.poll += 1

    def __exit__(self, *_: object) -> None:
        self._consumer._is_polling = False
