"""The log cleaner of a broker: compacts one log after another in the background, the dirtiest first.

The work is done on the event loop, in slices, and the loop is left alone for as long as a slice took; waiting for the
disk and large (de)compressions are done in a worker thread. Computing in a thread would be worse for everybody else:
each time the loop came back from the kernel it would wait for the interpreter's lock, several times for each request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.log.compaction.compaction import Compaction
from oncelog_broker.log.compaction.due import CleanableRange, dirtiest
from oncelog_broker.log.compaction.segment_summary import cleanable_range_of
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.slices import Pace
from oncelog_broker.upkeep.flushing import flush
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.batch import CorruptBatch

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How soon a shorter log.cleaner.backoff.ms holds, however long the cleaner was to wait before."""
PAUSE_PER_SLICE: Final = 1.0
"""Pause after a slice, as a part of what it took: at 1 the cleaner takes half the loop's time at most."""


class LogCleaner:
    """Compacts the logs that this broker hosts, when they are due."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        logs: LogManager,
        replicas: Replicas,
        host: Host,
    ) -> None:
        """`config` gives the settings as they are now: some may change while the broker runs."""
        self._config = config
        self._logs = logs
        self._replicas = replicas
        self._clock = host.clock
        self._tasks = host.tasks
        self._slices = host.slices
        self._disk = host.disk
        self._uncleanable: set[PartitionLog] = set()
        """Corrupt logs: left alone until the broker starts again."""
        self._finished = host.clock.monotonic()
        """When it last found that no log was due, or was made."""

    def start(self) -> None:
        """Start it, unless log.cleaner.enable is off; it ends with the broker's tasks."""
        if self._config()[keys.LOG_CLEANER_ENABLE]:
            self._tasks.every("log cleaner", self.pause_seconds, self.clean_after_backoff)

    def pause_seconds(self) -> float:
        """Until the next look, by the settings as they are now."""
        backoff = self._config()[keys.LOG_CLEANER_BACKOFF_MS] / 1000
        return max(0.0, min(LOOK_SECONDS, self._finished + backoff - self._clock.monotonic()))

    async def clean_after_backoff(self) -> None:
        """Compact what is due, unless log.cleaner.backoff.ms has not passed yet."""
        if self.pause_seconds() > 0:
            return
        try:
            await self.clean_due()
        finally:
            self._finished = self._clock.monotonic()

    async def clean_due(self) -> None:
        """Compact log after log until none is due. One that fails is tried again next time."""
        failed: set[PartitionLog] = set()
        while True:
            found = await self._dirtiest(failed)
            if found is None:
                return
            partition, cleanable = found
            if not await self._clean(partition, cleanable):
                failed.add(partition.log)

    async def _dirtiest(self, without: set[PartitionLog]) -> tuple[Partition, CleanableRange] | None:
        now_ms, pauses = self._clock.now_ms(), self._slices.pauses()
        candidates: list[tuple[tuple[Partition, CleanableRange], CleanableRange, LogConfig]] = []
        for partition in list(self._replicas.partitions()):
            log = partition.log
            await pauses.here()
            if not log.config.is_compacted or not log.state.may_be_changed:
                continue
            if log in self._uncleanable or log in without:
                continue
            try:
                cleanable = cleanable_range_of(log, upper_bound=partition.last_stable_offset, now_ms=now_ms)
            except (CorruptBatch, OSError) as error:
                self._leave_alone(log, error)
                continue
            candidates.append(((partition, cleanable), cleanable, log.config))
        return dirtiest(candidates)

    async def _clean(self, partition: Partition, cleanable: CleanableRange) -> bool:
        """Compact one log. False if that failed; the log line says why."""
        log, generation = partition.log, partition.log.trimmer.generation
        started = self._clock.monotonic()

        def is_as_it_was() -> bool:
            """Else its end was cut: what is cleanable says nothing, and what came since may not be synced."""
            return log.state.may_be_changed and log.trimmer.generation == generation

        try:
            # What a compaction goes by must outlive it: the markers that decided what is dropped, and the producers'
            # last batches, which a snapshot tells better than what it leaves, and the log start, below which no key is
            # compared. And recovery takes a hole behind the recovery point for a loss.
            await flush(log)
            if not is_as_it_was():
                return False
            if log.state.cleaner_checkpoint is None:
                # Before anything changes: after a crash, it tells segments that were emptied from damaged ones.
                log.state.cleaner_checkpoint = cleanable.first_dirty
            await asyncio.to_thread(self._logs.checkpoint_before_compaction, log)
            if not is_as_it_was():
                return False
            compaction = self._compaction(partition, cleanable)
            throttle = Throttle(lambda: self._config()[keys.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND], self._clock)
            pace = CleaningPace(lambda: throttle.pause_after(compaction.bytes_done))
            clean_up_to = await settled(self._slices.run(compaction.steps(), pace=pace))
            if clean_up_to is None or not is_as_it_was():
                return False
            log.state.cleaner_checkpoint = clean_up_to
            await asyncio.to_thread(self._logs.checkpoint_after_compaction, log)
        except CorruptBatch as error:
            if is_as_it_was():  # else what was read was being cut, or is another log's
                self._leave_alone(log, error)
            return False
        except (KafkaError, OSError) as error:
            if not log.is_offline:  # deleted or failed meanwhile: that has a log line already
                logger.error("compaction failed", extra={"partition": log.name, "reason": error})
            return False
        stats = compaction.stats
        logger.info(
            "compacted",
            extra={
                "partition": log.name,
                "offsets": f"{cleanable.first_dirty} to {clean_up_to}",
                "bytes_read": stats.bytes_read,
                "bytes_written": stats.bytes_written,
                "records_dropped": stats.records_dropped,
                "keyless_records": stats.keyless_records,
                "kept_for_replicas": stats.kept_for_replicas,
                "seconds": round(self._clock.monotonic() - started, 3),
                "longest_slice_ms": round(pace.longest_seconds * 1000, 1),
            },
        )
        return True

    def _compaction(self, partition: Partition, cleanable: CleanableRange) -> Compaction:
        log, config = partition.log, self._config()
        return Compaction(
            log,
            disk=self._disk,
            first_dirty=cleanable.first_dirty,
            end=min(cleanable.end, log.producers.saved_up_to),
            now_ms=self._clock.now_ms(),
            offset_map_bytes=config[keys.LOG_CLEANER_DEDUPE_BUFFER_SIZE],
            producer_id_expiration_ms=config[keys.PRODUCER_ID_EXPIRATION_MS],
            all_replicas_have_it=self._replicas.all_are_in_sync(partition),
        )

    def _leave_alone(self, log: PartitionLog, error: Exception) -> None:
        logger.error(
            "cannot be compacted, and will not be tried again until the next start",
            extra={"partition": log.name, "reason": error},
        )
        self._uncleanable.add(log)


