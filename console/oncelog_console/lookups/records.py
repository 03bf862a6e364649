"""A page of a topic's records: from a position on, in timestamp order as far as the order within partitions allows."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Final, TypeVar

from oncelog import TopicPartition
from oncelog.admin import Admin
from oncelog.cli.group_positions import bounds_of
from oncelog.cli.offsets import AtTime, Earliest, Position, resolve
from oncelog.cli.reset_plan import Bounds
from oncelog.errors import ErrorCode, KafkaError
from oncelog_console.limits import (
    KEY_BYTES,
    MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS,
    PAGE_BYTES,
    PAGE_RECORDS,
    SCAN_BYTES,
    SCAN_SECONDS,
    VALUE_BYTES,
)
from oncelog_console.lookups.batch_outcomes import JudgedBatch, Outcome
from oncelog_console.lookups.log_reading import Stretch, read_stretch
from oncelog_protocol.records.batch import CorruptBatch
from oncelog_protocol.records.columns import Headers, read_columns

T = TypeVar("T")

MIN_FETCH_BYTES: Final = 64 * 1024


_DECODER: Final = ThreadPoolExecutor(1, "console-decoder")
"""One batch at a time: a few kilobytes may become MAX_BATCH_BYTES."""


async def decoded(work: Callable[[], T]) -> T:
    """Run `work`, which decodes records, in a thread, one at a time. Returns its result."""
    return await asyncio.get_running_loop().run_in_executor(_DECODER, work)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The search. `key`: only records with it."""

    committed_only: bool = False
    key: bytes | None = None
    limit: int = PAGE_RECORDS

    def takes(self, record: RecordView) -> bool:
        if self.committed_only and not record.fate.is_readable:
            return False
        return self.key is None or (record.key == self.key and not record.fate.is_control)


