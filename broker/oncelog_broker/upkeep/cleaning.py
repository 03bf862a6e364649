"""The log cleaner of a broker: compacts the logs in the background, one by one, and begins with the log that has the
largest dirty ratio.

Compaction runs on the event loop in slices, and pauses after each slice for as long as the slice took. Disk accesses
and large compressions or decompressions run in a worker thread. If the entire compaction ran in another thread,
requests would become slower: the event loop would wait for the interpreter lock after each of its system calls, several
times for each request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
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
from oncelog_broker.runtime.slices import Delays
from oncelog_broker.upkeep.flushing import flush
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.batch import CorruptBatch

if TYPE_CHECKING:
    from oncelog_broker.log.compaction.compaction import Compaction

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Maximum seconds until a change of log.cleaner.backoff.ms takes effect."""
PAUSE_PER_SLICE: Final = 1.0
"""Length of the pause after a slice, divided by the length of the slice; with a value of 1, the cleaner uses at most
half of the event loop's time.
"""


class LogCleaner:
    """Compacts those logs of this broker that are due for compaction."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        logs: LogManager,
        replicas: Replicas,
        host: Host,
    ) -> None:
        """`config` returns the present settings; some may change while the broker runs."""
        self._config = config
        self._logs = logs
        self._replicas = replicas
        self._clock = host.clock
        self._tasks = host.tasks
        self._slices = host.slices
        self._disk = host.disk
        self._uncleanable: set[PartitionLog] = set()
        """Corrupt logs, which the cleaner skips until the broker restarts."""
        self._finished = host.clock.monotonic()
        """Monotonic time, in seconds, of the startup or of the last check in which no log was due."""

    def start(self) -> None:
        """Start the cleaner, unless log.cleaner.enable is off; the cleaner ends with the broker's tasks."""
        if self._config()[keys.LOG_CLEANER_ENABLE]:
            self._tasks.every("log cleaner", self.pause_seconds, self.clean_after_backoff)

    def pause_seconds(self) -> float:
        """Return the seconds until the next check, according to the present settings."""
        backoff = self._config()[keys.LOG_CLEANER_BACKOFF_MS] / 1000
        return max(0.0, min(LOOK_SECONDS, self._finished + backoff - self._clock.monotonic()))

    async def clean_after_backoff(self) -> None:
        """Compact the logs that are due, unless log.cleaner.backoff.ms has not passed yet."""
        if self.pause_seconds() > 0:
            return
        try:
            await self.clean_due()
        finally:
            self._finished = self._clock.monotonic()

    async def clean_due(self) -> None:
        """Compact logs until no log is due; each time, choose the log with the largest dirty ratio. A log that failed
        is skipped until the next call.
        """
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
            if not log.config.is_compacted or not log.state.may_be_changed or log.state.is_copied:
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
        """Compact one log. Returns False if the compaction failed; a log line has the reason."""
        log, generation = partition.log, partition.log.trimmer.generation
        started = self._clock.monotonic()

        def is_as_it_was() -> bool:
            """Return False if the log was truncated during the flush, because the cleanable range is then invalid, and
            newer records may be unsynced.
            """
            return log.state.may_be_changed and not log.state.is_copied and log.trimmer.generation == generation

        try:
            # The flush makes all data durable that decides which records the compaction drops: transaction markers, the
            # producers' last batches, and the log start offset. Without
            # the flush, recovery would also treat a gap between segments above the recovery point as lost records.
            await flush(log)
            if not is_as_it_was():
                return False
            if log.state.cleaner_checkpoint is None:
                # Set the cleaner checkpoint before any change to the log: after a crash, a startup needs the checkpoint
                # to know that an empty segment was compacted and is not damaged.
                log.state.cleaner_checkpoint = cleanable.first_dirty
            await asyncio.to_thread(self._logs.checkpoint_before_compaction, log)
            if not is_as_it_was():
                return False
            compaction = self._compaction(partition, cleanable)
            throttle = Throttle(lambda: self._config()[keys.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND], self._clock)
            delays = CleaningDelays(lambda: throttle.pause_after(compaction.bytes_done))
            clean_up_to = await settled(self._slices.run(compaction.steps(), delays=delays))
            if clean_up_to is None or not is_as_it_was():
                return False
            log.state.cleaner_checkpoint = clean_up_to
            await asyncio.to_thread(self._logs.checkpoint_after_compaction, log)
        except CorruptBatch as error:
            if is_as_it_was():  # a truncation during the cleaning explains the error, too
                self._leave_alone(log, error)
            return False
        except (KafkaError, OSError) as error:
            if not log.is_offline:  # an offline log was deleted, or has logged its error
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
                "longest_slice_ms": round(delays.longest_seconds * 1000, 1),
            },
        )
        return True

    def _compaction(self, partition: Partition, cleanable: CleanableRange) -> Compaction:
        from oncelog_broker.log.compaction.compaction import Compaction  # `later_imports` has imported it in most cases

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
            "corrupt log not compacted; skipped until the broker restarts",
            extra={"partition": log.name, "reason": error},
        )
        self._uncleanable.add(log)


class Throttle:
    """Limits the bytes read and written per second, on average over one cleaning, or since the limit changed."""

    def __init__(self, bytes_per_second: Callable[[], float], clock: Clock) -> None:
        """`bytes_per_second` returns the present limit."""
        self._limit = bytes_per_second
        self._clock = clock
        self._bytes_per_second = bytes_per_second()
        self._started = clock.monotonic()
        self._bytes_before = 0

    def pause_after(self, total_bytes: int) -> float:
        """Return the seconds that the cleaner must wait so that it does not exceed the limit; the argument is the
        number of bytes processed since the start of the cleaning.
        """
        now, limit = self._clock.monotonic(), self._limit()
        if limit != self._bytes_per_second:
            self._bytes_per_second, self._started, self._bytes_before = limit, now, total_bytes
        return max(0.0, self._started + (total_bytes - self._bytes_before) / self._bytes_per_second - now)


class CleaningDelays(Delays):
    """Determines the pauses of the cleaner: after a slice, as long as the slice took; after a job, as long as the
    throttle requires.
    """

    def __init__(self, pause_seconds: Callable[[], float]) -> None:
        """`pause_seconds` returns the seconds to wait after a job."""
        self._pause_seconds = pause_seconds
        self.longest_seconds = 0.0
        """The length of the longest slice, in seconds."""

    def after_slice(self, seconds: float) -> float:
        self.longest_seconds = max(self.longest_seconds, seconds)
        return seconds * PAUSE_PER_SLICE

    def after_job(self) -> float:
        return self._pause_seconds()