class Throttle:
    """Keeps reading and writing below so many bytes per second, over the whole of a cleaning, or since the limit was
    changed during it."""

    def __init__(self, bytes_per_second: Callable[[], float], clock: Clock) -> None:
        """`bytes_per_second` gives the limit as it is now."""
        self._limit = bytes_per_second
        self._clock = clock
        self._bytes_per_second = bytes_per_second()
        self._started = clock.monotonic()
        self._bytes_before = 0

    def pause_after(self, total_bytes: int) -> float:
        """How many seconds to wait, now that so many bytes are done since the start."""
        now, limit = self._clock.monotonic(), self._limit()
        if limit != self._bytes_per_second:
            self._bytes_per_second, self._started, self._bytes_before = limit, now, total_bytes
        return max(0.0, self._started + (total_bytes - self._bytes_before) / self._bytes_per_second - now)


class CleaningPace(Pace):
    """Leaves the loop alone for as long as a slice took, and keeps within the limit of bytes after a job."""

    def __init__(self, pause_seconds: Callable[[], float]) -> None:
        """`pause_seconds` is asked after each job how long to wait."""
        self._pause_seconds = pause_seconds
        self.longest_seconds = 0.0
        """The longest that the event loop was kept, by the clock on the wall."""

    def after_slice(self, seconds: float) -> float:
        self.longest_seconds = max(self.longest_seconds, seconds)
        return seconds * PAUSE_PER_SLICE

    def after_job(self) -> float:
        return self._pause_seconds()
