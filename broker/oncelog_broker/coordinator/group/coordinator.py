"""The group coordinator of this broker: runs the state machines of groups over `__consumer_offsets`, and the background
work for groups.

Request handlers call `write` and `read` of `runtime` with the id of the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.share.share_group import ShareGroup
from oncelog_broker.coordinator.group.share_group_states import ShareGroupStates
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_broker.coordinator.runtime import CoordinatorRuntime, StepFailed
from oncelog_broker.coordinator.shard import Shard
from oncelog_broker.coordinator.share.share_state_calls import ShareStateCalls
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.entropy import random_uuid
from oncelog_broker.runtime.host import Host
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.compression import Compression

logger = logging.getLogger(__name__)

FORGET_RETRY_SECONDS: Final = 0.1
"""If the offsets of deleted topics cannot be removed, the broker tries again after this number of seconds; each further
wait is twice as long.
"""
FORGET_MAX_RETRY_SECONDS: Final = 10.0


class _Before(NamedTuple):
    """The position of a `__consumer_offsets` log at the time when topics were deleted. Offsets that were committed
    below this position belong to the deleted topics."""

    log: PartitionLog
    generation: int
    log_end_offset: int


class GroupCoordinator:
    """Coordinates the groups in the partitions of `__consumer_offsets` that this broker leads."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: Replicas,
        share_states: ShareStateCalls,
        host: Host,
    ) -> None:
        settings = GroupConfig.of(config)
        self.config = settings
        self._image = ClusterImage("")
        self._topics = TopicView(self._image)
        self._check_seconds = config[keys.OFFSETS_RETENTION_CHECK_INTERVAL_MS] / 1000
        self._tasks = host.tasks
        self._slices = host.slices
        held = HeldBytes()
        self.runtime = CoordinatorRuntime(
            CONSUMER_OFFSETS,
            lambda _: GroupMachine(
                settings,
                host.clock.now_ms,
                new_id,
                held,
                lambda: self._topics,
                lambda group_id: self._image.config_of_group(group_id),
            ),
            replicas,
            host,
            Compression(config[keys.OFFSETS_TOPIC_COMPRESSION_CODEC]),
            on_end=lambda shard, end, epoch: self.share.begin(end),
            commit_seconds=config[keys.OFFSETS_COMMIT_TIMEOUT_MS] / 1000,
        )
        self.share = ShareGroupStates(self.runtime, share_states, host.tasks)

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Apply a new cluster image. Call this method after `Replicas.on_image`."""
        self._image, self._topics = new, self._topics.changed(new)
        self.runtime.on_image(new)
        gone = frozenset(topic.name for topic in new.topic_changes_since(old).removed)
        if gone:
            # The deletion of a topic is visible only in the difference of two cluster images, `old` and `new`. At this
            # time a shard (partition of `__consumer_offsets` with its state machine) may be unable to process requests.
            # So note all shards here, and log their tombstones later.
            logs = [shard.partition.log for shard in self.runtime.all_shards()]
            left = [_Before(log, log.trimmer.generation, log.log_end_offset) for log in logs]
            self._tasks.supervise("offsets of deleted topics", partial(self._forget_topics, gone, left))

    async def _forget_topics(self, topics: frozenset[str], left: Sequence[_Before]) -> None:
        """Log the tombstones of the offsets of deleted topics in each log as soon as possible, while this broker leads
        the partition."""
        pause = FORGET_RETRY_SECONDS
        while True:
            left = [before for before in left if not await self._has_forgotten(topics, before)]
            if not left:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, FORGET_MAX_RETRY_SECONDS)

    async def _has_forgotten(self, topics: frozenset[str], before: _Before) -> bool:
        """Log the tombstones for offsets of deleted topics in one log. Returns True if the tombstones are logged, or if
        this broker no longer has to log them."""
        pauses = self._slices.pauses()
        try:
            shard = self._shard_of(before)
            for group_id in [] if shard is None else shard.machine.ids():
                assert shard is not None
                await self._forget_of_group(shard, group_id, topics, before.log_end_offset)
                if isinstance(shard.machine.groups.get(group_id), ShareGroup) and self.runtime.may_step(shard):
                    self.runtime.step(shard, partial(_forget_states, group_id), group_id)
                await pauses.here()
            if shard is not None and self.runtime.may_step(shard):
                return True
        except KafkaError as error:
            logger.error(
                "committed offsets of deleted topics could not be removed",
                extra={"topics": sorted(topics), "reason": error},
            )
        return self._shard_of(before) is None

    async def _forget_of_group(
        self, shard: Shard[GroupMachine], group_id: str, topics: frozenset[str], before: int
    ) -> None:
        """Log the tombstones for one group. Raises KafkaError if the tombstones cannot be logged."""
        forget = partial(_forget, group_id, topics, before)
        try:
            while self.runtime.may_step(shard):
                if not self.runtime.step(shard, forget):
                    return
                await asyncio.sleep(0)
        except StepFailed:
            pass  # the state machine raised an exception, which is logged; a retry would raise it again

    def _shard_of(self, before: _Before) -> Shard[GroupMachine] | None:
        """Return the shard (state machine with its log) that now coordinates the partition of `before`; the log may
        have been loaded again since `before` was created. Return None if this broker no longer coordinates the groups
        of this partition. Also return None if the end of the log was truncated, which happens only after another broker
        has led the partition.
        """
        for shard in self.runtime.all_shards():
            if shard.partition.log is before.log and before.log.trimmer.generation == before.generation:
                return shard
        return None

    def start(self) -> None:
        """Start the background work, which ends with the broker's tasks."""
        self._tasks.every("expired offsets", self._check_seconds, self.expire_offsets)

    def close(self) -> None:
        """Reply to all waiting requests with an error."""
        self.runtime.close()

    async def expire_offsets(self) -> None:
        """Remove expired offsets, and groups that have no offsets left."""
        pauses = self._slices.pauses()
        for shard in self.runtime.loaded_shards():
            for group_id in shard.machine.ids():
                if not self.runtime.is_current(shard):
                    break
                await self._expire(shard, group_id)
                await pauses.here()

    async def _expire(self, shard: Shard[GroupMachine], group_id: str) -> None:
        try:
            while self.runtime.is_current(shard):
                if not self.runtime.step(shard, lambda machine: machine.expire(group_id), group_id):
                    break
                await asyncio.sleep(0)
        except KafkaError as error:
            logger.error("expired offsets could not be removed", extra={"group": group_id, "reason": error})


def _forget(group_id: str, topics: frozenset[str], before: int, machine: GroupMachine) -> Effects:
    return machine.forget_topics(group_id, topics, before)


def _forget_states(group_id: str, machine: GroupMachine) -> Effects:
    return machine.share.topics_deleted(group_id)


def new_id() -> str:
    """Return a random UUID in Java's notation."""
    text = random_uuid().hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
