"""Which topics the application wants, by name or by pattern, and what it wants to know about rebalances. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from oncelog.cluster import Cluster, TopicPartition
from oncelog.names import check_topic


class RebalanceListener:
    """Told inside `poll` (or `async for`, `unsubscribe`, `close`) of what comes and goes; nothing is read meanwhile.

    They may commit, seek, pause and ask for positions. Heartbeats go on, but max.poll.interval.ms counts on as well.
    What one raises comes out of the poll that called it; one that is cancelled is called again by the next poll.
    """

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """After a rebalance: what is new, which may be nothing. The eager strategies make everything new."""

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Before these are given up: what was done with their records may still be committed."""

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """These are gone already, and others may read them: commits would be refused. If not overridden: on_revoked."""
        await self.on_revoked(partitions)


@dataclass(frozen=True, slots=True)
class Interest:
    """Topics by name, or (then `names` is empty) those whose whole name matches `pattern`."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    is_excluding_internal: bool = True

    @classmethod
    def of(
        cls, topics: Iterable[str] | None, pattern: str | re.Pattern[str] | None, exclude_internal: bool
    ) -> Interest:
        """Raises ValueError unless there is exactly one of the two, InvalidTopic, and re.error for no pattern."""
        if isinstance(topics, str):
            raise ValueError(f"topics={topics!r}: must be several names, not one")
        if (topics is None) == (pattern is None):
            raise ValueError("either topics or a pattern is needed, and not both")
        if topics is not None and not (topics := frozenset(topics)):
            raise ValueError("topics: must not be empty; unsubscribe ends a subscription")
        for name in topics or ():
            check_topic(name)
        if pattern is not None:
            return cls(pattern=re.compile(pattern), is_excluding_internal=exclude_internal)
        return cls(names=frozenset(topics or ()))

    def __bool__(self) -> bool:
        return bool(self.names) or self.pattern is not None

    def topics(self, cluster: Cluster) -> frozenset[str]:
        """What to subscribe to. Names count whether the topics exist or not."""
        if self.pattern is None:
            return self.names
        return frozenset(
            name
            for name, topic in cluster.topics.items()
            if self.pattern.fullmatch(name) and not (topic.is_internal and self.is_excluding_internal)
        )
