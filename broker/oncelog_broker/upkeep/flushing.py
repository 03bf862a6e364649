"""Syncs a log to disk without blocking the event loop."""

from __future__ import annotations

import asyncio

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.tasks import in_thread


async def flush(log: PartitionLog, up_to: int | None = None) -> None:
    """Like `LogFlusher.flush`, with the fsync in a worker thread. Raises KAFKA_STORAGE_ERROR; the log may then be
    offline.

    A cancellation waits for the fsync, and a failed fsync then takes the log offline nevertheless.
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
