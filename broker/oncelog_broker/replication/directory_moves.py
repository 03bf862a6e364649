"""Moves logs between the data directories of this broker, while the logs are in use (KIP-113).

One task for each move copies the log in small parts, in a worker thread. Between two parts the task pauses, to respect
replica.alter.log.dirs.io.max.bytes.per.second. When at most LAST_BYTES are left to copy, the log is paused for some
milliseconds, until `FutureLog.replace` has replaced the log. During the pause, requests for the partition get
NOT_LEADER_OR_FOLLOWER, which clients retry. The partition keeps its role, leader epoch, high watermark and ISR.

If records of the log are truncated during the copy, the copy restarts. A log that is being copied is not compacted. A
move is cancelled when the partition is deleted, its log fails, a client moves the log back, or the new data directory
fails or is full. A restart of the broker also cancels all moves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.future_log import (
    CopyOutdated,
    FutureLog,
    LastState,
    MoveFailed,
    SegmentPart,
    future_directory_name,
)
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.tasks import in_thread
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)

MOVES_AT_A_TIME: Final = 16
"""Maximum number of logs that are copied at the same time; further moves wait."""
BYTES_AT_A_TIME: Final = 1024 * 1024
"""Maximum number of bytes that one job of the worker thread copies."""
LAST_BYTES: Final = 256 * 1024
"""The log is paused when at most this many bytes are left to copy."""
MAX_OUTDATED: Final = 5
"""Maximum number of consecutive attempts to read the same records; if all attempts fail, the log counts as damaged."""
WAIT_SECONDS: Final = 0.05
"""Seconds between two checks whether the truncation of a log has ended."""
LOOK_SECONDS: Final = 1.0
"""Maximum seconds that a throttled move sleeps before it checks again whether it was cancelled."""
THREAD_NAME: Final = "directory moves"
UUID_CHARS: Final = 32


class FutureReplica(NamedTuple):
    """The description of a future log (the copy of a log in another data directory) for DescribeLogDirs."""

    key: TopicPartition
    directory: str
    size_bytes: int
    lag: int
    """Log end offset of the original log minus log end offset of the future log."""


class _Ended(Exception):
    """The move cannot, or must not, be continued."""


class _Move:
    """The move of one partition's log to another data directory."""

    def __init__(self, partition: Partition, path: str) -> None:
        self.partition = partition
        self.path = path
        self.future: FutureLog | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_cancelled = False


