"""Where partitions without a position begin: at what the group has committed, else by what was asked or the policy."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from oncelog.cluster import TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.consumer.positions import PartitionPosition, Positions
from oncelog.errors import ErrorCode, KafkaError, OffsetOutOfRange
from oncelog.group_offsets import OffsetAndMetadata
from oncelog.metadata.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetAndTimestamp

logger = logging.getLogger(__name__)

RESET_TIMESTAMPS: Final = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}

ListOffsets = Callable[
    [Mapping[TopicPartition, int]],
    Awaitable[tuple[dict[TopicPartition, OffsetAndTimestamp], dict[TopicPartition, KafkaError]]],
]
Committed = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata]]]


class Starts:
    """One look-up at a time, of all partitions that need one. `committed` is None without a group.

    What cannot be found is an error of the partition, for poll to raise; what may be found later is looked up again,
    after a backoff and a `refresh` of the metadata, while the others are read.
    """

    def __init__(
        self,
        positions: Positions,
        config: ConsumerConfig,
        *,
        list_offsets: ListOffsets,
        committed: Committed | None,
        refresh: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self._refresh = refresh
        self._positions = positions
        self._config = config
        self._list_offsets = list_offsets
        self._committed = committed
        self._wake = wake
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        self._task: asyncio.Task[None] | None = None

    def look_up(self) -> asyncio.Task[None] | None:
        """Begin where there is need; the look-up that is under way, if there is one."""
        wanted = self._positions.to_reset(asyncio.get_running_loop().time())
        if self._task is None and wanted:
            self._task = asyncio.ensure_future(self._look_up(wanted))
            self._task.add_done_callback(self._done)
        return self._task

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("looking up offsets failed", exc_info=task.exception())
        self._wake()

    async def _look_up(self, positions: list[PartitionPosition]) -> None:
        seeks = {position.topic_partition: (position, position.seeks) for position in positions}
        await self._start_from_committed(seeks)
        wanted: dict[TopicPartition, int] = {}
        for partition, (position, seeks_then) in seeks.items():
            if position.wants_committed or position.seeks != seeks_then or position.fetch_offset is not None:
                continue
            timestamp = position.reset_timestamp
            if timestamp is None:
                timestamp = RESET_TIMESTAMPS.get(self._config.auto_offset_reset)
            if timestamp is None:
                position.error = OffsetOutOfRange(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{partition} has no position, and auto.offset.reset is none: seek first",
                )
            else:
                wanted[partition] = timestamp
        try:
            found, errors = await self._list_offsets(wanted)
        except KafkaError as error:
            found, errors = {}, dict.fromkeys(wanted, error)
        for partition, (position, seeks_then) in seeks.items():
            if not self._is_current(position, seeks_then):
                continue
            if partition in found:
                position.fetch_offset = found[partition].offset
            elif partition in errors:
                self._failed(position, errors[partition])

    async def _start_from_committed(self, positions: Mapping[TopicPartition, tuple[PartitionPosition, int]]) -> None:
        """Those of which nothing is committed want it no longer."""
        wanted = {partition: place for partition, place in positions.items() if place[0].wants_committed}
        committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
        error: KafkaError | None = None
        if wanted and self._committed is not None:
            try:
                committed = await self._committed(wanted)
            except KafkaError as failure:
                error = failure
        for partition, (position, seeks_then) in wanted.items():
            if not self._is_current(position, seeks_then):
                continue
            if error is not None:
                self._failed(position, error)
            elif partition in committed:
                position.start_at(committed[partition].offset, committed[partition].leader_epoch)
            else:
                position.wants_committed = False
                position.fetch_offset = position.came_from

    def _failed(self, position: PartitionPosition, error: KafkaError) -> None:
        """Looked up again after the backoff; what does not pass by itself, once poll has raised it."""
        if error.retriable:
            self._refresh()
        else:
            position.error = error
        position.back_off(asyncio.get_running_loop().time(), self._config, self._rng)

    def _is_current(self, position: PartitionPosition, seeks_then: int) -> bool:
        """Whether the application has not moved elsewhere meanwhile."""
        return position.seeks == seeks_then and self._positions.owns(position)
