"""Requests the end of leader epochs from leaders before fetching continues from an older epoch, and handles the
responses (KIP-320).

At most one request per node is outstanding. Buffered records are returned first, because they were in the log when they
were read.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from oncelog.cluster import NO_LEADER_EPOCH, NO_NODE, TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.connection.transport import BrokerConnection
from oncelog.consumer.positions import PartitionPosition, Positions
from oncelog.consumer.validation import (
    MAX_BEHIND,
    NO_END,
    EpochEnd,
    Standing,
    divergent_offset,
    is_truncated,
    standing,
    truncation_error,
)
from oncelog.errors import ErrorCode, KafkaError, error_for
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic


class Question(NamedTuple):
    """The part of an OffsetForLeaderEpoch request about one partition: the position when the request was sent, and the
    epoch of the leader to which it was sent.
    """

    position: PartitionPosition
    seeks: int
    offset: int
    epoch: int
    leader_epoch: int

    @property
    def is_current(self) -> bool:
        """Whether the position is unchanged; a hanging leader may respond after records were read from another
        leader."""
        position = self.position
        return (position.seeks, position.fetch_offset, position.fetch_epoch) == (self.seeks, self.offset, self.epoch)


Asked = dict[TopicPartition, Question]

CONSUMER: Final = -1
"""The replica id in requests of consumers; brokers then return no offset above the high watermark."""
FIRST_VERSION: Final = 3
"""The first version used, because older versions need a cluster permission (KIP-320); if a broker lacks this version,
the check is skipped, as in Kafka's client.
"""

logger = logging.getLogger(__name__)


class Validator:
    """Call `ensure_valid` before each Fetch; `on_done` is called when waiting positions may continue."""

    def __init__(
        self,
        positions: Positions,
        metadata: Metadata,
        pool: ConnectionPool,
        config: ConsumerConfig,
        rng: random.Random,
        *,
        on_done: Callable[[], None],
    ) -> None:
        self._positions = positions
        self._metadata = metadata
        self._pool = pool
        self._config = config
        self._rng = rng
        self._on_done = on_done
        self._loop = asyncio.get_running_loop()
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, list[PartitionPosition]] = {}

    def ensure_valid(self, position: PartitionPosition) -> bool:
        """Return whether the position may be fetched now. A position that must be validated is queued for `ask`."""
        name, index = position.topic_partition
        cluster = self._metadata.cluster
        known = cluster.partition(name, index)
        epoch = NO_LEADER_EPOCH if known is None else known.leader_epoch
        where = standing(position.fetch_epoch, position.agreed_epoch, epoch)
        if where is Standing.READ:
            return True
        if position.fetched:
            return False
        if where is Standing.BEHIND:
            self._is_behind(position, epoch)
            return False
        node_id = cluster.leader(name, index)
        if node_id == NO_NODE:
            self._metadata.request_refresh()
        elif node_id not in self._asking:
            self._waiting.setdefault(node_id, []).append(position)
        return False

    def ask(self) -> None:
        """Send OffsetForLeaderEpoch requests about the queued positions to their leaders."""
        waiting, self._waiting = self._waiting, {}
        for node_id, positions in waiting.items():
            task = self._asking[node_id] = self._loop.create_task(self._ask(node_id, positions))
            task.add_done_callback(partial(self._asked, node_id))

    def diverged(self, position: PartitionPosition, end: EpochEnd) -> None:
        """Handle a log that was truncated before the position, and diverges at `end`.

        With auto.offset.reset, the position returns to the offset of the divergence, as in Kafka's client, so no record
        of the log is skipped or read twice. If that offset is unknown, the position is reset by auto.offset.reset.
        """
        offset = position.fetch_offset
        if position.fetched or offset is None:
            return
        partition, divergent = position.topic_partition, divergent_offset(offset, end)
        if self._config.auto_offset_reset == "none":
            position.error = truncation_error(partition, offset, divergent)
        elif divergent is not None:
            logger.warning("%s: the log was truncated below %d: continuing at offset %d", partition, offset, divergent)
            position.seek(divergent, end.epoch)
        else:
            logger.warning(
                "%s: the log was truncated at an unknown offset below %d: resetting the position", partition, offset
            )
            position.reset(None)
        position.back_off(self._loop.time(), self._config, self._rng)

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_behind(self, position: PartitionPosition, epoch: int) -> None:
        """Handle metadata that name a leader with an older epoch than the batch before the position; this leader may
        serve truncated records.

        The leader is not queried until MAX_BEHIND metadata refreshes in a row have named it, which means that the topic
        was
        re-created.
        """
        position.behind += 1
        if position.behind > MAX_BEHIND:
            position.behind = 0
            if position.fetch_epoch_is_read:
                self.diverged(position, EpochEnd(NO_LEADER_EPOCH, NO_END))
            else:
                self._believe_leader(position, epoch)
            self._loop.call_soon(self._on_done)
            return
        logger.info(
            "%s: at leader epoch %d, but the metadata have %d: looking again",
            position.topic_partition,
            position.fetch_epoch,
            epoch,
        )
        self._metadata.request_refresh()
        position.back_off(self._loop.time(), self._config, self._rng)

    def _believe_leader(self, position: PartitionPosition, epoch: int) -> None:
        """Continue from the offset. The position's epoch was not read from a batch, so an older leader epoch does not
        prove a truncation.
        If the log ends before the offset, the Fetch fails."""
        logger.warning(
            "%s: the position came with leader epoch %d, but the leader stays at epoch %d: continuing to read "
            "at offset %d",
            position.topic_partition,
            position.fetch_epoch,
            epoch,
            position.fetch_offset,
        )
        position.agreed_epoch = epoch

    async def _ask(self, node_id: int, positions: list[PartitionPosition]) -> None:
        asked: Asked = {}
        cluster = self._metadata.cluster
        for position in positions:
            known = cluster.partition(*position.topic_partition)
            assert known is not None, "only a known leader is asked"
            assert position.fetch_offset is not None, "only known positions are validated"
            asked[position.topic_partition] = Question(
                position, position.seeks, position.fetch_offset, position.fetch_epoch, known.leader_epoch
            )
        try:
            connection = self._pool.ready(node_id) or await self._pool.connection(node_id)
            if not _can_ask(connection):
                for question in asked.values():
                    if self._is_current(question):
                        question.position.agreed_epoch = question.leader_epoch
                return
            response = await connection.send(_request(asked))
        except KafkaError as error:
            for question in asked.values():
                self._failed(question, error)
        else:
            self._read(asked, response)

    def _asked(self, node_id: int, task: asyncio.Task[None]) -> None:
        del self._asking[node_id]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error("the request for epoch end offsets to node %d failed", node_id, exc_info=error)
        self._on_done()

    def _read(self, asked: Asked, response: OffsetForLeaderEpochResponse) -> None:
        answers = {
            TopicPartition(topic.topic, answer.partition): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        for partition, question in asked.items():
            answer = answers.get(partition)
            if answer is None or answer.error_code:
                code = ErrorCode.LEADER_NOT_AVAILABLE if answer is None else answer.error_code
                self._failed(question, error_for(code))
            elif self._is_current(question):
                position, end = question.position, EpochEnd(answer.leader_epoch, answer.end_offset)
                is_read = position.fetch_epoch_is_read
                if is_truncated(question.offset, question.epoch, end, epoch_is_read=is_read):
                    self.diverged(position, end)
                else:
                    position.agreed_epoch = question.leader_epoch
                    position.failures = 0

    def _failed(self, question: Question, error: KafkaError) -> None:
        if not self._is_current(question):
            return
        position = question.position
        logger.info("%s: not validated: %s", position.topic_partition, error)
        if error.retriable:
            self._metadata.request_refresh()
        else:
            position.error = type(error)(error.code, f"{position.topic_partition}: {error.message}")
        position.back_off(self._loop.time(), self._config, self._rng)

    def _is_current(self, question: Question) -> bool:
        known = self._metadata.cluster.partition(*question.position.topic_partition)
        is_leader = known is not None and known.leader_epoch == question.leader_epoch
        return is_leader and question.is_current and self._positions.owns(question.position)


def _can_ask(connection: BrokerConnection) -> bool:
    versions = connection.versions
    assert versions is not None, "a connection that is open has negotiated"
    kind = OffsetForLeaderEpochRequest
    return versions.supports(kind) and versions.choose(kind) >= FIRST_VERSION


def _request(asked: Asked) -> OffsetForLeaderEpochRequest:
    topics: dict[str, Topic] = {}
    for (name, index), question in asked.items():
        wanted = Topic.OffsetForLeaderPartition(
            partition=index, current_leader_epoch=question.leader_epoch, leader_epoch=question.epoch
        )
        topics.setdefault(name, Topic(topic=name, partitions=[])).partitions.append(wanted)
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=list(topics.values()))
