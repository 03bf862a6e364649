"""Looks up the start of partitions without a position: the committed offset of the group, otherwise the offset given by
seek or auto.offset.reset.

Look-ups at different brokers run concurrently, with one look-up per broker:

  committed offsets  sent to the group's coordinator, for all partitions that need a committed offset
  ListOffsets        sent to the leader of each partition
  Metadata           sent to any broker, for partitions without a known leader

A hanging broker therefore delays only its own partitions (E54). If a partition of a hanging broker gets another leader
meanwhile, the new leader is queried, and the late response of the previous leader is ignored.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Final

from oncelog.cluster import NO_NODE, TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.consumer.positions import PartitionPosition, Positions
from oncelog.errors import ErrorCode, KafkaError, OffsetOutOfRange, StaleMetadata
from oncelog.group_offsets import OffsetAndMetadata
from oncelog.metadata.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetAndTimestamp
from oncelog.metadata.metadata import Metadata

logger = logging.getLogger(__name__)

RESET_TIMESTAMPS: Final = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}

COORDINATOR: Final = -2
"""Pseudo node id for the group's coordinator, used beside the node ids of leaders; NO_NODE stands for a Metadata
request to any broker.
"""

UNANSWERED: Final = StaleMetadata(
    ErrorCode.LEADER_NOT_AVAILABLE, "the response to ListOffsets does not contain the partition"
)

ListOffsets = Callable[
    [int, Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, OffsetAndTimestamp | KafkaError]]
]
"""(node id of the leader, timestamp of each partition) -> the offset or the error of each partition. The function may
raise one error for all partitions.
"""
Committed = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata]]]
Sought = dict[TopicPartition, tuple[PartitionPosition, int]]
"""One request for start offsets: the positions that it concerns, each with the value of its counter `seeks` when the
request was sent.
"""


class OffsetReset:
    """Looks up the positions of all partitions without a position. `committed`, the function that requests committed
    offsets, is None for a consumer without a group.

    If an offset cannot be found, the partition gets an error that poll raises; retriable failures are repeated after a
    backoff and a metadata refresh. `wake` is called after each look-up.
    """

    def __init__(
        self,
        positions: Positions,
        metadata: Metadata,
        config: ConsumerConfig,
        *,
        list_offsets: ListOffsets,
        committed: Committed | None,
        wake: Callable[[], None],
    ) -> None:
        self._positions = positions
        self._metadata = metadata
        self._config = config
        self._list_offsets = list_offsets
        self._committed = committed
        self._wake = wake
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def look_up(self) -> None:
        """Start a look-up at each broker that leads partitions to look up and has no outstanding look-up."""
        wanted = self._positions.to_reset(asyncio.get_running_loop().time())
        if not wanted:
            return
        by_node: dict[int, Sought] = {}
        for position in wanted:
            if not self._needs_broker(position):
                continue
            node_id = self._node_for(position)
            if node_id not in self._tasks:
                by_node.setdefault(node_id, {})[position.topic_partition] = (position, position.seeks)
        for node_id, sought in by_node.items():
            for position, _ in sought.values():
                position.starting_from = node_id
            if node_id == COORDINATOR:
                self._begin(node_id, self._find_committed(sought))
            elif node_id == NO_NODE:
                self._begin(node_id, self._find_leaders(sought))
            else:
                self._begin(node_id, self._find_offsets(node_id, sought))

    def task_for(self, position: PartitionPosition) -> asyncio.Task[None] | None:
        """Return the outstanding look-up at the broker that knows the start of `position`."""
        return self._tasks.get(self._node_for(position))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _needs_broker(self, position: PartitionPosition) -> bool:
        """Return whether the start of `position` requires a request to a broker; otherwise set its offset or error
        immediately.
        """
        if position.wants_committed and self._committed is None:
            position.has_no_committed()
        if position.wants_committed:
            return True
        if position.fetch_offset is None and self._timestamp_for(position) is None:
            position.error = OffsetOutOfRange(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{position.topic_partition} has no position, and auto.offset.reset is none: seek first",
            )
        return position.fetch_offset is None and position.error is None

    def _timestamp_for(self, position: PartitionPosition) -> int | None:
        """Return the timestamp for ListOffsets; None if neither the application nor auto.offset.reset determines a
        timestamp.
        """
        if position.reset_timestamp is not None:
            return position.reset_timestamp
        return RESET_TIMESTAMPS.get(self._config.auto_offset_reset)

    def _node_for(self, position: PartitionPosition) -> int:
        return COORDINATOR if position.wants_committed else self._metadata.cluster.leader(*position.topic_partition)

    def _begin(self, node_id: int, work: Coroutine[None, None, None]) -> None:
        task = self._tasks[node_id] = asyncio.ensure_future(work)
        task.add_done_callback(partial(self._done, node_id))

    def _done(self, node_id: int, task: asyncio.Task[None]) -> None:
        del self._tasks[node_id]
        if task.cancelled():
            return
        if task.exception() is not None:
            logger.error("looking up the positions of partitions failed", exc_info=task.exception())
        self._wake()

    async def _find_committed(self, sought: Sought) -> None:
        assert self._committed is not None
        try:
            committed = await self._committed(sought)
        except KafkaError as error:
            self._all_failed(COORDINATOR, sought, error)
            return
        for partition, (position, seeks) in sought.items():
            if not self._is_current(COORDINATOR, position, seeks):
                continue
            if partition in committed:
                position.start_at(committed[partition].offset, committed[partition].leader_epoch)
            else:
                position.has_no_committed()
        # without waiting for the next poll, look up the log's start or end for partitions without a committed offset
        self.look_up()

    async def _find_leaders(self, sought: Sought) -> None:
        """Refresh the metadata once; partitions still without a leader then back off."""
        if any(self._metadata.cluster.partition(*partition) is None for partition in sought):
            try:
                await self._metadata.try_refresh()
            except KafkaError as error:
                self._all_failed(NO_NODE, sought, error)
                return
        cluster = self._metadata.cluster
        for partition, (position, seeks) in sought.items():
            if cluster.leader(*partition) == NO_NODE and self._is_current(NO_NODE, position, seeks):
                code = ErrorCode.LEADER_NOT_AVAILABLE
                if cluster.partition(*partition) is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self._failed(position, StaleMetadata(code, f"{partition}: {code.meaning}"))
        self.look_up()

    async def _find_offsets(self, node_id: int, sought: Sought) -> None:
        timestamps = {partition: self._timestamp_for(position) for partition, (position, _) in sought.items()}
        wanted = {partition: timestamp for partition, timestamp in timestamps.items() if timestamp is not None}
        try:
            found = await self._list_offsets(node_id, wanted)
        except KafkaError as error:
            self._all_failed(node_id, sought, error)
            return
        for partition, (position, seeks) in sought.items():
            answer = found.get(partition, UNANSWERED)
            if not self._is_current(node_id, position, seeks):
                continue
            if isinstance(answer, KafkaError):
                self._failed(position, answer)
            else:
                position.fetch_offset = answer.offset

    def _all_failed(self, node_id: int, sought: Sought, error: KafkaError) -> None:
        for position, seeks in sought.values():
            if self._is_current(node_id, position, seeks):
                self._failed(position, error)

    def _failed(self, position: PartitionPosition, error: KafkaError) -> None:
        """Back off; if the error is not retriable, poll raises it first."""
        if error.retriable:
            self._metadata.request_refresh()
        else:
            position.error = error
        position.back_off(asyncio.get_running_loop().time(), self._config, self._rng)

    def _is_current(self, node_id: int, position: PartitionPosition, seeks: int) -> bool:
        """Return whether the position has neither moved nor been looked up at another broker meanwhile."""
        return position.seeks == seeks and position.starting_from == node_id and self._positions.owns(position)
