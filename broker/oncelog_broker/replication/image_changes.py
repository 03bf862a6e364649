"""What the image has changed for this broker, carried out a few partitions at a time.

A topic may have thousands of partitions, and so may a broker whose leaders all move at once. The first few are dealt
with at once, the rest by and by, others having their turn in between. Until then a partition is what it was before, as
if the image had come a little later. What each is to become the image says when its turn comes, not when it was noted.
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
"""Dealt with before others have their turn: two or three milliseconds of making, leading or giving up."""

Turn = Callable[[], Awaitable[None]]
"""Returns when it is our turn again."""


class ImageChanges:
    """The partitions to be looked at. To be used on the event loop."""

    def __init__(
        self,
        look_at: Callable[[TopicPartition, bool], None],
        on_done: Callable[[Collection[str]], None],
        tasks: Tasks,
        turn: Turn,
    ) -> None:
        """`look_at(partition, is_gone)` makes of one what the image says; `is_gone`: the topic of that name was
        deleted since, and what is there now is another one. `on_done` is told the topics of those that came late."""
        self._look_at = look_at
        self._on_done = on_done
        self._tasks = tasks
        self._turn = turn
        self._noted: dict[TopicPartition, bool] = {}
        self._work: asyncio.Task[None] | None = None

    def note(self, partition: TopicPartition, *, is_gone: bool = False) -> None:
        """Look at it, in the order in which that is asked for."""
        self._noted[partition] = is_gone or self._noted.get(partition, False)

    def includes(self, topic: str | None) -> bool:
        """Whether some partition of `topic`, or of any (None), is to be looked at."""
        return bool(self._noted) if topic is None else any(name == topic for name, _ in self._noted)

    def begin(self) -> None:
        """Look at what is noted: at the first few now, unless others wait before them."""
        if self._work is not None and not self._work.done():
            return
        self._look_at_some()
        if self._noted:
            self._work = self._tasks.supervise("follow the image", self._look_at_the_rest)

    def look_now(self, partition: TopicPartition) -> None:
        """Look at it before the others, if it is noted."""
        is_gone = self._noted.pop(partition, None)
        if is_gone is not None:
            self._look(partition, is_gone)

    async def until_done(self) -> None:
        """Return when nothing is left."""
        while self._work is not None and not self._work.done():
            await asyncio.wait([self._work])

    async def _look_at_the_rest(self) -> None:
        while self._noted:
            await self._turn()
            self._on_done(self._look_at_some())

    def _look_at_some(self) -> set[str]:
        """The topics of those that were looked at."""
        some = [partition for partition, _ in zip(self._noted, range(PARTITIONS_AT_A_TIME), strict=False)]
        for partition in some:
            self.look_now(partition)
        return {topic for topic, _ in some}

    def _look(self, partition: TopicPartition, is_gone: bool) -> None:
        try:
            self._look_at(partition, is_gone)
        except Exception:  # the others come after it
            logger.exception("not as the image says", extra={"partition": "-".join(map(str, partition))})
