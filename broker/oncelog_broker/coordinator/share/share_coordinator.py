"""Runs a state machine for each partition of `__share_group_state` that this broker leads. This module also provides
the clock, responds to requests, and deletes the records that newer snapshots have replaced.

The topic is not compacted, because a logged change does not replace older changes. A share partition can be loaded from
its newest snapshot (record with its entire state) and the changes after it. So the coordinator deletes all records that
precede the newest snapshots of all share partitions. Share partitions that have not been written for a long time get a
new snapshot.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, TypeVar

from oncelog_broker.config import share_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.runtime import CoordinatorRuntime, StepFailed
from oncelog_broker.coordinator.shard import Shard
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import ShareState
from oncelog_broker.coordinator.share.share_state_machine import ShareStateMachine, StateWrite
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.topic_names import SHARE_GROUP_STATE
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.answers import Answer, settled
from oncelog_broker.runtime.host import Host
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

FORGET_RETRY_SECONDS: Final = 1.0
"""If share partitions of deleted topics cannot be removed, the broker tries again after this number of seconds."""
KEYS_PER_STEP: Final = 100
"""Number of share partitions whose snapshots are written together, before other work runs."""
R = TypeVar("R")


class ShareCoordinator:
    """Coordinates the share partitions whose state is in a partition of `__share_group_state` that this broker leads.
    The methods for requests return errors as KafkaError values and never raise KafkaError."""

    def __init__(self, config: BrokerConfig, replicas: Replicas, host: Host) -> None:
        self._image = ClusterImage("")
        self._prune_seconds = config[keys.SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS] / 1000
        self._clock = host.clock
        self._deadlines = host.deadlines
        self._commit_seconds = config[keys.SHARE_COORDINATOR_WRITE_TIMEOUT_MS] / 1000
        self._tasks = host.tasks
        self._slices = host.slices
        updates = config[keys.SHARE_SNAPSHOT_UPDATE_RECORDS]
        self.runtime = CoordinatorRuntime(
            SHARE_GROUP_STATE,
            lambda _: ShareStateMachine(host.clock.now_ms, self._exists, updates),
            replicas,
            host,
            commit_seconds=self._commit_seconds,
        )

    def start(self) -> None:
        """Start the background work, which ends with the broker's tasks."""
        self._tasks.every("old states of share partitions", self._prune_seconds, self.prune)

    def close(self) -> None:
        self.runtime.close()

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Apply a new cluster image. Call this method after `Replicas.on_image`."""
        self._image = new
        self.runtime.on_image(new)
        gone = frozenset(topic.topic_id for topic in new.topic_changes_since(old).removed)
        if gone and self.runtime.all_shards():
            self._tasks.supervise("share partitions of deleted topics", partial(self._forget_topics, gone))

    # --- methods that handle requests ---------------------------------------------------------------------------------

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Answer[KafkaError | None]:
        return self.runtime.write(
            key.text,
            lambda machine, waiter: machine.initialize(key, state_epoch, start_offset, waiter),
            _error,
        )

    def read(self, key: ShareKey, leader_epoch: int) -> Answer[KafkaError | ShareState]:
        return self.runtime.write(key.text, lambda machine, waiter: machine.read(key, leader_epoch, waiter), _error)

    def write(self, key: ShareKey, write: StateWrite) -> Answer[KafkaError | None]:
        return self.runtime.write(key.text, lambda machine, waiter: machine.write(key, write, waiter), _error)

    def delete(self, key: ShareKey) -> Answer[KafkaError | None]:
        return self.runtime.write(key.text, lambda machine, waiter: machine.delete(key, waiter), _error)

    def summary(self, key: ShareKey, leader_epoch: int) -> Answer[KafkaError | ShareState | None]:
        return self.runtime.read(key.text, lambda machine: machine.summary(key, leader_epoch), _error)

    def _exists(self, topic_id: bytes, partition: int) -> bool:
        topic = self._image.topic_by_id(topic_id)
        return topic is not None and partition in topic.partitions

    # --- methods that delete log records that newer snapshots replace -------------------------------------------------

    async def prune(self) -> None:
        """Write new snapshots of share partitions whose snapshots are old, and delete the records that are no longer
        needed."""
        pauses = self._slices.pauses()
        before_ms = self._clock.now_ms() - int(self._prune_seconds * 1000)
        for shard in self.runtime.loaded_shards():
            try:
                cold = shard.machine.cold(before_ms) if _has_more_than_snapshots(shard) else []
                for start in range(0, len(cold), KEYS_PER_STEP):
                    some = cold[start : start + KEYS_PER_STEP]
                    if self.runtime.may_step(shard):
                        self.runtime.step(shard, lambda machine, some=some: machine.write_again(some))  # type: ignore[misc]
                    await pauses.here()
            except KafkaError as error:
                logger.error(
                    "snapshots of share partitions could not be written",
                    extra={"partition": shard.partition.log.name, "reason": error},
                )
                continue
            await self._delete_old(shard)
            await pauses.here()

    async def _delete_old(self, shard: Shard[ShareStateMachine]) -> None:
        """Delete the records before the oldest needed snapshot, after all new snapshots are committed. Deleting records
        before this commit is not safe: if an uncommitted snapshot is lost at a leader change, the next leader needs the
        records that the snapshot replaces. If the commit takes too long, the records stay until the next pruning."""
        partition = shard.partition
        oldest, end = shard.machine.oldest_snapshot_offset(), partition.log.log_end_offset
        committed = no_longer_than(self._commit_seconds, partition.committed(end), self._deadlines)
        if await settled(committed) is not ErrorCode.NONE:
            return
        target = end if oldest is None else oldest
        if self.runtime.may_step(shard) and target > partition.log.log_start_offset:
            partition.delete_records_before(target)

    async def _forget_topics(self, topic_ids: frozenset[bytes]) -> None:
        """Remove the share partitions of deleted topics. A failure in one log is retried as long as this broker is the
        coordinator for that log.
        """
        left = self.runtime.all_shards()
        while left:
            left = [
                shard for shard in left if self.runtime.is_current(shard) and not await self._forgets(shard, topic_ids)
            ]
            if left:
                await asyncio.sleep(FORGET_RETRY_SECONDS)

    async def _forgets(self, shard: Shard[ShareStateMachine], topic_ids: frozenset[bytes]) -> bool:
        """Log tombstones for the share partitions of these topics. Returns True if this log needs no retry."""
        try:
            while self.runtime.may_step(shard):
                if not self.runtime.step(shard, lambda machine: machine.forget_topics(topic_ids)):
                    return True
                await asyncio.sleep(0)
        except StepFailed:
            return True  # the state machine raised an exception, which is logged; a retry would raise it again
        except KafkaError as error:
            logger.error("share partitions of deleted topics could not be removed", extra={"reason": error})
        return False


def _has_more_than_snapshots(shard: Shard[ShareStateMachine]) -> bool:
    """Whether the partition's log has more records than one snapshot for each share partition."""
    log = shard.partition.log
    return log.log_end_offset - log.log_start_offset > len(shard.machine.states)


def _error(error: KafkaError) -> KafkaError:
    return error.as_value()
