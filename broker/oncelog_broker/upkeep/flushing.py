"""fsync of a log without keeping the event loop."""

from __future__ import annotations

import asyncio

from oncelog_broker.log.partition_log import PartitionLog


async def flush(log: PartitionLog, up_to: int | None = None) -> None:
    """`PartitionLog.flush`, the waiting in a worker thread. Raises KAFKA_STORAGE_ERROR; the log may be offline then."""
    pending = log.prepare_flush(up_to)
    if pending is None:
        return
    try:
        await asyncio.to_thread(pending.sync)
    except OSError as error:
        raise log.flush_failed(error) from error
    log.finish_flush(pending)
