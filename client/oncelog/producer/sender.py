"""Sends batches to their leaders, and passes responses to the batches.

The sender is not a task but a function. The event loop calls it when a batch may be ready (`wake`), at the time of the
next linger, backoff or expiry, and for every response. Sending a batch therefore needs no task switch, and no send can
be cancelled halfway.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import Final, NoReturn

from oncelog.backoff import backoff_s
from oncelog.cluster import NO_NODE, Broker
from oncelog.config import ProducerConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.connection.transport import BrokerConnection
from oncelog.errors import (
    ClientClosed,
    ConnectionFailed,
    DeliveryTimeout,
    KafkaError,
    RequestTimedOut,
    StaleMetadata,
    error_for,
)
from oncelog.fail_points.point import fail_point
from oncelog.metadata.metadata import Metadata
from oncelog.producer.accumulator import Accumulator
from oncelog.producer.batch import ProducerBatch, unsendable
from oncelog.producer.counts import ProducerCounts
from oncelog.producer.record_metadata import NO_OFFSET
from oncelog.producer.session import ProducerSession, Verdict
from oncelog.producer.transaction_manager import TransactionManager
from oncelog.producer.transaction_requests import CONCURRENT_BACKOFF_MS, HIGHEST_BEFORE_V2
from oncelog.timer import Timer
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse

TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData
PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
Built = tuple[ProducerBatch, bytearray | memoryview]
"""A batch and its encoded bytes."""

logger = logging.getLogger(__name__)

NO_ACKS: Final = 0
RECORD_ERRORS_SHOWN: Final = 3
"""Maximum number of record errors of one batch that are logged."""


def _not_sent() -> NoReturn:
    raise ConnectionFailed("the request was dropped")


class Sender:
    """Sends the ready batches of the accumulator.

    `is_memory_short` returns whether `send` calls wait for room; `on_identity_wanted` is called when batches wait for a
    producer id, and `on_failed` when a batch of the open transaction has failed permanently.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: Metadata,
        pool: ConnectionPool,
        config: ProducerConfig,
        *,
        is_memory_short: Callable[[], bool],
        on_progress: Callable[[], None],
        session: ProducerSession | None = None,
        manager: TransactionManager | None = None,
        on_identity_wanted: Callable[[], None] | None = None,
        on_failed: Callable[[KafkaError], object] | None = None,
    ) -> None:
        self._session = session
        self._manager = manager
        self._on_identity_wanted = on_identity_wanted
        self._on_failed = on_failed
        self._accumulator = accumulator
        self._metadata = metadata
        self._pool = pool
        self._config = config
        self._is_memory_short = is_memory_short
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        self._in_flight: dict[int, int] = {}
        self._connecting: dict[int, asyncio.Task[BrokerConnection]] = {}
        self._connect_errors: dict[int, str] = {}
        self._handle: asyncio.Handle | None = None
        self._timer = Timer(self._run)
        self._is_closed = False
        self.counts = ProducerCounts()

    def wake(self) -> None:
        """Check for ready batches in the next iteration of the event loop."""
        if self._handle is None and not self._is_closed:
            self._handle = self._loop.call_soon(self._run)

    def wake_at(self, when: float) -> None:
        """Check for ready batches at `when` (loop time) at the latest."""
        if not self._is_closed:
            self._timer.set(when)

    async def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._timer.cancel()
        if self._handle is not None:
            self._handle.cancel()
        attempts = list(self._connecting.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)

    def _run(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._is_closed:
            return
        now = self._loop.time()
        self._expire(now)
        if self._session is not None and not self._session.has_identity and self._on_identity_wanted is not None:
            self._on_identity_wanted()
        is_blocked: set[int] = set()
        while True:
            ready = self._accumulator.ready(now, is_memory_short=self._is_memory_short())
            sent = False
            for node_id, queues in ready.nodes.items():
                if node_id in is_blocked:
                    continue
                connection = self._connection(node_id)
                limit = self._config.max_in_flight_requests_per_connection
                if connection is None or self._in_flight.get(node_id, 0) >= limit:
                    # skip this node; the sender runs again when the connection opens or a response arrives
                    is_blocked.add(node_id)
                    continue
                sent = True
                batches = self._accumulator.drain(queues)
                is_whole = not self._abandon()
                if not (self._send(node_id, connection, batches) and is_whole):
                    break  # a failed transaction has dropped the ready batches
            if not sent:
                break
        if ready.leaderless:
            for topic in ready.leaderless:
                self._metadata.use(topic)
            self._metadata.request_refresh()
        if ready.next_check is not None:
            self.wake_at(ready.next_check)

    def _connection(self, node_id: int) -> BrokerConnection | None:
        connection = self._pool.ready(node_id)
        if connection is None and node_id not in self._connecting:
            attempt = self._loop.create_task(self._pool.connection(node_id))
            self._connecting[node_id] = attempt
            attempt.add_done_callback(partial(self._connected, node_id))
        return connection

    def _connected(self, node_id: int, attempt: asyncio.Task[BrokerConnection]) -> None:
        del self._connecting[node_id]
        if attempt.cancelled():
            return
        error = attempt.exception()
        if error is None:
            self._connect_errors.pop(node_id, None)
            self.wake()
            return
        self._connect_errors[node_id] = str(error)
        if not isinstance(error, KafkaError):
            logger.error("connecting to node %d failed: %r", node_id, error)
        # The partition may have moved to another leader, so refresh the metadata and retry; the pool's backoff grows
        # with each failure.
        self._metadata.request_refresh()
        self.wake_at(self._loop.time() + self._config.reconnect_backoff_ms / 1000)

    def _send(self, node_id: int, connection: BrokerConnection, batches: list[ProducerBatch]) -> bool:
        """Send one request. Returns False if some of the batches failed immediately.

        An exception between drain and send becomes an error of the batches concerned, so that every batch gets a
        result.
        """
        built = self._build(batches)
        if built:
            try:
                future = self._start(connection, self._request(built))
            except Exception as error:
                failure = error if isinstance(error, KafkaError) else unsendable(error)
                for batch, _ in built:
                    self._failed(batch, failure)
                self._on_progress()
                return False
            self.counts.requests += 1
            sent = [batch for batch, _ in built]
            self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
            future.add_done_callback(partial(self._answered, node_id, sent))
        return len(built) == len(batches)

    def _build(self, batches: list[ProducerBatch]) -> list[Built]:
        """Encode the batches; a batch that cannot be encoded fails alone."""
        built = []
        for batch in batches:
            try:
                built.append((batch, batch.build(transactional=self._manager is not None)))
            except Exception as error:
                self._failed(batch, unsendable(error))
        if len(built) < len(batches):
            self._on_progress()
        return built

    def _request(self, built: list[Built]) -> ProduceRequest:
        by_topic = built if len(built) == 1 else sorted(built, key=_topic_of)
        return ProduceRequest(
            transactional_id=None if self._manager is None else self._manager.transactional_id,
            acks=self._config.required_acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=[
                TopicData(
                    name=topic,
                    partition_data=[PartitionData(index=batch.partition, records=data) for batch, data in group],
                )
                for topic, group in groupby(by_topic, key=_topic_of)
            ],
        )

    @fail_point("send", dropped=_not_sent)
    def _start(
        self, connection: BrokerConnection, request: ProduceRequest
    ) -> asyncio.Future[ProduceResponse] | asyncio.Future[None]:
        """Write a Produce request; with acks=0, the returned future completes without a response. Raises the errors of
        BrokerConnection.start.
        """
        if request.acks == NO_ACKS:
            return connection.start_without_response(request)
        version = None
        manager = self._manager
        if manager is not None:
            manager.sent()
            if not manager.is_v2:
                assert connection.versions is not None
                version = connection.versions.choose_at_most(ProduceRequest, HIGHEST_BEFORE_V2[ProduceRequest])
        return connection.start(request, version)

    def _answered(
        self, node_id: int, batches: list[ProducerBatch], future: asyncio.Future[ProduceResponse | None]
    ) -> None:
        self._in_flight[node_id] -= 1
        error = future.exception()
        if error is not None:
            failure = error if isinstance(error, KafkaError) else ConnectionFailed(repr(error))
            for batch in batches:
                batch.is_maybe_written = True
                self._failed(batch, failure, node_id=node_id)
        else:
            self._read(node_id, batches, future.result())
        self._abandon()
        self._on_progress()
        self._run()

    def _read(self, node_id: int, batches: list[ProducerBatch], response: ProduceResponse | None) -> None:
        if response is None:  # acks=0: the data were written to the socket, and no response will come
            for batch in batches:
                self._acknowledge(batch, NO_OFFSET)
            return
        self._learn_leaders(response)
        answers = {
            (topic.name, answer.index): answer for topic in response.responses for answer in topic.partition_responses
        }
        for batch in batches:
            try:
                self._read_one(node_id, batch, answers.get((batch.topic, batch.partition)))
            except Exception as error:
                logger.exception("%s-%d: the answer could not be read", batch.topic, batch.partition)
                batch.is_maybe_written = True
                self._failed(batch, unsendable(error))

    def _learn_leaders(self, response: ProduceResponse) -> None:
        """Store the new leader from the response of a former leader (KIP-951)."""
        for topic in response.responses:
            for answer in topic.partition_responses:
                hint = answer.current_leader
                if answer.error_code and hint is not None and hint.leader_id >= 0:
                    named = [Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
                    self._metadata.learn_leader(topic.name, answer.index, hint.leader_id, hint.leader_epoch, named)

    def _read_one(self, node_id: int, batch: ProducerBatch, answer: PartitionResponse | None) -> None:
        if answer is None:
            batch.is_maybe_written = True
            self._failed(
                batch, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's response does not contain this batch")
            )
        elif answer.error_code == ErrorCode.NONE:
            self._acknowledge(batch, answer.base_offset, answer.log_append_time_ms)
        else:
            self._refused(node_id, batch, answer)

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int = -1) -> None:
        self._accumulator.complete(batch, base_offset)
        self.counts.records_sent += batch.records_count
        self.counts.bytes_sent += batch.size
        batch.acknowledge(base_offset, log_append_time_ms)

    def _refused(self, node_id: int, batch: ProducerBatch, answer: PartitionResponse) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.records_count > 1 and self._is_wanted:
            logger.info("%s-%d: splitting a batch of %d bytes", batch.topic, batch.partition, batch.size)
            self._accumulator.split(batch)
            self.counts.batches_split += 1
            return
        error, at_fault = _errors_of(answer)
        verdict = Verdict.BY_ERROR
        if self._session is not None:
            sequences = self._accumulator.queue(batch.topic, batch.partition).sequences
            verdict = self._session.judge(sequences, batch, code, answer.log_start_offset)
        if verdict is Verdict.DUPLICATE:
            self._acknowledge(batch, NO_OFFSET)
        elif verdict is Verdict.BY_ERROR:
            self._failed(batch, error, at_fault, node_id=node_id)
        else:
            self._failed(batch, error, at_fault, is_retriable=verdict is Verdict.RETRY)

    def _failed(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        at_fault: Mapping[int, KafkaError] | None = None,
        *,
        is_retriable: bool | None = None,
        node_id: int = NO_NODE,
    ) -> None:
        """Retry `batch` if the error is retriable and neither time nor attempts are used up; otherwise fail it.

        `at_fault` has the errors of single records. `is_retriable` overrides the property of the error. `node_id` is
        the node that failed the batch; no backoff is needed if another node has become the leader.
        """
        if isinstance(error, StaleMetadata | ConnectionFailed | RequestTimedOut):
            self._metadata.request_refresh()
        config = self._config
        first_ms = config.retry_backoff_ms
        is_concurrent = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
        if is_concurrent:
            first_ms = min(first_ms, CONCURRENT_BACKOFF_MS)
        not_before = self._loop.time()
        if not self._has_moved(batch, error, node_id):
            not_before += backoff_s(batch.attempts, first_ms, config.retry_backoff_max_ms, self._rng)
        if is_retriable is None:
            is_retriable = error.retriable
        # do not count attempts while the coordinator is ending the previous transaction
        has_try = batch.attempts <= config.retries or is_concurrent
        if is_retriable and self._is_wanted and has_try and not self._is_closed:
            if not_before < batch.deadline:
                level = logging.DEBUG if is_concurrent else logging.INFO
                logger.log(level, "%s-%d: sending again after %s", batch.topic, batch.partition, error)
                batch.last_error = error
                self.counts.records_retried += batch.records_count
                self._accumulator.requeue(batch, not_before)
                return
            error = DeliveryTimeout(f"not acknowledged within delivery.timeout.ms; the last error was {error}")
            at_fault = None
        self._accumulator.give_up(batch)
        self._give_up(batch, error, at_fault)

    def _has_moved(self, batch: ProducerBatch, error: KafkaError, node_id: int) -> bool:
        """Return whether a newer leader than the failed node is known."""
        if node_id == NO_NODE or not isinstance(error, StaleMetadata | ConnectionFailed | RequestTimedOut):
            return False
        return self._metadata.cluster.leader(batch.topic, batch.partition) not in (NO_NODE, node_id)

    @property
    def _is_wanted(self) -> bool:
        """Whether batches should still be sent; batches of a failed transaction are not sent."""
        return self._manager is None or self._manager.is_sending

    def _expire(self, now: float) -> None:
        expired = self._accumulator.expire(now)
        for batch in expired:
            reason = self._why_not_sent(batch)
            if batch.last_error is not None:
                reason += f"; the last error was {batch.last_error}"
            self._give_up(batch, DeliveryTimeout(f"not acknowledged within delivery.timeout.ms: {reason}"))
        if expired:
            self._abandon()
            self._on_progress()

    def _abandon(self) -> bool:
        """Fail the batches that the accumulator has removed. Returns whether the accumulator had removed any
        batches."""
        abandoned, self._accumulator.abandoned = self._accumulator.abandoned, []
        for batch, error in abandoned:
            self._give_up(batch, error)
        if abandoned:
            self._on_progress()
        return bool(abandoned)

    def _why_not_sent(self, batch: ProducerBatch) -> str:
        leader = self._metadata.cluster.leader(batch.topic, batch.partition)
        if leader == NO_NODE:
            return "no leader is known"
        if leader in self._connect_errors:
            return self._connect_errors[leader]
        if self._session is not None and not self._session.has_identity:
            return "no broker has given a producer id"
        return "it was not its turn"

    def _give_up(
        self, batch: ProducerBatch, error: KafkaError, at_fault: Mapping[int, KafkaError] | None = None
    ) -> None:
        level = logging.INFO if isinstance(error, ClientClosed) else logging.WARNING
        logger.log(level, "%s-%d: %d records failed: %s", batch.topic, batch.partition, batch.records_count, error)
        self.counts.records_failed += batch.records_count
        batch.fail(error, at_fault)
        if self._on_failed is not None:
            self._on_failed(error)


def _topic_of(built: Built) -> str:
    return built[0].topic


def _errors_of(answer: PartitionResponse) -> tuple[KafkaError, dict[int, KafkaError]]:
    """Return the error of a batch, and the errors of its invalid records (KIP-467).

    As in Kafka's client, the batch's code is also the record's code if there is a single invalid record. If there are
    several invalid records, the code of the batch may not fit all of them, so each invalid record gets INVALID_RECORD
    with its own message.
    """
    code = ErrorCode.of(answer.error_code)
    told = answer.record_errors or ()
    messages = {
        each.batch_index: each.batch_index_error_message or answer.error_message or code.meaning for each in told
    }
    if not messages:
        return error_for(answer.error_code, answer.error_message), {}
    its_code = answer.error_code if len(messages) == 1 else ErrorCode.INVALID_RECORD
    shown = [f"record {index}: {message}" for index, message in list(messages.items())[:RECORD_ERRORS_SHOWN]]
    if len(messages) > len(shown):
        shown.append(f"and {len(messages) - len(shown)} more")
    at_fault = {index: error_for(its_code, message) for index, message in messages.items()}
    return error_for(answer.error_code, "; ".join(shown)), at_fault
