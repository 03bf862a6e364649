"""The loaded share partitions of this broker. This broker loads the share partitions of the partitions that it leads.

A share partition is loaded from its share coordinator at the first read in a leader epoch; loading fences previous
leaders. A share partition is dropped when this broker no longer leads the partition, when the state was initialized
again, or when it was not used for some minutes. A share partition is also dropped when the group's last session at this
broker has ended, because then an administrator may initialize the state again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from oncelog_broker.config import share_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import NOT_SET, ShareState
from oncelog_broker.coordinator.share.share_state_calls import ShareStateCalls
from oncelog_broker.coordinator.share.share_state_machine import StateWrite
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.answers import Answer, settled
from oncelog_broker.runtime.host import Host
from oncelog_broker.sharing.hosted_share_partition import HostedSharePartition, as_told
from oncelog_broker.sharing.share_counts import ShareCounts
from oncelog_broker.sharing.share_group_settings import EARLIEST, LATEST, ShareGroupSettings
from oncelog_broker.sharing.share_partition import SharePartition
from oncelog_broker.sharing.share_sessions import ShareSession, ShareSessions
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 300.0
"""Seconds without a request after which a share partition is dropped, if no member has acquired records of it."""


class _Loading:
    """A load of a share partition's state from the share coordinator, valid in one leader epoch of the partition.
    `answer` (the result, or a future of it) is set when loading begins.
    """

    __slots__ = ("answer", "leader_epoch", "partition")

    answer: asyncio.Future[HostedSharePartition | KafkaError]

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch

    def is_for(self, partition: Partition) -> bool:
        """Whether the loaded state will be valid for this partition in its present leader epoch."""
        return self.partition is partition and self.leader_epoch == partition.leader_epoch and not partition.is_resigned


class SharePartitions:
    """Loads and drops the share partitions of this broker. `config()` returns the broker's present configuration."""

    def __init__(self, config: Callable[[], BrokerConfig], calls: ShareStateCalls, host: Host) -> None:
        self._config = config
        self._calls = calls
        self._host = host
        self._image = ClusterImage("")
        self._groups: dict[str, dict[ShareKey, HostedSharePartition]] = {}
        self._loading: dict[ShareKey, _Loading] = {}
        self._settings: dict[str, tuple[object, object, ShareGroupSettings]] = {}
        """Maps each group id to the group's settings, and to the broker configuration and the overrides from which they
        were computed.
        """
        self.counts = ShareCounts()
        self.sessions = ShareSessions(config()[keys.SHARE_MAX_SHARE_SESSIONS])

    def start(self) -> None:
        """Start the background work, which ends with the broker's tasks."""
        self._host.tasks.every("idle share partitions", SWEEP_SECONDS, self.sweep)

    def on_image(self, image: ClusterImage) -> None:
        """Apply a new cluster image. Call this method after `Replicas.on_image`."""
        self._image = image
        self._drop_if(lambda hosted: not hosted.is_led)

    async def sweep(self) -> None:
        """Drop share partitions that this broker no longer leads, or that no member uses."""
        now = self._host.clock.monotonic()
        self._drop_if(
            lambda hosted: (
                not hosted.is_led
                or (hosted.is_retired and not hosted.is_writing)
                or (hosted.is_idle and now - hosted.last_used > IDLE_SECONDS)
            )
        )
        self._settings = {group_id: found for group_id, found in self._settings.items() if group_id in self._groups}

    def all(self) -> Iterator[HostedSharePartition]:
        for group in self._groups.values():
            yield from group.values()

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return the present settings of a group."""
        config, overrides = self._config(), self._image.config_of_group(group_id)
        known = self._settings.get(group_id)
        if known is not None and known[0] is config and known[1] is overrides:
            return known[2]
        settings = ShareGroupSettings.of(config, overrides)
        if group_id in self._groups:
            self._settings[group_id] = config, overrides, settings
        return settings

    # --- finding and loading share partitions

    def loaded(self, key: ShareKey) -> HostedSharePartition | None:
        """Return the share partition, if it is loaded and this broker still leads its partition; otherwise None."""
        hosted = self._groups.get(key.group_id, {}).get(key)
        return hosted if hosted is not None and hosted.is_current else None

    def find(self, key: ShareKey, partition: Partition) -> Answer[HostedSharePartition | KafkaError]:
        """Return the share partition for a partition that this broker leads. The share partition is loaded if
        necessary; if loading fails, the error for the member is returned.
        """
        hosted = self.loaded(key)
        if hosted is not None:
            return hosted
        loading = self._loading.get(key)
        if loading is None or not loading.is_for(partition):
            loading = self._loading[key] = _Loading(partition)
            loading.answer = self._host.tasks.answer(f"load share partition {key.text}", self._load(key, loading))
            loading.answer.add_done_callback(partial(self._on_loaded, key, loading))
        return asyncio.shield(loading.answer)

    def _on_loaded(self, key: ShareKey, loading: _Loading, _: object) -> None:
        if self._loading.get(key) is loading:
            del self._loading[key]

    async def _load(self, key: ShareKey, loading: _Loading) -> HostedSharePartition | KafkaError:
        partition, leader_epoch = loading.partition, loading.leader_epoch
        before = self._groups.get(key.group_id, {}).get(key)
        if before is not None:
            # Wait for a pending write of the earlier share partition. The write has the same epochs as this load, so
            # the share coordinator does not fence it: arriving after the read below, it could replace newer state.
            await before.written()
        state = await self._calls.read(key, leader_epoch)
        if isinstance(state, KafkaError):
            return as_told(state)
        try:
            share = await self._begin(key, partition, state)
        except ValueError as error:
            logger.error(
                "state of share partition could not be read", extra={"share_partition": key.text, "reason": error}
            )
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        except KafkaError as error:
            return error.as_value()
        if not loading.is_for(partition):
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if state.start_offset == NOT_SET or share.outbox:
            # The start offset and changes are written before the share partition is used. Without this write the next
            # leader would apply share.auto.offset.reset again. With "latest" it would skip all records that were
            # produced in the meantime. The next leader could also mistake new records for records that were lost with
            # the end of the log.
            start, count = share.kept_start_offset, share.kept_complete_count
            write = StateWrite(state.state_epoch, leader_epoch, start, count, share.take_outbox())
            kept = await self._calls.write(key, write)
            if kept is not None:
                return as_told(kept)
        if self._loading.get(key) is not loading or not loading.is_for(partition):
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        hosted = HostedSharePartition(
            key, partition, share, partial(self.settings_of, key.group_id), self._calls, self._host, self._drop
        )
        before = self._groups.setdefault(key.group_id, {}).get(key)
        if before is not None:
            before.drop()
        self._groups[key.group_id][key] = hosted
        return hosted

    async def _begin(self, key: ShareKey, partition: Partition, state: ShareState) -> SharePartition:
        """Create the share partition from its stored state. Raises ValueError for invalid batches, KafkaError if the
        log cannot be read."""
        start = state.start_offset
        if start == NOT_SET:
            start = await self._reset_offset(self.settings_of(key.group_id).offset_reset, partition)
        share = SharePartition(start, state.batches, state.state_epoch, self.counts)
        share.move_log_start(partition.log.log_start_offset)
        share.move_log_end(partition.log.log_end_offset)
        if share.outbox:
            logger.warning(
                "the acknowledged offsets of a share partition were beyond the end of the log",
                extra={"share_partition": key.text},
            )
        return share

    async def _reset_offset(self, strategy: str | int, partition: Partition) -> int:
        """Return the start offset according to share.auto.offset.reset, for a share partition that has no start offset
        yet. Raises NOT_LEADER_OR_FOLLOWER, so that the member asks again, while the high watermark of a new leader may
        be lower than that of the previous leader (KIP-207): the group would begin with older records.
        """
        log = partition.log
        if strategy == EARLIEST:
            return log.log_start_offset
        if not partition.high_watermark_caught_up:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the new leader's high watermark has not caught up yet")
        end = partition.high_watermark
        if strategy == LATEST:
            return end
        since = self._host.clock.now_ms() - int(strategy)
        found = await settled(self._host.slices.run(log.reader.offset_for_timestamp(since, upper_bound=end)))
        return end if found is None else found.offset

    # --- dropping share partitions

    def release(self, session: ShareSession) -> None:
        """Release the records of a member whose session has ended. After the group's last session, drop the group's
        share partitions."""
        is_last = not self.sessions.has_group(session.group_id)
        for hosted in list(self._groups.get(session.group_id, {}).values()):
            if hosted.is_current:
                hosted.release(session.member_id)
            if is_last:
                hosted.retire()
                if not hosted.is_writing:
                    self._drop(hosted)
        if is_last:
            self._loading = {key: found for key, found in self._loading.items() if key.group_id != session.group_id}

    def lose_connection(self, connection: object) -> None:
        """Close the sessions of a connection that has ended."""
        for session in self.sessions.lose(connection):
            self.release(session)

    def _drop_if(self, is_over: Callable[[HostedSharePartition], bool]) -> None:
        for hosted in [hosted for hosted in self.all() if is_over(hosted)]:
            self._drop(hosted)

    def _drop(self, hosted: HostedSharePartition) -> None:
        group = self._groups.get(hosted.key.group_id, {})
        if group.get(hosted.key) is hosted:
            del group[hosted.key]
            if not group:
                del self._groups[hosted.key.group_id]
        hosted.drop()
