"""Background tasks for all logs: retention, flushing, checkpoints, expiry of producer ids.

Only the event loop changes logs. Work that waits for the disk (fsync, checkpoint files) runs in a thread, so that no
request waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.disk_troubles import DISK_TROUBLES, is_known_disk_error
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.slices import Pauses
from oncelog_broker.runtime.tasks import in_thread
from oncelog_broker.upkeep.flushing import flush
from oncelog_protocol.errors import KafkaError

logger = logging.getLogger(__name__)

FLUSH_CHECK_SECONDS: Final = 3.0
PURGE_SECONDS: Final = 1.0
TROUBLES_SECONDS: Final = 5.0
"""Seconds between two checks that log which disk failures continue and which have ended."""
ROOM_SECONDS: Final = 10.0
"""Seconds between two measurements of the free space in the data directories."""


class LogMaintenance:
    """The background tasks for all logs of one broker."""

    def __init__(self, config: Callable[[], BrokerConfig], logs: LogManager, replicas: Replicas, host: Host) -> None:
        """`config` returns the present settings; some may change while the broker runs."""
        self._config = config
        self._logs = logs
        self._replicas = replicas
        self._clock = host.clock
        self._tasks = host.tasks
        self._flushing: set[str] = set()
        """The paths of the data directories whose logs a task is flushing now."""

    def start(self) -> None:
        """Start the tasks; they end with the broker's tasks."""
        config, every = self._config(), self._tasks.every
        retention_seconds = config[keys.LOG_RETENTION_CHECK_INTERVAL_MS] / 1000
        every("log retention", retention_seconds, self.apply_retention)
        every("free deleted files", min(PURGE_SECONDS, retention_seconds), self.purge)
        every("log flush", FLUSH_CHECK_SECONDS, self.flush_due)
        every("room in data directories", ROOM_SECONDS, self.measure_room)
        every("troubles of disks", TROUBLES_SECONDS, self.report_troubles)
        every(
            "producer id expiration",
            config[keys.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS] / 1000,
            self.expire_producer_ids,
        )
        every(
            "recovery point checkpoint",
            config[keys.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS] / 1000,
            self.checkpoint_recovery_points,
        )
        every(
            "log start offset checkpoint",
            config[keys.LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS] / 1000,
            self.checkpoint_log_start_offsets,
        )
        every(
            "high watermark checkpoint",
            config[keys.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS] / 1000,
            self.checkpoint_high_watermarks,
        )

    async def apply_retention(self) -> None:
        """Delete segments that exceed retention.ms or retention.bytes."""
        now_ms, pauses = self._clock.now_ms(), self._pauses()
        for partition in list(self._replicas.partitions()):
            await pauses.here()
            if not partition.log.state.may_be_changed or not partition.log.config.deletes_by_retention:
                continue
            self._apply_retention(partition, now_ms)
            # Flush the log, because some segments may be deleted only after a flush.
            if partition.log.state.may_be_changed and partition.log.flusher.is_flush_due:
                await self._flush(partition.log, partition.log.segment_base_offsets[-1])
                self._apply_retention(partition, now_ms)

    def _apply_retention(self, partition: Partition, now_ms: int) -> None:
        try:
            partition.apply_retention(now_ms)
        except KafkaError as error:
            if not is_known_disk_error(error.__cause__):  # the log has already logged known disk errors
                logger.error("retention failed", extra={"partition": partition.log.name, "reason": error})

    async def purge(self) -> None:
        """Free files and directories whose file.delete.delay.ms has passed."""
        removal = self._logs.begin_purge(self._clock.monotonic())
        if removal is not None:
            await in_thread(removal.run)

    async def report_troubles(self) -> None:
        """Log the disk failures that continue, and the disk failures that are over."""
        DISK_TROUBLES.report()

    async def measure_room(self) -> None:
        """Measure the free space of each data directory, which decides where new logs are created."""
        await in_thread(self._logs.note_rooms)

    async def flush_due(self) -> None:
        """Begin to sync the logs that are due by flush.messages or flush.ms, and the closed segments of the other logs.
        Each data directory has a task of its own, so that a disk that hangs delays no log on another disk; in a
        directory whose task is still running, no second task begins.
        """
        due = _by_directory(self._logs.upkeep.logs_due_for_flush())
        closed = _by_directory(self._logs.upkeep.logs_with_closed_segments())
        for directory in sorted(due.keys() | closed.keys()):
            if directory not in self._flushing:
                self._flushing.add(directory)
                work = self._flush_all(directory, due.get(directory, []), closed.get(directory, []))
                self._tasks.spawn(f"flush logs in {directory}", work)

    async def _flush_all(self, directory: str, due: list[PartitionLog], closed: list[PartitionLog]) -> None:
        try:
            for log in due:
                if log.state.may_be_changed:  # check again: earlier flushes took time
                    await self._flush(log, log.log_end_offset)
            for log in closed:
                if log.state.may_be_changed and log.flusher.is_flush_due:
                    await self._flush(log, log.segment_base_offsets[-1])
        finally:
            self._flushing.discard(directory)

    async def _flush(self, log: PartitionLog, up_to: int) -> None:
        try:
            await flush(log, up_to)
        except KafkaError as error:
            if not is_known_disk_error(error.__cause__):  # the log has already logged known disk errors
                logger.error("flush failed", extra={"partition": log.name, "reason": error})

    async def expire_producer_ids(self) -> None:
        """Expire, in slices, the producer ids that wrote nothing for producer.id.expiration.ms."""
        now_ms, now, pauses = self._clock.now_ms(), self._clock.monotonic(), self._pauses()
        expiration_ms = self._config()[keys.PRODUCER_ID_EXPIRATION_MS]
        for log in self._logs.logs():
            await pauses.here()
            if not log.state.may_be_changed:
                continue
            for _ in log.producers.expire(log.log_end_offset, now_ms=now_ms, now=now, expiration_ms=expiration_ms):
                await asyncio.sleep(0)
                if log.state.is_truncating:
                    break

    def _pauses(self) -> Pauses:
        """Return pauses for tasks that visit all logs: other work runs after each slice."""
        return Pauses(self._clock.monotonic, partial(asyncio.sleep, 0))

    async def checkpoint_recovery_points(self) -> None:
        await asyncio.to_thread(self._logs.checkpoint_recovery_points)

    async def checkpoint_log_start_offsets(self) -> None:
        await asyncio.to_thread(self._logs.checkpoint_log_start_offsets)

    async def checkpoint_high_watermarks(self) -> None:
        await asyncio.to_thread(self._logs.begin_high_watermarks(self._replicas.high_watermarks()))


def _by_directory(logs: Iterable[PartitionLog]) -> dict[str, list[PartitionLog]]:
    """Group logs by the path of their data directory."""
    found: dict[str, list[PartitionLog]] = {}
    for log in logs:
        found.setdefault(os.path.dirname(log.state.directory), []).append(log)
    return found
