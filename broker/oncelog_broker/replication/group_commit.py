"""Group commit: syncs the records of a log before they are acknowledged, with one fsync for all records that wait.

A partition with `flush.messages=1` acknowledges records only when they are on the disk. While an fsync of the log runs
in a worker thread, further records are appended; all these records wait for the next fsync. Each log therefore has at
most one running fsync, however many producers wait, and the event loop never waits for the disk.

Invariant for leaders: while a partition must sync (`Partition.must_sync`), a task of `GroupCommit` is syncing its log,
or the log is offline. Invariant for followers: a follower reports an offset to its leader only when all records below
that offset are synced (`fetcher`). Design: docs/design/group-commit.md.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.tasks import Tasks, until_ended
from oncelog_protocol.errors import KafkaError

K = TypeVar("K")

SYNC_THREADS: Final = 8
"""The number of logs of one data directory that are synced simultaneously. File systems with a journal combine
simultaneous fsyncs, and no other work of the broker waits for these threads. Each data directory has threads of its
own, so that a disk that hangs delays no log on another disk that this broker leads. The logs that it follows do wait:
see `sync_all`.
"""
MAX_DIRECTORIES: Final = 64
"""The maximum number of data directories with threads of their own; when there are more, the threads of the directory
whose last sync is the longest ago end. The directories of closed brokers of the same process go first in this way.
"""
SYNCS_AT_ONCE: Final = 2 * SYNC_THREADS
"""The maximum number of followed logs whose syncs run, or wait for a thread, at the same time, in all data directories
together. To begin the syncs of all logs of a fetch loop at once would hold the event loop too long: a leader may have
thousands of partitions.
"""
START_SECONDS: Final = 10.0
"""The time for which a sync tries to get a thread while the system refuses to start one; then the log goes offline."""
RETRY_SECONDS: Final = 0.5
"""The pause between two such attempts."""
_threads: Final[dict[str, ThreadPoolExecutor]] = {}
"""Maps the path of each data directory to its threads, in the order of their last syncs. Invariant: each pool has at
least one running thread, so that it runs all its jobs; it starts further threads when they are needed.
"""


class GroupCommit:
    """Syncs the logs of the partitions that this broker leads."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._syncing: set[Partition] = set()

    def request(self, partition: Partition) -> None:
        """Sync the records of `partition` soon, including records that are appended before the sync begins."""
        if partition not in self._syncing:
            self._syncing.add(partition)
            self._tasks.spawn(f"sync {partition.log.name}", self._sync(partition))

    async def _sync(self, partition: Partition) -> None:
        """Sync until all records are on the disk. The task begins in the next iteration of the event loop, when all
        requests that have arrived by now are appended.
        """
        try:
            while partition.begin_sync():
                await sync_records(partition.log)
                partition.on_synced()
        except KafkaError:  # no log line, because the log has already logged why it is offline
            partition.on_sync_failed()
        finally:
            self._syncing.discard(partition)


def _begin(log: PartitionLog, sync: Callable[[], None]) -> asyncio.Future[None]:
    """Begin `sync` in a thread of the log's data directory; if that directory has no thread and none can be started,
    in a thread of the event loop's default pool. Raises RuntimeError if no thread runs `sync`.
    """
    directory = os.path.dirname(log.state.directory)
    threads = _threads.pop(directory, None)
    if threads is not None:
        _threads[directory] = threads  # the last in the order
        return _begin_in(threads, sync, has_thread=True)
    threads = ThreadPoolExecutor(SYNC_THREADS, "sync")
    try:
        running = _begin_in(threads, sync, has_thread=False)
    except RuntimeError:
        return _begin_in(None, sync, has_thread=False)
    if len(_threads) == MAX_DIRECTORIES:
        _threads.pop(next(iter(_threads))).shutdown(wait=False)  # the threads end after the syncs that they have
    _threads[directory] = threads
    return running


def _begin_in(
    threads: ThreadPoolExecutor | None, sync: Callable[[], None], *, has_thread: bool
) -> asyncio.Future[None]:
    """Begin `sync` in a pool; None means the default pool. Raises RuntimeError if the pool can start no thread; the
    pool then does not run `sync`.

    A pool queues the job before it starts a thread. If that start fails, the job stays in the queue, and another thread
    of the pool runs it when it is free. `has_thread` tells that there is such a thread.
    """
    done = Future[None]()

    def job() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            sync()
        except BaseException as error:
            done.set_exception(error)
            raise
        done.set_result(None)

    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(threads, contextvars.copy_context().run, job)
    except RuntimeError as error:
        is_queued = has_thread and "cannot schedule" not in str(error)  # else the pool or the interpreter is closing
        if not is_queued and done.cancel():  # `cancel` returns False if a thread of the default pool has begun the job
            raise
    return asyncio.wrap_future(done)


async def _sync_in_thread(log: PartitionLog, sync: Callable[[], None]) -> None:
    """Run `sync` in a thread. If no thread can be started, try again for START_SECONDS, because threads of other
    processes may end. Raises OSError. If the caller is cancelled, this function still waits for the end of `sync`.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + START_SECONDS
    while True:
        try:
            running = _begin(log, sync)
            break
        except RuntimeError as error:
            if loop.time() >= end:
                reason = f"no thread for the sync ({error}); raise the limit of threads (ulimit -u, pids.max)"
                raise OSError(errno.EAGAIN, reason) from error
        await asyncio.sleep(RETRY_SECONDS)
    try:
        await until_ended(running)
    finally:
        del running  # as in `until_ended`


async def sync_records(log: PartitionLog) -> None:
    """Sync all records that the log has now. Raises KAFKA_STORAGE_ERROR; the log is then offline.

    If the caller is cancelled, this method still waits for the fsync, and takes the log offline if the fsync fails.
    """
    pending = log.flusher.prepare_sync()
    if pending is None:
        return
    try:
        await _sync_in_thread(log, pending.sync)
    except asyncio.CancelledError:
        log.flusher.note_failed_flush()
        raise
    except OSError as error:
        raise log.flusher.flush_failed(error) from error
    log.flusher.finish_sync(pending)


async def sync_all(partitions: Mapping[K, Partition]) -> list[tuple[K, Partition]]:
    """Sync those of `partitions` that this broker follows, and that have group commit and unsynced records; at most
    SYNCS_AT_ONCE syncs are begun at a time. Returns the partitions whose log is offline.

    This function returns when the last sync has ended, because the next Fetch request reports the offsets of all
    partitions. A disk that hangs therefore delays all partitions of the fetch loop, also those on other disks.
    """
    unsynced = [
        (key, partition)
        for key, partition in partitions.items()
        if partition.waits_for_disk and partition.log.state.synced_offset < partition.log.log_end_offset
    ]
    remaining, failed = iter(unsynced), list[tuple[K, Partition]]()

    async def sync_remaining() -> None:
        for key, partition in remaining:
            try:
                await sync_records(partition.log)
            except KafkaError:
                failed.append((key, partition))

    runs = (sync_remaining() for _ in range(min(SYNCS_AT_ONCE, len(unsynced))))
    for error in await asyncio.gather(*runs, return_exceptions=True):
        if error is not None:
            raise error
    return failed
