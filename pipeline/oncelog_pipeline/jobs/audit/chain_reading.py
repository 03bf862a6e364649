"""Reads the batches of a range of offsets and joins them to chains. Only batch headers are decoded, never records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from oncelog import BatchHeader, Consumer, TopicPartition
from oncelog_pipeline.jobs.audit.chains import Chain, Chains, Header
from oncelog_pipeline.source.ranges import OffsetRange
from oncelog_pipeline.source.reading import NothingRead

LOOK_MS: Final = 100
DEFAULT_PATIENCE_S: Final = 120.0


async def read_chains(
    bootstrap_servers: str,
    wanted: OffsetRange,
    *,
    patience_s: float = DEFAULT_PATIENCE_S,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[list[Chain]]:
    """Join all batches that end in the range, also aborted ones, to chains (runs of consecutive batches of one
    producer), and yield the chains in lists. Each list has the chains that were finished since the previous list, so
    that few chains are in memory.

    A batch belongs to the range in which it ends, so each batch is read once, however a partition is cut into ranges.
    Raises NothingRead if no batch arrives for `patience_s` seconds, and KafkaError.
    """
    partition = TopicPartition(wanted.topic, wanted.partition)
    options = {"fetch_max_bytes": 8 << 20, "max_partition_fetch_bytes": 4 << 20} | dict(settings or {})
    options |= {"auto_offset_reset": "none", "enable_auto_commit": False, "isolation_level": "read_uncommitted"}
    chains = Chains()
    async with Consumer(bootstrap_servers, **options) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, wanted.start)
        loop = asyncio.get_running_loop()
        position, deadline = wanted.start, loop.time() + patience_s
        while position < wanted.end:
            for header in (await consumer.poll_headers(LOOK_MS)).get(partition, ()):
                if header.last_offset < wanted.end:
                    chains.add(_header(header))
            now_at = await consumer.position(partition)
            if now_at > position:
                position, deadline = now_at, loop.time() + patience_s
            elif loop.time() >= deadline:
                raise NothingRead(
                    f"{partition}: nothing after offset {position} of {wanted.start} to {wanted.end} within"
                    f" {patience_s:g} s: is its leader up?"
                )
            if chains.finished:
                yield chains.taken()
    yield chains.close()


def _header(batch: BatchHeader) -> Header:
    numbers = batch.producer_id, batch.producer_epoch, batch.base_sequence
    return Header(batch.base_offset, batch.last_offset, *numbers, batch.is_control)
