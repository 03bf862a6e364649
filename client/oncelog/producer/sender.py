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
from typing import Final

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
    RequestTimedOut,
    StaleMetadata,
    error_for,
)
from oncelog.metadata import Metadata
from oncelog.producer.accumulator import Accumulator
from oncelog.producer.batch import NO_OFFSET, ProducerBatch
from oncelog_protocol.errors import ErrorCode, UnencodableMessage
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse

TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData
PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse

logger = logging.getLogger(__name__)

NO_ACKS: Final = 0


class Sender:
    """Sends what the accumulator has ready. `is_memory_short` asks whether `send` calls wait for room."""

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: Metadata,
        pool: ConnectionPool,
        config: ProducerConfig,
        *,
        is_memory_short: Callable[[], bool],
        on_progress: Callable[[], None],
    ) -> None:
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
                self._send(node_id, connection, self._accumulator.drain(queues))
                sent = True
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

    def _send(self, node_id: int, connection: BrokerConnection, batches: list[ProducerBatch]) -> None:
        request = ProduceRequest(
            acks=self._config.required_acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=_topic_data(batches),
        )
        try:
            if request.acks == NO_ACKS:
                connection.start_without_response(request)
                for batch in batches:
                    self._acknowledge(batch, NO_OFFSET)
                self._on_progress()
                return
            future = connection.start(request)
        except (KafkaError, UnencodableMessage) as error:
            failure = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.INVALID_REQUEST, str(error))
            for batch in batches:
                self._failed(batch, failure)
            self._on_progress()
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        future.add_done_callback(partial(self._answered, node_id, batches))

    def _answered(self, node_id: int, batches: list[ProducerBatch], future: asyncio.Future[ProduceResponse]) -> None:
        self._in_flight[node_id] -= 1
        error = future.exception()
        if error is not None:
            failure = error if isinstance(error, KafkaError) else ConnectionFailed(repr(error))
            for batch in batches:
                self._failed(batch, failure)
        else:
            self._read(batches, future.result())
        self._on_progress()
        self._run()

    def _read(self, batches: list[ProducerBatch], response: ProduceResponse) -> None:
        answers = {
            (topic.name, answer.index): answer for topic in response.responses for answer in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get((batch.topic, batch.partition))
            if answer is None:
                self._failed(batch, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer lacks this batch"))
            elif answer.error_code == ErrorCode.NONE:
                self._acknowledge(batch, answer.base_offset, answer.log_append_time_ms)
            else:
                self._refused(batch, answer)

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int = -1) -> None:
        self._accumulator.complete(batch)
        batch.acknowledge(base_offset, log_append_time_ms)

    def _refused(self, batch: ProducerBatch, answer: PartitionResponse) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.records_count > 1:
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
        self._failed(batch, error_for(answer.error_code, message))

    def _failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Send `batch` again if that may help and there is time and a try left; else tell those who wait."""
        if isinstance(error, StaleMetadata | ConnectionFailed | RequestTimedOut):
            self._metadata.request_refresh()
        config = self._config
        not_before = self._loop.time() + backoff_s(
            batch.attempts, config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng
        )
        if error.retriable and batch.attempts <= config.retries and not self._is_closed:
            if not_before < batch.deadline:
                logger.info("%s-%d: sending again after %s", batch.topic, batch.partition, error)
                self._accumulator.requeue(batch, not_before)
                return
            error = DeliveryTimeout(f"not acknowledged within delivery.timeout.ms; the last error was {error}")
        self._accumulator.complete(batch)
        self._give_up(batch, error)

    def _expire(self, now: float) -> None:
        expired = self._accumulator.expire(now)
        for batch in expired:
            leader = self._metadata.cluster.leader(batch.topic, batch.partition)
            reason = (
                "no leader is known" if leader == NO_NODE else self._connect_errors.get(leader, "it was not its turn")
            )
            self._give_up(batch, DeliveryTimeout(f"not acknowledged within delivery.timeout.ms: {reason}"))
        if expired:
            self._on_progress()

    def _give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        level = logging.INFO if isinstance(error, ClientClosed) else logging.WARNING
        logger.log(level, "%s-%d: %d records failed: %s", batch.topic, batch.partition, batch.records_count, error)
        batch.fail(error)


def _topic_data(batches: list[ProducerBatch]) -> list[TopicData]:
    def topic_of(batch: ProducerBatch) -> str:
        return batch.topic

    by_topic = batches if len(batches) == 1 else sorted(batches, key=topic_of)
    return [
        TopicData(
            name=topic,
            partition_data=[PartitionData(index=batch.partition, records=batch.builder.build()) for batch in group],
        )
        for topic, group in groupby(by_topic, key=topic_of)
    ]