class _Cursor:
    """The position up to which a log was copied: a segment, and a byte position in that segment."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._position = 0

    def parts(self, log: PartitionLog, next_offset: int) -> list[tuple[Segment, SegmentPart]]:
        """Return the byte ranges that are not copied yet; `next_offset` is the log end offset of the copy."""
        left = []
        for segment in log.local.from_offset(next_offset):
            start = self._position if segment is self._segment else 0
            if start < segment.size:
                left.append((segment, SegmentPart(segment.path, start, segment.size)))
        return left

    def move(self, segment: Segment | None, position: int = 0) -> None:
        self._segment, self._position = segment, position


class DirectoryMoves:
    """The moves of logs between the data directories of one broker. Use this class only on the event loop."""

    def __init__(self, replicas: Replicas, logs: LogManager, host: Host, max_rate: Callable[[], int]) -> None:
        """`max_rate` (function) returns the maximum number of bytes that each move may copy per second."""
        self._replicas = replicas
        self._logs = logs
        self._tasks = host.tasks
        self._clock = host.clock
        self._max_rate = max_rate
        self._moves: dict[TopicPartition, _Move] = {}
        self._threads = ThreadPoolExecutor(1, THREAD_NAME)
        self._turns = asyncio.Semaphore(MOVES_AT_A_TIME)

    def move(self, topic: str, index: int, path: str) -> None:
        """Begin to move a log to the data directory at `path`, and cancel any other move of this log. If the log is
        already in that directory, no move begins.

        Raises KafkaError INVALID_TOPIC_EXCEPTION (the topic's name is too long), LOG_DIR_NOT_FOUND,
        UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE (this broker does not host the partition yet; its log will be
        created in that directory), KAFKA_STORAGE_ERROR (the log is offline).
        """
        key = (topic, index)
        if future_directory_name(key, "0" * UUID_CHARS) is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long")
        self._logs.prefer(key, path)
        try:
            partition = self._replicas.replica(topic, index)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE) from error
        if partition.log.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.log.name} is offline")
        under_way = self._moves.get(key)
        if under_way is not None:
            if under_way.path == path and under_way.partition is partition:
                return
            under_way.is_cancelled = True
            del self._moves[key]
        if self._logs.place_of(key) != path:
            move = self._moves[key] = _Move(partition, path)
            move.task = self._tasks.spawn("move of a log to another data directory", self._run(move, under_way))

    def futures(self) -> Iterator[FutureReplica]:
        """Yield a description of the future log of each move, even if the future log is not created yet."""
        for key, move in list(self._moves.items()):
            log, future = move.partition.log, move.future
            copied_to = log.log_start_offset if future is None else future.log_end_offset
            size = 0 if future is None else future.log.size_bytes
            yield FutureReplica(key, move.path, size, max(0, log.log_end_offset - copied_to))

    async def _run(self, move: _Move, before: _Move | None) -> None:
        partition = move.partition
        name = partition.log.name
        if before is not None and before.task is not None:
            await asyncio.wait([before.task])
        try:
            async with self._turns:
                while not await self._attempt(move):
                    logger.info("copy begun anew, records were truncated", extra={"partition": name})
        except _Ended as ended:
            logger.info("move of a log ended", extra={"partition": name, "to": move.path, "reason": ended})
        except (KafkaError, OSError) as error:
            logger.error("log not moved", extra={"partition": name, "to": move.path, "reason": error})
        else:
            logger.info("log moved", extra={"partition": name, "to": move.path})
        finally:
            key = (partition.topic, partition.index)
            if self._moves.get(key) is move:
                del self._moves[key]

    async def _attempt(self, move: _Move) -> bool:
        """Copy the log, and replace it by the copy. Returns False if records of the log were truncated during the copy.
        Raises _Ended, KafkaError, OSError.
        """
        partition = move.partition
        self._check(move)
        log, generation = partition.log, partition.log.trimmer.generation
        cleaned_up_to = log.state.cleaner_checkpoint
        log.state.is_copied = True
        is_replaced = False
        try:
            make = self._logs.make_future(self._replicas.wanted_log(partition), move.path, log)
            future = move.future = await in_thread(make, self._threads)
            cursor = _Cursor()
            if not await self._copy(move, future, cursor, generation):
                return False
            is_replaced = True  # `_replace` deletes the future log itself if it fails
            await self._replace(partition, future, cursor, cleaned_up_to)
            return True
        finally:
            log.state.is_copied = False
            made, move.future = move.future, None
            if made is not None and not is_replaced:
                await in_thread(partial(_drop, made), self._threads)

    def _check(self, move: _Move) -> None:
        """Check whether the move may continue. Raises _Ended if it must not."""
        partition = move.partition
        if move.is_cancelled:
            raise _Ended("another directory was asked for")
        if self._replicas.hosted(partition.topic, partition.index) is not partition:
            raise _Ended("the partition is not hosted here any more")
        if partition.log.is_offline:
            raise _Ended("the log is offline")

    async def _copy(self, move: _Move, future: FutureLog, cursor: _Cursor, generation: int) -> bool:
        """Copy until at most LAST_BYTES are left to copy, and all copied bytes are synced. Returns False if records of
        the log were truncated during the copy.
        """
        log, outdated, is_synced = move.partition.log, 0, False
        while True:
            self._check(move)
            if log.trimmer.generation != generation:
                return False
            left = cursor.parts(log, future.log_end_offset)
            if log.state.is_truncating:
                await asyncio.sleep(WAIT_SECONDS)
                continue
            if sum(part.end - part.start for _, part in left) <= LAST_BYTES:
                if is_synced:
                    return True
                await in_thread(future.log.flusher.flush, self._threads)
                is_synced = True
                continue
            is_synced = False
            segment, part = left[0]
            began = self._clock.monotonic()
            try:
                position = await in_thread(partial(_copy_some, future, part), self._threads)
            except CopyOutdated as error:
                outdated += 1
                if outdated > MAX_OUTDATED:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
                cursor.move(None)
                continue
            outdated = 0
            cursor.move(segment, position)
            await self._rest(move, began + (position - part.start) / max(1, self._max_rate()))

    async def _rest(self, move: _Move, until: float) -> None:
        """Wait until this monotonic time, in seconds. Raises _Ended."""
        while (seconds := until - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(seconds, LOOK_SECONDS))
            self._check(move)

    async def _replace(
        self, partition: Partition, future: FutureLog, cursor: _Cursor, cleaned_up_to: int | None
    ) -> None:
        """Pause the log, and replace it by the future log. Raises MoveFailed."""
        log = partition.log
        log.pause()
        last = LastState(
            directory=log.directory,
            end=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            high_watermark=partition.high_watermark,
            cleaner_checkpoint=cleaned_up_to,
            epochs=log.leader_epochs.entries,
            producers=log.producers.state.image(),
        )
        parts = [part for _, part in cursor.parts(log, future.log_end_offset)]
        outcome: list[PartitionLog | MoveFailed] = []

        def replace() -> None:
            try:
                with log.flusher.guard:
                    outcome.append(future.replace(parts, last))
                    log.flusher.note_moved()
            except MoveFailed as failure:
                outcome.append(failure)

        try:
            await in_thread(replace, self._threads)
        finally:  # also after a cancellation by a shutdown, so that the broker closes the log in use
            found = outcome[0] if outcome else MoveFailed(OSError("the copy failed"), is_log_usable=False)
            replacement = found if isinstance(found, PartitionLog) else None
            self._logs.finish_replacement(future, replacement)
            if isinstance(found, PartitionLog):
                log.abandon()
            elif found.is_log_usable:
                log.resume()
            else:
                log.state.fail("move", found)
            self._replicas.on_log_moved(partition, replacement)
        if isinstance(found, MoveFailed):
            raise found


def _copy_some(future: FutureLog, part: SegmentPart) -> int:
    """Copy up to BYTES_AT_A_TIME bytes of a byte range; returns the position after the copied bytes."""
    position = part.start
    while position < part.end and position - part.start < BYTES_AT_A_TIME:
        position = future.copy(part._replace(start=position))
    return position


def _drop(future: FutureLog) -> None:
    try:
        future.drop()
    except OSError as error:
        logger.error("%s: not deleted, the next start deletes it: %s", future.path, error)
