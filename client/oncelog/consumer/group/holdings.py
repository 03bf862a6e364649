"""The partitions that a group member owns. This module commits offsets and calls the listener when partitions are
revoked, lost or assigned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from oncelog.cluster import TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.consumer.group.commits import AutoCommit, Commits
from oncelog.consumer.positions import Positions
from oncelog.group_offsets import OffsetAndMetadata

Callback = Callable[[Collection[TopicPartition]], Awaitable[None]]


class Holdings:
    """The partitions that a group member owns, in the classic or the consumer protocol."""

    def __init__(self, config: ConsumerConfig, positions: Positions, commits: Commits, auto_commit: AutoCommit) -> None:
        self._config = config
        self._positions = positions
        self._commits = commits
        self._auto_commit = auto_commit

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_s: float) -> None:
        """Commit these offsets; without offsets, commit the positions. Raises the errors of `Commits.commit`."""
        consumed = self._positions.consumed()
        wanted = consumed if offsets is None else offsets
        if wanted:
            poll = self._positions.poll
            await self._commits.commit(wanted, timeout_s)
            self._positions.committed(wanted, poll)
            self._auto_commit.committed({at: consumed[at] for at in wanted if at in consumed})

    async def give_up(
        self, partitions: Collection[TopicPartition], callback: Callback, *, is_committing: bool = True
    ) -> None:
        """Commit the positions of these partitions, if auto-commit is on, call the callback, and drop the partitions.

        If the callback is cancelled, the partitions are kept. If the callback raises an exception, the partitions are
        dropped nevertheless.
        """
        if not partitions:
            return
        try:
            if is_committing:
                await self._auto_commit.flush(self._config.default_api_timeout_ms / 1000)
            await callback(tuple(sorted(partitions)))
        except asyncio.CancelledError:
            raise  # if cancelled, keep the partitions: the next poll revokes them again
        except BaseException:
            self._drop(partitions)
            raise
        self._drop(partitions)

    def take(self, assigned: Iterable[TopicPartition], added: Iterable[TopicPartition]) -> None:
        """Set the assignment: partitions of `assigned` that the member already has keep their positions, and `added`
        partitions are new.
        """
        owned = self._positions.assignment
        self._positions.assign([*(partition for partition in assigned if partition in owned), *added])
        self._auto_commit.forget(added)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        gone = set(partitions)
        self._positions.assign(
            [place.topic_partition for place in self._positions if place.topic_partition not in gone]
        )
