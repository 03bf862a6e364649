"""Sends Fetch requests to the leaders and adds responses to the positions. At most one request per node is outstanding.

As in the producer's sender, there is no task: each poll and each response calls `send_fetches`, so data arrive, up to
the limits, while the application works.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from oncelog.cluster import NO_LEADER_EPOCH, NO_NODE, TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.connection.pool import HANGING_S, ConnectionPool
from oncelog.connection.transport import BrokerConnection
from oncelog.consumer.counts import ConsumerCounts
from oncelog.consumer.fetch_session import FetchPartition, FetchSession, LogEnds, SessionRequest
from oncelog.consumer.fetched import FetchedPartition
from oncelog.consumer.isolation import AbortedTransactions
from oncelog.consumer.positions import PartitionPosition, Positions
from oncelog.consumer.validation import EpochEnd
from oncelog.consumer.validator import Validator
from oncelog.errors import KafkaError, OffsetOutOfRange, StaleMetadata, error_for
from oncelog.metadata.metadata import Metadata
from oncelog.timer import Timer
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse, IsolationLevel

FetchTopic = FetchRequest.FetchTopic
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
Asked = dict[TopicPartition, tuple[PartitionPosition, int, int]]
"""Partition -> (position object, and the values that its `seeks` and `fetch_offset` had when the request was sent)."""

SOON: Final = 0.5
"""A response that advances no partition counts as too early if it arrives before this fraction of fetch.max.wait.ms has
passed.
"""
RESETS_IN_A_ROW: Final = 10
"""After this many consecutive resets, an error is raised, because the leader's Fetch and ListOffsets responses disagree
about the bounds of the log.
"""
LEADERS_ONLY_S: Final = 10.0
"""After a nearer replica did not respond, the fetcher uses only leaders for this many seconds, because a leader keeps
naming that replica until the replica leaves the ISR.
"""
SESSION_ERRORS: Final = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)

logger = logging.getLogger(__name__)


class Fetcher:
    """Fetches records for all positions. The fetcher calls `wake` when a waiting poll should check again: for data, an
    error, or a retry that is due.
    """

    def __init__(
        self,
        positions: Positions,
        metadata: Metadata,
        pool: ConnectionPool,
        config: ConsumerConfig,
        *,
        wake: Callable[[], None],
    ) -> None:
        self._positions = positions
        self._metadata = metadata
        self._pool = pool
        self._config = config
        self._wake = wake
        self._isolation_level = IsolationLevel[config.isolation_level.upper()]
        self._loop = asyncio.get_running_loop()
        self._busy: set[int] = set()
        self._connecting: dict[int, asyncio.Task[BrokerConnection]] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._leaders_only_until = 0.0
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        # A broker without data responds after this time. If its responses came earlier, repeated requests would form a
        # busy loop.
        self._soon_s = SOON * (config.fetch_max_wait_ms / 1000 if config.fetch_min_bytes else 0.0)
        self._timer = Timer(self._retry)
        self._validator = Validator(positions, metadata, pool, config, self._rng, on_done=self._retry)
        self._is_closed = False
        self.counts = ConsumerCounts()

    def send_fetches(self) -> None:
        """Send a Fetch to every node without an outstanding request, for the partitions that may buffer more data."""
        if self._is_closed:
            return
        config, now = self._config, self._loop.time()
        wanted = self._positions.fetchable(
            now, buffer_bytes=config.max_partition_fetch_bytes, total_bytes=config.fetch_max_bytes
        )
        by_node: dict[int, list[PartitionPosition]] = {}
        for position in wanted:
            node_id = self._node_for(position)
            if node_id == NO_NODE:
                self._metadata.request_refresh()
            elif node_id not in self._busy and self._validator.ensure_valid(position):
                by_node.setdefault(node_id, []).append(position)
        self._validator.ask()
        retry_at = self._positions.next_retry(now)
        if retry_at is not None:
            self._timer.set(retry_at)
        for node_id, positions in by_node.items():
            connection = self._pool.ready(node_id)
            if connection is None:
                self._connect(node_id)
            else:
                self._send(node_id, connection, positions)

    def damaged(self, position: PartitionPosition) -> None:
        """Discard the buffered data of a partition, because a batch is unreadable. Later polls fetch the data again
        after a backoff, as they do after every error that poll raises. The new data may be readable, because perhaps
        only the transmitted copy was damaged.
        """
        position.fetch_again()
        position.back_off(self._loop.time(), self._config, self._rng)

    async def close(self) -> None:
        self._is_closed = True
        for node_id, session in self._sessions.items():
            connection = self._pool.ready(node_id)
            if session.is_open and connection is not None:
                # The response is not awaited, because a session that stays open only occupies a slot in the broker's
                # session cache.
                connection.start(self._request(session.closing())).cancel()
        self._timer.cancel()
        await self._validator.close()
        attempts = list(self._connecting.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)

    def _connect(self, node_id: int) -> None:
        if node_id not in self._connecting:
            attempt = self._loop.create_task(self._pool.connection(node_id))
            self._connecting[node_id] = attempt
            attempt.add_done_callback(partial(self._connected, node_id))

    def _connected(self, node_id: int, attempt: asyncio.Task[BrokerConnection]) -> None:
        del self._connecting[node_id]
        if attempt.cancelled() or self._is_closed:
            return
        error = attempt.exception()
        if error is None:
            self.send_fetches()
            return
        logger.info("connecting to node %d failed: %s", node_id, error)
        for position in self._positions:
            if position.preferred_replica == node_id:
                self._leave_replica(position)
        self._metadata.request_refresh()
        self._timer.set(self._loop.time() + self._config.reconnect_backoff_ms / 1000)

    def _send(self, node_id: int, connection: BrokerConnection, positions: list[PartitionPosition]) -> None:
        config, cluster = self._config, self._metadata.cluster
        asked: Asked = {}
        wanted: dict[TopicPartition, FetchPartition] = {}
        for position in positions:
            name, index = position.topic_partition
            offset = position.fetch_offset
            assert offset is not None, "only partitions with a position are fetched"
            known = cluster.partition(name, index)
            leader_epoch = NO_LEADER_EPOCH if known is None else known.leader_epoch
            fetch_epoch = position.fetch_epoch if position.fetch_epoch_is_read else NO_LEADER_EPOCH
            wanted[position.topic_partition] = FetchPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                # A leader only appends during its own leader epoch, so a position with this epoch needs no validation.
                last_fetched_epoch=NO_LEADER_EPOCH if fetch_epoch == leader_epoch else fetch_epoch,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
            asked[position.topic_partition] = (position, position.seeks, offset)
        session = self._sessions.setdefault(node_id, FetchSession())
        try:
            future = connection.start(self._request(session.request(wanted)))
        except KafkaError as error:
            session.failed()
            self._failed(asked, error)
            return
        self._busy.add(node_id)
        for position in positions:
            position.fetching_from = node_id
        if any(position.preferred_replica == node_id for position in positions):
            # wake up after this time to check whether the replica hangs
            self._timer.set(self._loop.time() + config.fetch_max_wait_ms / 1000 + HANGING_S)
        future.add_done_callback(partial(self._answered, node_id, asked, self._loop.time()))

    def _node_for(self, position: PartitionPosition) -> int:
        """Return the node to fetch from: the nearer replica that the leader has named (KIP-392), until it expires,
        hangs or leaves the cluster; otherwise the leader.
        """
        cluster, node_id = self._metadata.cluster, position.preferred_replica
        if node_id != NO_NODE:
            if self._pool.is_stuck(node_id, self._config.fetch_max_wait_ms / 1000):
                self._leave_replica(position)
            elif position.preferred_until > self._loop.time() and node_id in cluster.brokers:
                return node_id
            position.preferred_replica = NO_NODE
        return cluster.leader(*position.topic_partition)

    def _leave_replica(self, position: PartitionPosition) -> None:
        """Fetch from the leader again, because the nearer replica hangs and the leader may have data (E54)."""
        logger.info(
            "%s: node %d does not answer: asking the leader", position.topic_partition, position.preferred_replica
        )
        position.preferred_replica = NO_NODE
        self._leaders_only_until = self._loop.time() + LEADERS_ONLY_S

    def _request(self, part: SessionRequest) -> FetchRequest:
        config = self._config
        topics: dict[str, FetchTopic] = {}
        for (name, _), partition in part.to_send.items():
            topics.setdefault(name, FetchTopic(topic=name, partitions=[])).partitions.append(partition)
        return FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=self._isolation_level,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=topic, partitions=[index]) for topic, index in part.to_forget
            ],
            rack_id="" if self._loop.time() < self._leaders_only_until else config.client_rack,
        )

    def _answered(self, node_id: int, asked: Asked, asked_at: float, future: asyncio.Future[FetchResponse]) -> None:
        self._busy.discard(node_id)
        # While this node was hanging, some partitions may have been fetched from another leader; ignore the response
        # for these partitions.
        asked = {partition: place for partition, place in asked.items() if place[0].fetching_from == node_id}
        for position, _, _ in asked.values():
            position.fetching_from = NO_NODE
        if self._is_closed:
            return
        session = self._sessions[node_id]
        error = future.exception()
        if error is not None:
            session.failed()
            self._failed(asked, error if isinstance(error, KafkaError) else KafkaError(ErrorCode.NONE, repr(error)))
            return
        response = future.result()
        if response.error_code:
            session.failed(response.error_code)
            self._failed(asked, error_for(response.error_code))
            return
        session.answered(response.session_id)
        self.counts.fetches += 1
        has_news = False
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                place = asked.get(partition)
                if place is not None:
                    if not data.error_code:
                        session.ends[partition] = LogEnds(
                            data.high_watermark, data.last_stable_offset, data.log_start_offset
                        )
                    has_news |= self._read_safely(node_id, *place, data)
        for partition, (position, _, _) in asked.items():
            ends = session.ends.get(partition)
            if ends is not None:
                position.high_watermark = ends.high_watermark
                position.last_stable_offset = ends.last_stable_offset
                position.log_start_offset = ends.log_start_offset
        self._slow_down(node_id, asked, is_soon=self._loop.time() - asked_at < self._soon_s)
        self.send_fetches()
        if has_news:
            self._wake()

    def _slow_down(self, node_id: int, asked: Asked, *, is_soon: bool) -> None:
        """Back off the next request if the response advanced no partition and came too early."""
        now = self._loop.time()
        for position, seeks, offset in asked.values():
            has_moved = position.seeks != seeks or position.fetch_offset != offset
            if has_moved or position.not_before > now or self._node_for(position) != node_id:
                return
        for position, _, _ in asked.values():
            if is_soon:
                position.back_off(now, self._config, self._rng)
            else:
                position.failures = 0

    def _read_safely(
        self, node_id: int, position: PartitionPosition, seeks: int, offset: int, data: PartitionData
    ) -> bool:
        """Add the response for one partition to its position; an exception that the response causes becomes an error of
        that partition only.
        """
        try:
            return self._read(node_id, position, seeks, offset, data)
        except Exception as error:
            logger.exception("%s: the answer to Fetch could not be read", position.topic_partition)
            self._failed_for_good(position, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
            return True

    def _read(self, node_id: int, position: PartitionPosition, seeks: int, offset: int, data: PartitionData) -> bool:
        """Add a response to a position. Returns whether poll has work to do."""
        if position.seeks != seeks or not self._positions.owns(position):
            return False  # ignore the response: the application has moved the position meanwhile
        if data.error_code:
            return self._refused(node_id, position, offset, data)
        if data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
            self._validator.diverged(position, EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
            return True
        if data.preferred_read_replica != NO_NODE:
            position.preferred_replica = data.preferred_read_replica
            position.preferred_until = self._loop.time() + self._config.metadata_max_age_ms / 1000
        if not data.records:
            return False
        aborted = None
        if self._isolation_level is IsolationLevel.READ_COMMITTED:
            aborted = AbortedTransactions(data.aborted_transactions or ())
        try:
            fetched = FetchedPartition(
                *position.topic_partition,
                offset,
                memoryview(data.records),
                check_crcs=self._config.check_crcs,
                aborted=aborted,
                max_decompressed_bytes=self._config.max_decompressed_bytes,
            )
        except KafkaError as error:
            self._failed_for_good(position, error)
        else:
            position.add(fetched)
            self.counts.bytes_fetched += fetched.size
        return True

    def _refused(self, node_id: int, position: PartitionPosition, offset: int, data: PartitionData) -> bool:
        topic_partition = position.topic_partition
        error = error_for(data.error_code)
        hint = data.current_leader
        if hint is not None and hint.leader_id >= 0:
            self._metadata.learn_leader(*topic_partition, hint.leader_id, hint.leader_epoch)
        if position.preferred_replica != NO_NODE:
            # Send the next Fetch to the leader, even if the offset is out of range. If the leader names the same
            # replica again, the next request waits for the backoff first.
            position.preferred_replica = NO_NODE
            position.back_off(self._loop.time(), self._config, self._rng)
            return False
        if isinstance(error, OffsetOutOfRange):
            self._out_of_range(position, offset)
            return True
        if error.retriable:
            if isinstance(error, StaleMetadata):
                self._metadata.request_refresh()
            logger.info("%s: fetching again after %s", topic_partition, error)
            # no backoff if the metadata already name another leader: the next Fetch is then sent to that leader
            # immediately
            if self._node_for(position) in (NO_NODE, node_id):
                position.back_off(self._loop.time(), self._config, self._rng)
            return False
        self._failed_for_good(position, type(error)(error.code, f"{topic_partition}: {error.message}"))
        return True

    def _out_of_range(self, position: PartitionPosition, offset: int) -> None:
        """Reset the position by auto.offset.reset; set an error if that setting is "none" or if resets do not help."""
        if position.fetched:
            return  # wait: poll returns the buffered records before it raises an error
        what = f"{position.topic_partition}: offset {offset} is out of range"
        if self._config.auto_offset_reset == "none":
            error = OffsetOutOfRange(ErrorCode.OFFSET_OUT_OF_RANGE, f"{what}, and auto.offset.reset is none")
            self._failed_for_good(position, error)
            return
        logger.info("%s: resetting", what)
        position.reset(None)
        position.back_off(self._loop.time(), self._config, self._rng)
        if position.failures % RESETS_IN_A_ROW == 0:
            position.error = OffsetOutOfRange(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{what}, after {position.failures} resets in a row"
            )

    def _failed_for_good(self, position: PartitionPosition, error: KafkaError) -> None:
        """Make poll raise the error; later polls retry after the backoff."""
        position.error = error
        position.back_off(self._loop.time(), self._config, self._rng)

    def _retry(self) -> None:
        self.send_fetches()
        self._wake()  # a waiting poll then also repeats due look-ups of offsets

    def _failed(self, asked: Asked, error: KafkaError) -> None:
        """Handle a failed request: retry after the backoff, or set an error for the application."""
        logger.info("fetch failed: %s", error)
        if error.retriable:
            if error.code not in SESSION_ERRORS:
                self._metadata.request_refresh()
            for position, _, _ in asked.values():
                position.back_off(self._loop.time(), self._config, self._rng)
                if position.preferred_replica != NO_NODE:
                    self._leave_replica(position)
            self.send_fetches()
            return
        for position, seeks, _ in asked.values():
            if position.seeks == seeks:
                self._failed_for_good(position, error)
        self._wake()
