"""Implements the interface of `operations.py` with oncelog's client, for any cluster that speaks Kafka's protocol.

Each worker process keeps one KafkaCluster with its connections, so that a task need not connect again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from oncelog import (
    Admin,
    Consumer,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Producer,
    RecordMetadata,
    TopicPartition,
)
from oncelog.admin import EARLIEST_TIMESTAMP
from oncelog.admin.hanging import DescribedTransaction
from oncelog.clock import now_ms
from oncelog.errors import ErrorCode, KafkaError, PartialFailure, ProducerFenced, UnsupportedVersion
from oncelog.lifecycle import Lifecycle
from oncelog.prepared_transaction import PreparedTransaction
from oncelog.producer.packable_rows import PackableRows
from oncelog.producer.transaction import until_known
from oncelog_pipeline.opening import opened
from oncelog_pipeline.sink.digest import NOTHING, Digest, DigestedRows, RowCounter, digest_of
from oncelog_pipeline.sink.names import PREFIX, STATE_TOPIC, Query
from oncelog_pipeline.sink.operations import Marker, Superseded
from oncelog_pipeline.sink.orphans import Kept
from oncelog_pipeline.sink.state import Place, State, Written
from oncelog_pipeline.sink.state_topic import StateTopic
from oncelog_protocol.uuids import ZERO_UUID, uuid_to_string

ONGOING: Final = "Ongoing"
COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})
LOOK_MS: Final = 50
"""Timeout of each poll, in milliseconds. After each poll without a record, the position of the consumer is checked: if
the consumer has passed the record, the record is aborted.
"""
PATIENCE_SECONDS: Final = 60.0
"""How many seconds a task retries to connect to a broker; this is the default of max.block.ms."""
OWNER_TIMEOUT_MS: Final = 10_000
"""Timeout, in milliseconds, of the transaction in which a state is written."""
ENDS_AT_A_TIME: Final = 500
"""The maximum number of transactions that are ended concurrently, over one connection to each coordinator."""
LOOKS_AT_A_TIME: Final = 20
"""The maximum number of consumers that check concurrently whether a record is visible; each has its own connections."""

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger(__name__)


class StateOwner:
    """Implements `operations.Owner`: writes the state of one query with the query's own producer."""

    def __init__(self, producer: Producer, partition: TopicPartition, query: Query) -> None:
        self._producer = producer
        self._partition = partition
        self._query = query

    async def write(self, state: State | None) -> None:
        """Write the state of the query. Raises Superseded if another process owns the query. After another KafkaError
        the state may have been written or not; the next owner finds out which.
        """
        try:
            async with self._producer.transaction():
                key, value = self._query.id.encode(), None if state is None else state.as_json()
                topic, index = self._partition
                written = await self._producer.send_and_wait(topic, value, key=key, partition=index)
                await self._producer.send_offsets({self._partition: written.offset}, _group(self._query.id))
        except ProducerFenced:
            raise Superseded from None

    async def close(self) -> None:
        await self._producer.close()


