"""Creates the internal topics of streams groups (KIP-1071): repartition and changelog topics that members need.

A heartbeat does not wait for its topics: the first response has the status MISSING_INTERNAL_TOPICS, and later responses
have the member's tasks, or the error of the creation. No topic is created by two tasks at the same time. After a failed
creation, the same topic is created again only when the stored error has expired.

Kafka 4.3's counterpart is AutoTopicCreationManager.createStreamsInternalTopics.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final, TypeAlias

from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.light_classes import NamedTuple

if TYPE_CHECKING:
    from oncelog_broker.coordinator.group.streams.configured_topology import WantedTopic

logger = logging.getLogger(__name__)

MAX_ERRORS: Final = 1_000
"""Maximum number of stored errors, since any client can cause errors; the oldest error is dropped."""
MAX_UNDER_WAY: Final = 1_000
"""Maximum number of simultaneous creations; the remaining topics are created by a later heartbeat."""

Create: TypeAlias = "Callable[[WantedTopic], Awaitable[None]]"
"""Type of a function that creates a topic, and waits until the topic can be used. An existing topic is no error. The
function raises KafkaError.
"""


class _Failed(NamedTuple):
    """The error of a failed creation of a topic, which is kept until it expires."""

    reason: str
    until: float
    """The monotonic time, in seconds, when the error expires."""


class InternalTopicCreations:
    """The creations of internal topics by one broker."""

    def __init__(self, create: Create, clock: Clock, tasks: Tasks) -> None:
        self._create = create
        self._clock = clock
        self._tasks = tasks
        self._under_way: set[str] = set()
        self._failed: OrderedDict[str, _Failed] = OrderedDict()
        """Maps topics to their last errors, the newest error last."""

    def wanted(self, topics: Collection[WantedTopic]) -> list[WantedTopic]:
        """Return those of the `topics` whose creation may begin now."""
        now = self._clock.monotonic()
        new = [topic for topic in topics if topic.name not in self._under_way and self._error(topic.name, now) is None]
        return new[: MAX_UNDER_WAY - len(self._under_way)]

    def begin(self, topics: Collection[WantedTopic], keep_errors_seconds: float) -> asyncio.Task[None]:
        """Create topics that `wanted` has returned, in a background task. Errors expire after `keep_errors_seconds`.
        Returns this background task.
        """
        self._under_way.update(topic.name for topic in topics)
        return self._tasks.spawn("internal topics of a streams group", self._create_each(topics, keep_errors_seconds))

    async def _create_each(self, topics: Collection[WantedTopic], keep_errors_seconds: float) -> None:
        try:
            for topic in topics:
                await self._create_one(topic, keep_errors_seconds)
        finally:
            self._under_way.difference_update(topic.name for topic in topics)

    async def _create_one(self, topic: WantedTopic, keep_errors_seconds: float) -> None:
        try:
            await self._create(topic)
            self._failed.pop(topic.name, None)
        except KafkaError as error:
            reason = error.message or error.code.meaning
            logger.warning("internal topic not created", extra={"topic": topic.name, "reason": reason})
            self._failed.pop(topic.name, None)
            self._failed[topic.name] = _Failed(reason, self._clock.monotonic() + keep_errors_seconds)
            while len(self._failed) > MAX_ERRORS:
                self._failed.popitem(last=False)
        self._under_way.discard(topic.name)

    def errors_of(self, topics: Collection[WantedTopic]) -> dict[str, str]:
        """Return the errors of these topics that have not expired, by topic."""
        now = self._clock.monotonic()
        errors = {topic.name: self._error(topic.name, now) for topic in topics}
        return {name: error for name, error in errors.items() if error is not None}

    def _error(self, name: str, now: float) -> str | None:
        failed = self._failed.get(name)
        if failed is None or now < failed.until:
            return None if failed is None else failed.reason
        del self._failed[name]
        return None
