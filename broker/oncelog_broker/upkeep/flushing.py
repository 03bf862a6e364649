"""Syncs a log to disk without blocking the event loop."""

from __future__ import annotations

import asyncio

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.tasks import in_thread


async def flush(log: PartitionLog, up_to: int | None = None) -> None:
    """Sync the indexes and all records below an offset, then move the recovery point to that offset. The fsync runs in
    a worker thread. Raises KAFKA_STORAGE_ERROR; after this error the log may be offline.

    If the caller is cancelled, this function still waits for the fsync, and takes the log offline if the fsync fails.
    """
    pending = log.flusher.prepare_flush(up_to)
    if pending is None:
        return
    try:
        await in_thread(pending.sync)
    except asyncio.CancelledError:
        log.flusher.note_failed_flush()
        raise
    except OSError as error:
        raise log.flusher.flush_failed(error) from error
    log.flusher.finish_flush(pending)
