"""Applies a new cluster image to the partitions of this broker, in slices.

A topic may have thousands of partitions, and all leaders of a broker may change simultaneously. The first
PARTITIONS_AT_A_TIME changes are applied immediately. The remaining changes are applied in later slices, and other work
runs between two slices. A partition that is not processed yet remains unchanged, as if the cluster image had arrived
later. When the partition is processed, it gets its role from the newest cluster image, even if an older image queued
the change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.runtime.tasks import Tasks

logger = logging.getLogger(__name__)

PARTITIONS_AT_A_TIME: Final = 100
"""The number of partitions changed in one slice; creating, leading or resigning this many partitions takes two or three
milliseconds.
"""

Turn = Callable[[], Awaitable[None]]
"""Type of a function that pauses the work: its result must be awaited, and completes when the next slice may run."""


class ImageChanges:
    """The queue of partitions that the cluster image has changed. Use this class only on the event loop."""

    def __init__(
        self,
        look_at: Callable[[TopicPartition, bool], None],
        on_done: Callable[[Collection[str]], None],
        tasks: Tasks,
        turn: Turn,
    ) -> None:
        """`look_at(partition, is_gone)` applies the cluster image to one partition. `is_gone` means that the topic was
        deleted after the change was queued: if the image has a topic with this name, it is a new topic. `on_done` is
        called with the topics whose changes were applied in a later slice.
        """
        self._look_at = look_at
        self._on_done = on_done
        self._tasks = tasks
        self._turn = turn
        self._noted: dict[TopicPartition, bool] = {}
        self._work: asyncio.Task[None] | None = None

    def note(self, partition: TopicPartition, *, is_gone: bool = False) -> None:
        """Queue a partition that the cluster image has changed."""
        self._noted[partition] = is_gone or self._noted.get(partition, False)

    def includes(self, topic: str | None) -> bool:
        """Whether a change is queued for `topic`; with None, whether a change is queued for any topic."""
        return bool(self._noted) if topic is None else any(name == topic for name, _ in self._noted)

    def begin(self) -> None:
        """Apply the first slice now, unless a task is already working on the queue."""
        if self._work is not None and not self._work.done():
            return
        self._look_at_some()
        if self._noted:
            self._work = self._tasks.supervise("follow the image", self._look_at_the_rest)

    def look_now(self, partition: TopicPartition) -> None:
        """Apply the change of this partition now, if one is queued."""
        is_gone = self._noted.pop(partition, None)
        if is_gone is not None:
            self._look(partition, is_gone)

    async def until_done(self) -> None:
        """Wait until the queue is empty."""
        while self._work is not None and not self._work.done():
            await asyncio.wait([self._work])

    async def _look_at_the_rest(self) -> None:
        while self._noted:
            await self._turn()
            self._on_done(self._look_at_some())

    def _look_at_some(self) -> set[str]:
        """Apply one slice of the queued partition changes. Returns the names of the affected topics."""
        some = [partition for partition, _ in zip(self._noted, range(PARTITIONS_AT_A_TIME), strict=False)]
        for partition in some:
            self.look_now(partition)
        return {topic for topic, _ in some}

    def _look(self, partition: TopicPartition, is_gone: bool) -> None:
        try:
            self._look_at(partition, is_gone)
        except Exception:  # the error is only logged, so that the other changes are still applied
            logger.exception("partition change not applied", extra={"partition": "-".join(map(str, partition))})