class RowProducer:
    """Implements `operations.TaskProducer`: the producer of one task, whose rows are written in one transaction."""

    def __init__(self, producer: Producer, state_partition: TopicPartition) -> None:
        self.producer = producer
        self._state_partition = state_partition
        self._first: asyncio.Future[RecordMetadata] | None = None
        self.digest = NOTHING
        """Digest of the rows that were sent so far."""

    async def send(self, topic: str, value: bytes | None, key: bytes | None = None, **options: Any) -> None:
        """Send one row, as `Producer.send` does, and add it to the digest. Raises KafkaError."""
        headers = options.get("headers")
        keys = None if key is None else [key]
        self.digest = self.digest.plus(digest_of(topic, [value], keys, [headers] if headers else None))
        future = await self.producer.send(topic, value, key, **options)
        if self._first is None:
            self._first = future

    def count(self, topic: str, rows: DigestedRows) -> None:
        """Add rows of one topic to the digest. Call this once for all rows, before `send_packed` sends the rows of each
        partition.
        """
        self.digest = self.digest.plus(rows.digest(topic))

    async def send_packed(self, topic: str, partition: int, rows: PackableRows) -> None:
        """Send the rows of one partition, as `Producer.send_packed` does. The digest does not change, because `count`
        has added the rows already. Raises KafkaError.
        """
        future = await self.producer.send_packed(topic, partition, rows)
        if self._first is None:
            self._first = future

    async def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises KafkaError."""
        return len(await self.producer.partitions_for(topic))

    async def prepare(self) -> Written | None:
        """Flush the rows and return the transaction, still open; None if no row was written. Raises KafkaError."""
        prepared = await self.producer.prepare_transaction()
        if prepared is None or self._first is None:
            return None
        first = await self._first
        return Written(prepared, Place(first.topic, first.partition, first.offset))

    async def commit_with_marker(self, batch: int) -> None:
        """Commit the rows and a marker in one transaction; the marker says that the partition has written `batch`.
        Raises KafkaError.
        """
        transactional_id = self.producer.config.transactional_id
        assert transactional_id is not None
        marker = OffsetAndMetadata(batch + 1, f"{self.digest.rows}:{self.digest.total}")
        await self.producer.send_offsets({self._state_partition: marker}, _group(transactional_id))
        await until_known(self.producer.commit_transaction)

    async def close(self) -> None:
        await self.producer.close()


class KafkaCluster(Lifecycle):
    """Implements `operations.Cluster`. The object is usable from `start` to `close`.

    `settings` are keyword arguments that all of oncelog's clients accept; `producer_settings` apply only to the
    producers of tasks. `task_timeout_ms` is the timeout of the tasks' transactions in milliseconds.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        task_timeout_ms: int,
        state_topic: str = STATE_TOPIC,
        settings: Mapping[str, Any] | None = None,
        producer_settings: Mapping[str, Any] | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`patience_seconds` is how long a task retries to connect to an unreachable broker. Raises ConfigError."""
        self._bootstrap_servers = bootstrap_servers
        self._settings = dict(settings or {})
        self._producer_settings = self._settings | dict(producer_settings or {})
        self._task_timeout_ms = task_timeout_ms
        self._patience_seconds = patience_seconds
        self._admin = Admin(bootstrap_servers, **self._settings)
        self._states = StateTopic(self._admin, state_topic)
        self._may_list = True
        self._may_ask_durations = True
        self._may_keep = True
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret

    async def start(self) -> None:
        """Connect, and create the state topic if it does not exist. Raises KafkaError."""
        await self._admin.start()
        await self._states.ensure()

    async def close(self) -> None:
        await self._admin.close()

    # the query

    async def read_state(self, query: Query) -> State | None:
        return await self._states.read(query)

    async def has_had_state(self, query: Query) -> bool:
        return await self._states.has_had(query)

    async def states_by_name(self) -> dict[str, Kept]:
        """Return the state of each query, by the query's name. Raises KafkaError, TimeoutError."""
        return await self._states.all()

    async def remove_state(self, query: Query, seen: State) -> bool:
        """Remove the state of a finished query, if the state is still `seen`. Return whether the state was removed.
        Raises KafkaError."""
        owner = await self.own(query)
        try:
            if await self.read_state(query) != seen:
                return False
            await owner.write(None)
        except Superseded:
            return False  # another process has become the owner: it has removed the state, or continues the query
        else:
            return True
        finally:
            await owner.close()

    async def own(self, query: Query) -> StateOwner:
        settings = self._settings | {"transaction_timeout_ms": OWNER_TIMEOUT_MS, "linger_ms": 0}
        producer = await self._producer(query.id, settings)
        return StateOwner(producer, self._states.partition, query)

    async def _producer(self, transactional_id: str, settings: Mapping[str, Any]) -> Producer:
        """Return a started producer that uses the admin client's connections, which saves about a tenth of the CPU of a
        small task. Raises KafkaError.
        """
        shared = partial(Producer, self._bootstrap_servers, connections=self._admin.connections)
        make = partial(shared, transactional_id=transactional_id, **settings)
        return await opened(make, self._patience_seconds)

    # its tasks

    async def open_task(self, transactional_id: str) -> RowProducer:
        settings = self._producer_settings | {"transaction_timeout_ms": self._task_timeout_ms}
        producer = await self._producer(transactional_id, settings)
        producer.begin_transaction()
        return RowProducer(producer, self._states.partition)

    def counting(self) -> RowCounter:
        return RowCounter()

    async def marker(self, transactional_id: str) -> Marker | None:
        offsets = await self._admin.groups.offsets(transactional_id, require_stable=True)
        committed = offsets.get(self._states.partition)
        if committed is None and offsets:
            raise self._states.kept_elsewhere(transactional_id, offsets)
        return None if committed is None else Marker(committed.offset - 1, _digest_in(committed.metadata))

    async def has_committed(self, transactional_id: str) -> bool:
        return await self._state_of(transactional_id) in COMMITTED

    async def target(self, topic: str) -> str | None:
        described = (await self._admin.describe_topics([topic]))[topic]
        if described.topic_id == ZERO_UUID:
            return None
        partitions = [TopicPartition(topic, index) for index in described.partitions]
        earliest = await self._admin.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        return f"{uuid_to_string(described.topic_id)}/{sum(each.offset for each in earliest.values())}"

    async def is_ongoing(self, transactional_id: str) -> bool:
        return await self._state_of(transactional_id) == ONGOING

    async def _state_of(self, transactional_id: str) -> str | None:
        """Return the state of this id's last transaction, as its coordinator reports it; None if the coordinator does
        not know the id.
        """
        try:
            described = await self._admin.transactions.describe([transactional_id])
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return None
        return described[transactional_id].state

    async def are_open(self, transactions: Sequence[PreparedTransaction], least_left: float) -> list[bool]:
        """Return for each transaction whether it is open with enough time left before its timeout.

        The brokers determine which transactions are late, because the brokers' clocks will abort them. If the brokers
        cannot do that (before Apache Kafka 3.8, or because this client lacks the right), this process compares its own
        clock with the transactions' start times.
        """
        longest_ms = round((1 - least_left) * self._task_timeout_ms)
        described, late = await asyncio.gather(self._described(transactions), self._open_for_longer(longest_ms))

        def is_open(each: PreparedTransaction) -> bool:
            known = described.get(each.transactional_id)
            if known is None or known.state != ONGOING:
                return False
            if (known.producer_id, known.producer_epoch) != (each.producer_id, each.epoch):
                return False
            if late is not None:
                return each.transactional_id not in late
            return known.start_time_ms is None or now_ms() - known.start_time_ms <= longest_ms

        return [is_open(each) for each in transactions]

    async def _described(self, transactions: Sequence[PreparedTransaction]) -> Mapping[str, DescribedTransaction]:
        """Return the transactions that their coordinators know."""
        try:
            return await self._admin.transactions.describe([each.transactional_id for each in transactions])
        except KafkaError as error:
            errors = error.errors.values() if isinstance(error, PartialFailure) else [error]
            for each_error in errors:
                if each_error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise each_error from None
            return dict(error.results) if isinstance(error, PartialFailure) else {}

    async def _open_for_longer(self, duration_ms: int) -> frozenset[str] | None:
        """Return the ids of the transactions that have been open for longer than `duration_ms`; None if the brokers
        cannot list them by duration.
        """
        if not self._may_ask_durations:
            return None
        try:
            listed = await self._admin.transactions.list(states=[ONGOING], duration_ms=duration_ms)
        except KafkaError as error:
            if not _cannot_list(error):
                raise
            self._may_ask_durations = False
            return None
        return frozenset(each.transactional_id for each in listed)

    async def keep(self, transactions: Sequence[PreparedTransaction]) -> list[PreparedTransaction | None]:
        """Remove the timeout from these transactions, if the brokers have two-phase commit (KIP-939). If this client
        may not list open transactions, they keep their timeouts: if the driver then died before its decision, no later
        run could find and abort transactions without a timeout.
        """
        if not self._may_keep or not self._may_ask_durations:
            return list(transactions)
        return await _for_each(self._keep, transactions, ENDS_AT_A_TIME)

    async def _keep(self, prepared: PreparedTransaction) -> PreparedTransaction | None:
        try:
            return await self._admin.transactions.keep(prepared)
        except KafkaError as error:
            if isinstance(error, UnsupportedVersion):
                self._may_keep = False
            elif error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                if self._may_keep:
                    logger.warning(
                        "transactions keep their timeout (kafka.transaction.timeout.ms) between the decision and their"
                        " commit, as the operation TwoPhaseCommit on transactional ids that begin with %s is not"
                        " allowed: %s",
                        PREFIX,
                        error.message,
                    )
                self._may_keep = False
            else:
                raise
            return prepared

    async def end(self, transactions: Sequence[PreparedTransaction], *, commits: bool) -> list[bool]:
        end = partial(self._end, commits=commits)
        return await _for_each(end, transactions, ENDS_AT_A_TIME)

    async def _end(self, prepared: PreparedTransaction, *, commits: bool) -> bool:
        try:
            return await self._admin.transactions.end(prepared, commits=commits)
        except ProducerFenced:
            if commits:
                raise
            # a driver removed the timeout, but died before it decided to commit the batch
            await self.fence([prepared.transactional_id])
            return True

    async def are_visible(self, places: Sequence[Place]) -> list[bool]:
        return await _for_each(self._is_visible, places, LOOKS_AT_A_TIME)

    async def _is_visible(self, place: Place) -> bool:
        partition = TopicPartition(place.topic, place.partition)
        async with Consumer(
            self._bootstrap_servers, isolation_level="read_committed", auto_offset_reset="none", **self._settings
        ) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, place.offset)
            async with asyncio.timeout(consumer.config.default_api_timeout_ms / 1000):
                while True:
                    records = (await consumer.poll(LOOK_MS, max_records=1)).get(partition)
                    if records:
                        return records[0].offset == place.offset
                    if await consumer.position(partition) > place.offset:
                        return False

    async def ongoing(self, query: Query) -> list[str]:
        if not self._may_list:
            return []
        try:
            listed = await self._admin.transactions.list(states=[ONGOING])
        except KafkaError as error:
            if not _cannot_list(error):
                raise
            self._may_list = False
            logger.warning(
                "query %s: open transactions of killed task attempts hold back readers until their timeout,"
                " as transactions cannot be listed here (Apache Kafka from 3.0 on, with Describe on all ids): %s",
                query.name,
                error.message,
            )
            return []
        return [each.transactional_id for each in listed if each.transactional_id.startswith(query.tasks_prefix)]

    async def fence(self, transactional_ids: Collection[str]) -> None:
        await self._admin.transactions.fence(transactional_ids)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._rng.uniform(0.5, 1.5))


def _cannot_list(error: KafkaError) -> bool:
    """Return whether this error means that listing transactions will always fail: a broker is too old, or this client
    lacks the right.
    """
    return error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED or isinstance(error, UnsupportedVersion)


async def _for_each(work: Callable[[T], Awaitable[R]], things: Sequence[T], at_a_time: int) -> list[R]:
    """Return the results of `work` for all items, in the order of the items; at most `at_a_time` calls run
    concurrently.
    """
    room = asyncio.Semaphore(at_a_time)

    async def one(thing: T) -> R:
        async with room:
            return await work(thing)

    return list(await asyncio.gather(*map(one, things)))


def _digest_in(metadata: str | None) -> Digest | None:
    """Return the digest in the metadata that `commit_with_marker` has committed; None if an older release wrote the
    marker.
    """
    rows, _, total = (metadata or "").partition(":")
    return Digest(int(rows), int(total)) if rows.isdecimal() and total.isdecimal() else None


def _group(group_id: str) -> ConsumerGroupMetadata:
    """Return the metadata of a group without members."""
    return ConsumerGroupMetadata(group_id, -1, "", None)
