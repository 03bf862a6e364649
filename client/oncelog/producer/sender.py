"""Batches to their leaders, answers back to the batches.

No task runs here: the sender is a function that the event loop calls when there may be something to send (`wake`), at
the time when there will be (linger, backoff, expiry), and for every answer. So a batch costs no switch between tasks,
and nothing can be cancelled halfway.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Final, NoReturn

from oncelog.alarm import Alarm
from oncelog.backoff import backoff_s
from oncelog.cluster import NO_NODE
from oncelog.config import ProducerConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.connection.transport import BrokerConnection
from oncelog.errors import (
    ClientClosed,
    ConnectionFailed,
    DeliveryTimeout,
    KafkaError,
    OutcomeUnknown,
    RequestTimedOut,
    StaleMetadata,
    error_for,
)
from oncelog.fail_points.point import fail_point
from oncelog.metadata.metadata import Metadata
from oncelog.producer.accumulator import Accumulator
from oncelog.producer.batch import NO_OFFSET, ProducerBatch
from oncelog.producer.session import ProducerSession, Verdict
from oncelog.producer.transaction_manager import TransactionManager
from oncelog.producer.transaction_requests import CONCURRENT_BACKOFF_MS, HIGHEST_BEFORE_V2
from oncelog_protocol.errors import ErrorCode, UnencodableMessage
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse

TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData
PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse

logger = logging.getLogger(__name__)

NO_ACKS: Final = 0


def _not_sent() -> NoReturn:
    raise ConnectionFailed("the request was dropped")


class Sender:
    """Sends what the accumulator has ready.

    `is_memory_short` asks whether `send` calls wait for room; `on_identity_wanted` is called when batches wait for a
    producer id, `on_failed` when a batch of the open transaction has failed for good.
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
        self._alarm = Alarm(self._run)
        self._is_closed = False

    def wake(self) -> None:
        """Look for something to send in the next turn of the loop."""
        if self._handle is None and not self._is_closed:
            self._handle = self._loop.call_soon(self._run)

    def wake_at(self, when: float) -> None:
        """Look at `when` (loop time) at the latest."""
        if not self._is_closed:
            self._alarm.set(when)

    async def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._alarm.cancel()
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
                    is_blocked.add(node_id)  # the connection, or an answer, wakes us
                    continue
                sent = True
                if not self._send(node_id, connection, self._accumulator.drain(queues)):
                    break  # with a transaction that has failed, what was ready is not there any more
            if not sent:
                break
        if ready.is_leader_missing:
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
        # The node may have moved: look, and try again; the pool waits longer after each failure.
        self._metadata.request_refresh()
        self.wake_at(self._loop.time() + self._config.reconnect_backoff_ms / 1000)

    def _send(self, node_id: int, connection: BrokerConnection, batches: list[ProducerBatch]) -> bool:
        """False where that failed at once."""
        manager = self._manager
        request = ProduceRequest(
            transactional_id=None if manager is None else manager.transactional_id,
            acks=self._config.required_acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=_topic_data(batches, is_transactional=manager is not None),
        )
        try:
            if request.acks == NO_ACKS:
                connection.start_without_response(request)
                for batch in batches:
                    self._acknowledge(batch, NO_OFFSET)
                self._on_progress()
                return True
            future = self._start(connection, request)
        except (KafkaError, UnencodableMessage) as error:
            failure = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.INVALID_REQUEST, str(error))
            for batch in batches:
                self._failed(batch, failure)
            self._on_progress()
            return False
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        future.add_done_callback(partial(self._answered, node_id, batches))
        return True

    @fail_point("send", dropped=_not_sent)
    def _start(self, connection: BrokerConnection, request: ProduceRequest) -> asyncio.Future[ProduceResponse]:
        """Raises what BrokerConnection.start raises."""
        version = None
        manager = self._manager
        if manager is not None:
            manager.sent()
            if not manager.is_v2:
                assert connection.versions is not None
                version = connection.versions.choose_at_most(ProduceRequest, HIGHEST_BEFORE_V2[ProduceRequest])
        return connection.start(request, version)

    def _answered(self, node_id: int, batches: list[ProducerBatch], future: asyncio.Future[ProduceResponse]) -> None:
        self._in_flight[node_id] -= 1
        error = future.exception()
        if error is not None:
            failure = error if isinstance(error, KafkaError) else ConnectionFailed(repr(error))
            for batch in batches:
                batch.is_maybe_written = True
                self._failed(batch, failure)
        else:
            self._read(batches, future.result())
        self._abandon()
        self._on_progress()
        self._run()

    def _read(self, batches: list[ProducerBatch], response: ProduceResponse) -> None:
        answers = {
            (topic.name, answer.index): answer for topic in response.responses for answer in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get((batch.topic, batch.partition))
            if answer is None:
                batch.is_maybe_written = True
                self._failed(batch, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer lacks this batch"))
            elif answer.error_code == ErrorCode.NONE:
                self._acknowledge(batch, answer.base_offset, answer.log_append_time_ms)
            else:
                self._refused(batch, answer)

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int = -1) -> None:
        self._accumulator.complete(batch, base_offset)
        batch.acknowledge(base_offset, log_append_time_ms)

    def _refused(self, batch: ProducerBatch, answer: PartitionResponse) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.records_count > 1 and self._is_wanted:
            logger.info("%s-%d: splitting a batch of %d bytes", batch.topic, batch.partition, batch.size)
            self._accumulator.split(batch)
            return
        hint = answer.current_leader
        if hint is not None and hint.leader_id >= 0:
            self._metadata.learn_leader(batch.topic, batch.partition, hint.leader_id, hint.leader_epoch)
        message = answer.error_message
        if answer.record_errors:
            message = "; ".join(
                f"record {record.batch_index}: {record.batch_index_error_message or message or code.meaning}"
                for record in answer.record_errors
            )
        error = error_for(answer.error_code, message)
        verdict = Verdict.BY_ERROR
        if self._session is not None:
            sequences = self._accumulator.queue(batch.topic, batch.partition).sequences
            verdict = self._session.judge(sequences, batch, code, answer.log_start_offset)
        if verdict is Verdict.DUPLICATE:
            self._acknowledge(batch, NO_OFFSET)
        elif verdict is Verdict.BY_ERROR:
            self._failed(batch, error)
        else:
            self._failed(batch, error, is_retriable=verdict is Verdict.RETRY)

    def _failed(self, batch: ProducerBatch, error: KafkaError, *, is_retriable: bool | None = None) -> None:
        """Send `batch` again if that may help and there is time and a try left; else tell those who wait.

        `is_retriable`: whether it may help, where that is not for the error alone to say.
        """
        if isinstance(error, StaleMetadata | ConnectionFailed | RequestTimedOut):
            self._metadata.request_refresh()
        config = self._config
        first_ms = config.retry_backoff_ms
        is_concurrent = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
        if is_concurrent:
            first_ms = min(first_ms, CONCURRENT_BACKOFF_MS)
        not_before = self._loop.time() + backoff_s(batch.attempts, first_ms, config.retry_backoff_max_ms, self._rng)
        if is_retriable is None:
            is_retriable = error.retriable
        has_try = batch.attempts <= config.retries or is_concurrent  # that is only waiting for one's turn
        if is_retriable and self._is_wanted and has_try and not self._is_closed:
            if not_before < batch.deadline:
                level = logging.DEBUG if is_concurrent else logging.INFO
                logger.log(level, "%s-%d: sending again after %s", batch.topic, batch.partition, error)
                batch.last_error = error
                self._accumulator.requeue(batch, not_before)
                return
            error = DeliveryTimeout(f"not acknowledged within delivery.timeout.ms; the last error was {error}")
        self._accumulator.give_up(batch)
        self._give_up(batch, error)

    @property
    def _is_wanted(self) -> bool:
        """Whether batches are still to be sent: not those of a transaction that is not to be."""
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

    def _abandon(self) -> None:
        abandoned, self._accumulator.abandoned = self._accumulator.abandoned, []
        for batch in abandoned:
            self._give_up(
                batch,
                OutcomeUnknown(
                    "a batch before it is missing in the log, and a try of this one was never answered: it may still"
                    " arrive, so it is not sent again"
                ),
            )

    def _why_not_sent(self, batch: ProducerBatch) -> str:
        leader = self._metadata.cluster.leader(batch.topic, batch.partition)
        if leader == NO_NODE:
            return "no leader is known"
        if leader in self._connect_errors:
            return self._connect_errors[leader]
        if self._session is not None and not self._session.has_identity:
            return "no broker has given a producer id"
        return "it was not its turn"

    def _give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        level = logging.INFO if isinstance(error, ClientClosed) else logging.WARNING
        logger.log(level, "%s-%d: %d records failed: %s", batch.topic, batch.partition, batch.records_count, error)
        batch.fail(error)
        if self._on_failed is not None:
            self._on_failed(error)


def _topic_data(batches: list[ProducerBatch], *, is_transactional: bool) -> list[TopicData]:
    def topic_of(batch: ProducerBatch) -> str:
        return batch.topic

    by_topic = batches if len(batches) == 1 else sorted(batches, key=topic_of)
    return [
        TopicData(
            name=topic,
            partition_data=[
                PartitionData(index=batch.partition, records=batch.build(transactional=is_transactional))
                for batch in group
            ],
        )
        for topic, group in groupby(by_topic, key=topic_of)
    ]
