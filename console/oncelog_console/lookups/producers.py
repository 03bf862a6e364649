"""A partition: its newest batches with their outcomes, its ends, its producers, and the transaction that blocks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from oncelog import TopicPartition
from oncelog.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Admin, Explanation
from oncelog.admin.hanging import ProducerState
from oncelog.cluster import Partition
from oncelog.errors import ErrorCode, KafkaError
from oncelog_console.limits import PICTURE_BATCHES, PICTURE_BYTES, PICTURE_OFFSETS
from oncelog_console.lookups.batch_outcomes import JudgedBatch
from oncelog_console.lookups.log_reading import read_stretch
from oncelog_console.lookups.missing import Missing, had
from oncelog_protocol.messages.fetch import IsolationLevel

STRETCH_BYTES: Final = 512 * 1024


@dataclass(slots=True)
class PartitionPage:
    """`batches`: the batches from offset `start` to offset `shown_to`."""

    partition: TopicPartition
    known: Partition
    log_start: int
    last_stable: int
    high_watermark: int
    start: int
    shown_to: int
    batches: list[JudgedBatch]
    producers: list[ProducerState] = field(default_factory=list)
    explained: Explanation | None = None
    missing: Missing = field(default_factory=dict)


async def look(admin: Admin, partition: TopicPartition, known: Partition, at: int | None) -> PartitionPage:
    """Read the batches from offset `at` on; by default the newest batches. Raises KafkaError."""
    missing: Missing = {}
    asked = admin.transactions.explain([partition])
    explained = (await had(missing, "explanation", asked, {})).get(partition)
    first = await read_ends(admin, partition)
    wanted = first.high_watermark - PICTURE_OFFSETS if at is None else min(at, first.high_watermark)
    start = max(first.log_start, wanted)
    ends = first.log_start, first.last_stable, first.high_watermark
    page = PartitionPage(partition, known, *ends, start=start, shown_to=start, batches=[])
    await _read(admin, page)
    page.explained = explained
    page.missing = missing
    page.producers = (await had(missing, "producers", admin.transactions.producers([partition]), {})).get(partition, [])
    return page


@dataclass(frozen=True, slots=True)
class Ends:
    log_start: int
    last_stable: int
    high_watermark: int


async def read_ends(admin: Admin, partition: TopicPartition) -> Ends:
    """Return the first offset, the last stable offset and the high watermark of a partition. Raises KafkaError."""
    latest = {partition: LATEST_TIMESTAMP}
    first = (await admin.list_offsets({partition: EARLIEST_TIMESTAMP}))[partition].offset
    stable = (await admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED))[partition].offset
    return Ends(first, stable, (await admin.list_offsets(latest))[partition].offset)


async def _read(admin: Admin, page: PartitionPage) -> None:
    """Read the batches from `start` on, as many as a picture has room for."""
    left = PICTURE_BYTES
    position = page.start
    until = min(page.high_watermark, page.start + PICTURE_OFFSETS)
    while position < until and left > 0 and len(page.batches) < PICTURE_BATCHES:
        try:
            stretch = await read_stretch(admin, page.partition, position, min(left, STRETCH_BYTES))
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:  # these batches were deleted since the offsets were read
                break
            raise
        if stretch.is_end:
            break
        page.last_stable, page.high_watermark = stretch.last_stable_offset, stretch.high_watermark
        page.batches += [each for each in stretch.batches if each.batch.base_offset < until]
        position = stretch.next_offset
        left -= sum(each.batch.size for each in stretch.batches)
    del page.batches[PICTURE_BATCHES:]
    page.shown_to = max(until, page.batches[-1].batch.next_offset) if page.batches else until
