"""The topics of a subscription, by name or pattern, and the rebalance listener. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.cluster import Cluster, TopicPartition
from oncelog.names import check_topic

CALLED: Final = ("on_assigned", "on_revoked", "on_lost")
"""The names of the listener methods that the consumer calls."""
HOOK: Final = re.compile(r"on(_|[A-Z])")
"""The methods of listeners in other clients, such as on_partitions_revoked and onPartitionsRevoked, start with this
prefix.
"""


class RebalanceListener:
    """Base class of rebalance listeners, called inside `poll` (or `async for`, `unsubscribe`, `close`) when partitions
    are assigned or revoked.

    The methods of a listener may commit, seek, pause and request positions. Heartbeats continue during the methods, and
    max.poll.interval.ms applies. An exception in a method propagates from the poll that called the method. If a method
    was cancelled, the next poll calls the method again.

    A class with other methods named `on_...` is refused with TypeError, because those methods would never be called.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        _refuse_uncalled(cls, vars(cls))

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called after a rebalance with the newly assigned partitions, which may be none. With eager strategies all
        partitions are new."""

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Called before these partitions are revoked; processed records may still be committed."""

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Called when the partitions are already lost: other members may read them, and the group refuses commits for
        them. By
        default, `on_lost` calls `on_revoked`.
        """
        await self.on_revoked(partitions)


def check_listener(listener: RebalanceListener) -> None:
    """Raise TypeError for an object that lacks a required method or has an unknown method."""
    kind = type(listener)
    missing = [name for name in CALLED if not callable(getattr(listener, name, None))]
    if missing:
        raise TypeError(
            f"listener: {kind.__name__} has no {' and no '.join(missing)}; derive it from oncelog.RebalanceListener"
        )
    _refuse_uncalled(kind, dir(kind))


def _refuse_uncalled(kind: type, names: Iterable[str]) -> None:
    for name in names:
        if HOOK.match(name) and name not in CALLED and callable(getattr(kind, name)):
            meant = next((called for called in CALLED if called.removeprefix("on_") in name.lower()), None)
            raise TypeError(
                f"{kind.__name__}.{name} would never be called: a RebalanceListener has {', '.join(CALLED)}"
                + (f"; did you mean {meant}?" if meant else "")
            )


@dataclass(frozen=True, slots=True)
class Interest:
    """Topics by name, or by a pattern for their full name (then `names` is empty)."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    is_excluding_internal: bool = True

    @classmethod
    def of(
        cls, topics: Iterable[str] | None, pattern: str | re.Pattern[str] | None, exclude_internal: bool
    ) -> Interest:
        """Create an Interest. Raises ValueError unless exactly one of `topics` and `pattern` is given, InvalidTopic,
        and re.error for an invalid pattern.
        """
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
        """Return the topics to subscribe to. Named topics are included even if they do not exist."""
        if self.pattern is None:
            return self.names
        return frozenset(
            name
            for name, topic in cluster.topics.items()
            if self.pattern.fullmatch(name) and not (topic.is_internal and self.is_excluding_internal)
        )