@dataclass(frozen=True, slots=True)
class RecordView:
    """One record; a control record has no key and value. `error`: why its batch is unreadable. `key_size` and
    `value_size`: the full sizes, if only the beginnings are kept."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    fate: Outcome
    producer_id: int
    producer_epoch: int
    error: str | None = None
    key_size: int = 0
    value_size: int = 0

    def for_a_table(self) -> RecordView:
        """The row of a table, with the beginning of the value: a few kilobytes of a batch may contain megabytes of a
        value."""
        key, value = self.key and self.key[:KEY_BYTES], self.value and self.value[:VALUE_BYTES]
        return replace(self, key=key, value=value, headers=())


@dataclass(slots=True)
class RecordPage:
    """`cursor`: partition -> start of the next page. `looked_at`: records read to find these. `has_more`: there may be
    more, at the cursor."""

    records: list[RecordView] = field(default_factory=list)
    cursor: dict[int, int] = field(default_factory=dict)
    bounds: dict[int, Bounds] = field(default_factory=dict)
    looked_at: int = 0
    has_more: bool = False


async def starts(admin: Admin, partitions: list[TopicPartition], position: Position) -> dict[int, int]:
    """The offset of `position` in each partition. Raises KafkaError."""
    bounds = await _known_bounds(admin, partitions)
    found: dict[TopicPartition, int | None] = {}
    if isinstance(position, AtTime):
        answers = await admin.list_offsets(dict.fromkeys(bounds, position.timestamp_ms))
        found = {key: answer.offset if answer.offset >= 0 else None for key, answer in answers.items()}
    return {
        key.partition: resolve(position, beginning=held.beginning, end=held.end, found=found.get(key))
        for key, held in bounds.items()
    }


async def _known_bounds(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """The bounds of each partition. Raises KafkaError, also for a topic deleted just now."""
    bounds = await bounds_of(admin, partitions)
    for where in partitions:
        if where not in bounds:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {where.topic!r} no longer exists")
    return bounds


async def page(admin: Admin, topic: str, cursor: Mapping[int, int], wanted: Wanted) -> RecordPage:
    """The records from the cursor on. Raises KafkaError."""
    made = RecordPage(cursor=dict(cursor))
    bounds = await _known_bounds(admin, [TopicPartition(topic, index) for index in cursor])
    made.bounds = {key.partition: held for key, held in bounds.items()}
    budget = _Budget(PAGE_BYTES if wanted.key is None else SCAN_BYTES)
    pages = [_PartitionPage(admin, TopicPartition(topic, index), cursor[index], wanted) for index in sorted(cursor)]
    share = max(MIN_FETCH_BYTES, budget.bytes_left // max(1, len(pages) * 8))
    reading = [each for each in pages if each.position < made.bounds[each.partition.partition].end]
    while reading and budget.is_left:
        await asyncio.gather(*(each.read_on(share, budget) for each in reading))
        reading = [each for each in reading if not each.is_done]
        if sum(len(each.found) for each in pages) >= wanted.limit and all(each.found or each.is_done for each in pages):
            break
    made.records = _merged(pages, wanted.limit)
    made.looked_at = sum(each.looked_at for each in pages)
    for each in pages:
        index = each.partition.partition
        made.cursor[index] = _next_offset(each, made.records)
        position = made.cursor[index]
        made.has_more |= position < made.bounds[index].end and not each.is_at_limit_of_stable(position)
    return made


def _merged(pages: list[_PartitionPage], limit: int) -> list[RecordView]:
    """The first records by timestamp; records of one partition stay in order."""
    merged = heapq.merge(*(_stamped(each.found, number) for number, each in enumerate(pages)))
    return [record for _, _, _, record in (entry for _, entry in zip(range(limit), merged, strict=False))]


def _stamped(records: list[RecordView], number: int) -> Iterator[tuple[int, int, int, RecordView]]:
    """Timestamps that never go back, so that a merge keeps the order of the log."""
    newest = 0
    for record in records:
        newest = max(newest, record.timestamp_ms)
        yield newest, number, record.offset, record


def _next_offset(read: _PartitionPage, shown: list[RecordView]) -> int:
    mine = [record.offset for record in shown if record.partition == read.partition.partition]
    if len(mine) == len(read.found):
        return read.position
    return mine[-1] + 1 if mine else read.start


@dataclass(slots=True)
class _Budget:
    bytes_left: int
    until: float = field(default_factory=lambda: monotonic() + SCAN_SECONDS)

    @property
    def is_left(self) -> bool:
        return self.bytes_left > 0 and self.is_left_of_time

    @property
    def is_left_of_time(self) -> bool:
        return monotonic() < self.until


class _PartitionPage:
    """Reads one partition on."""

    def __init__(self, admin: Admin, partition: TopicPartition, start: int, wanted: Wanted) -> None:
        self._admin = admin
        self._wanted = wanted
        self.partition = partition
        self.start = start
        self.position = start
        self.found: list[RecordView] = []
        self.looked_at = 0
        self.is_done = False
        self._stable_end: int | None = None

    async def read_on(self, max_bytes: int, budget: _Budget) -> None:
        """Raises KafkaError."""
        try:
            stretch = await read_stretch(self._admin, self.partition, self.position, max_bytes)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # Deleted by retention or DeleteRecords meanwhile: continue at the new start.
            first = (await starts(self._admin, [self.partition], Earliest()))[self.partition.partition]
            self.is_done = first <= self.position
            self.start = self.position = max(first, self.position)
            return
        budget.bytes_left -= max(1, sum(each.batch.size for each in stretch.batches))
        self._stable_end = stretch.last_stable_offset
        if stretch.is_end or (self._wanted.committed_only and self.position >= stretch.last_stable_offset):
            self.is_done = True
            return
        await decoded(partial(self._take, stretch, budget))

    def _take(self, stretch: Stretch, budget: _Budget) -> None:
        """Take the records of at least one batch, and of more while there is time."""
        for judged in stretch.batches:
            for record in records_of(self.partition.partition, judged, self.position):
                self.position = record.offset + 1
                self.looked_at += 1
                if self._wanted.takes(record):
                    self.found.append(record.for_a_table())
                    if len(self.found) >= self._wanted.limit:
                        self.is_done = True
                        return
            self.position = max(self.position, judged.batch.next_offset)
            if not budget.is_left_of_time:
                return

    def is_at_limit_of_stable(self, offset: int) -> bool:
        """Whether no more records are readable, although the log continues."""
        return self._wanted.committed_only and self._stable_end is not None and offset >= self._stable_end


def records_of(partition: int, judged: JudgedBatch, from_offset: int) -> Iterator[RecordView]:
    """One view for each record of a batch, one for a control batch, and one for an unreadable batch."""
    batch, fate = judged.batch, judged.fate
    producer = batch.producer_id, batch.producer_epoch
    if fate.is_control:
        offset = max(from_offset, batch.last_offset)
        yield RecordView(partition, offset, batch.max_timestamp, None, None, (), fate, *producer)
        return
    try:
        if batch.records_count > MAX_BATCH_RECORDS:
            raise CorruptBatch(f"{batch.records_count} records are more than are looked at here")
        columns = read_columns(batch, max_decompressed_bytes=MAX_BATCH_BYTES)
        error = columns.error
    except CorruptBatch as corrupt:
        error, columns = corrupt, None
    if columns is not None:
        fields = (columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers)
        for offset, timestamp, key, value, headers in zip(*fields, strict=True):
            if offset >= from_offset:
                sizes = len(key or b""), len(value or b"")
                yield RecordView(partition, offset, timestamp, key, value, headers, fate, *producer, None, *sizes)
    if error is not None:
        why = f"this batch cannot be read: {error}"
        yield RecordView(partition, batch.last_offset, batch.max_timestamp, None, None, (), fate, *producer, why)


async def record_at(admin: Admin, partition: TopicPartition, offset: int) -> RecordView | None:
    """The first record at `offset` or after it; None at the end. Raises OffsetOutOfRange and other KafkaErrors."""
    stretch = await read_stretch(admin, partition, offset, MIN_FETCH_BYTES)

    def first() -> RecordView | None:
        found = (record for judged in stretch.batches for record in records_of(partition.partition, judged, offset))
        return next(found, None)

    return await decoded(first)
