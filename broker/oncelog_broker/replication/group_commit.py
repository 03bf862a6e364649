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
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.tasks import Tasks, in_thread
from oncelog_protocol.errors import KafkaError

K = TypeVar("K")

SYNC_THREADS: Final = 8
"""The number of logs of one data directory that are synced simultaneously. File systems with a journal combine
simultaneous fsyncs, and no other work of the broker waits for these threads. Each data directory has threads of its
own, so that a disk that hangs delays no log on another disk.
"""
MAX_DIRECTORIES: Final = 64
"""The maximum number of data directories with threads of their own; the threads of the directory that was used first
end when there are more.
"""
SYNCS_AT_ONCE: Final = 2 * SYNC_THREADS
"""The maximum number of followed logs whose syncs run, or wait for a thread, at the same time. To begin the syncs of
all logs of a fetch loop at once would hold the event loop too long: a leader may have thousands of partitions.
"""
_threads: Final[dict[str, ThreadPoolExecutor]] = {}
"""Maps the path of each data directory to its threads, which are started when they are needed."""


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


def _threads_of(log: PartitionLog) -> ThreadPoolExecutor:
    """Return the threads of the data directory that has the log."""
    directory = os.path.dirname(log.state.directory)
    threads = _threads.get(directory)
    if threads is None:
        if len(_threads) == MAX_DIRECTORIES:
            _threads.pop(next(iter(_threads))).shutdown(wait=False)  # the threads end after the syncs that they have
        threads = _threads[directory] = ThreadPoolExecutor(SYNC_THREADS, "sync")
    return threads


async def sync_records(log: PartitionLog) -> None:
    """Sync all records that the log has now. Raises KAFKA_STORAGE_ERROR; the log is then offline.

    If the caller is cancelled, this method still waits for the fsync, and takes the log offline if the fsync fails.
    """
    pending = log.flusher.prepare_sync()
    if pending is None:
        return
    try:
        await in_thread(pending.sync, _threads_of(log))
    except asyncio.CancelledError:
        log.flusher.note_failed_flush()
        raise
    except OSError as error:
        raise log.flusher.flush_failed(error) from error
    log.flusher.finish_sync(pending)


async def sync_all(partitions: Mapping[K, Partition]) -> list[tuple[K, Partition]]:
    """Sync those of `partitions` that this broker follows, and that have group commit and unsynced records; at most
    SYNCS_AT_ONCE syncs are begun at a time. Returns the partitions whose log is offline.
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
