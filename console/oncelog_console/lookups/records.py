"""A page of a topic's records: the records from a position on, sorted by timestamp, except that the records of each
partition keep the order of their offsets.

Batches are decoded in a thread; worker processes apply an expression to values.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
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
    DOWNLOAD_BYTES,
    KEY_BYTES,
    MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS,
    PAGE_BYTES,
    RECORD_BYTES,
    SCAN_BYTES,
    SCAN_SECONDS,
    TASK_BYTES,
    VALUE_BYTES,
)
from oncelog_console.lookups.batch_outcomes import JudgedBatch
from oncelog_console.lookups.decoding import Decoding
from oncelog_console.lookups.log_reading import Stretch, read_stretch
from oncelog_console.lookups.record_view import RecordView
from oncelog_console.lookups.wanted import Wanted
from oncelog_console.values.reader import ReadAs, ValueReader
from oncelog_protocol.records.batch import CorruptBatch
from oncelog_protocol.records.columns import read_columns

T = TypeVar("T")

MIN_FETCH_BYTES: Final = 64 * 1024
WHOLE_CHARACTERS: Final = 2**31
"""Number of characters that means the entire value; the size of a worker's task limits the characters anyway."""


_DECODER: Final = ThreadPoolExecutor(1, "console-decoder")
"""Decodes one batch at a time, because a compressed batch of a few kilobytes may become MAX_BATCH_BYTES large."""


async def decoded(work: Callable[[], T]) -> T:
    """Run `work`, which decodes records, in a thread, one call at a time. Returns the result of `work`."""
    return await asyncio.get_running_loop().run_in_executor(_DECODER, work)


@dataclass(slots=True)
class RecordPage:
    """`cursor`: the start of the next page, by partition. `looked_at`: the number of records that were read to find
    these records. `unread`: the number of values that could not be decoded, so that the expression was not applied to
    them. `has_more`: further records may exist at the cursor.
    """

    records: list[RecordView] = field(default_factory=list)
    cursor: dict[int, int] = field(default_factory=dict)
    bounds: dict[int, Bounds] = field(default_factory=dict)
    looked_at: int = 0
    unread: int = 0
    has_more: bool = False


async def starts(admin: Admin, partitions: list[TopicPartition], position: Position) -> dict[int, int]:
    """Return the offset of `position` in each partition. Raises KafkaError."""
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
    """Return the first and last offsets of each partition. Raises KafkaError, also for a topic that has just been
    deleted.
    """
    bounds = await bounds_of(admin, partitions)
    for where in partitions:
        if where not in bounds:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {where.topic!r} no longer exists")
    return bounds


async def page(
    admin: Admin, topic: str, cursor: Mapping[int, int], wanted: Wanted, values: ValueReader, *, is_whole: bool = False
) -> RecordPage:
    """Return the records from the cursor on; with `is_whole` the records have their entire values, otherwise only the
    parts that a table shows. Raises KafkaError or TaskFailed.
    """
    made = RecordPage(cursor=dict(cursor))
    bounds = await _known_bounds(admin, [TopicPartition(topic, index) for index in cursor])
    made.bounds = {key.partition: held for key, held in bounds.items()}
    budget = _Budget(SCAN_BYTES if wanted.is_search else PAGE_BYTES)
    shown = (WHOLE_CHARACTERS, WHOLE_CHARACTERS) if is_whole else (KEY_BYTES, VALUE_BYTES)
    reading_with = _Reading(admin, wanted, Decoding(values, topic, wanted, *shown), is_whole)
    pages = [_PartitionPage(reading_with, TopicPartition(topic, index), cursor[index]) for index in sorted(cursor)]
    share = max(MIN_FETCH_BYTES, budget.bytes_left // max(1, len(pages) * 8))
    reading = [each for each in pages if each.position < made.bounds[each.partition.partition].end]
    while reading and budget.is_left:
        await asyncio.gather(*(each.read_on(share, budget) for each in reading))
        reading = [each for each in reading if not each.is_done]
        if sum(len(each.found) for each in pages) >= wanted.limit and all(each.found or each.is_done for each in pages):
            break
    made.records = _merged(pages, wanted.limit)
    made.looked_at = sum(each.looked_at for each in pages)
    made.unread = sum(each.unread for each in pages)
    for each in pages:
        index = each.partition.partition
        made.cursor[index] = _next_offset(each, made.records)
        position = made.cursor[index]
        made.has_more |= position < made.bounds[index].end and not each.is_at_limit_of_stable(position)
    return made


def _merged(pages: list[_PartitionPage], limit: int) -> list[RecordView]:
    """Return the first records by timestamp; records of one partition stay in order."""
    merged = heapq.merge(*(_stamped(each.found, number) for number, each in enumerate(pages)))
    return [record for _, _, _, record in (entry for _, entry in zip(range(limit), merged, strict=False))]


def _stamped(records: list[RecordView], number: int) -> Iterator[tuple[int, int, int, RecordView]]:
    """Yield the records with timestamps that never decrease, so that a merge keeps the order of the log."""
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


class TooLarge(Exception):
    """Raised if the records of a page are too large to keep their entire values. The error message is a text for the
    user.
    """


@dataclass(slots=True)
class _Reading:
    """The conditions and limits that the readers of all partitions of one page share. `is_whole`: records keep their
    entire values, of `room` bytes
    together.
    """

    admin: Admin
    wanted: Wanted
    decoding: Decoding
    is_whole: bool
    room: int = DOWNLOAD_BYTES

    def kept(self, record: RecordView) -> RecordView:
        """Return the record with its entire value, or with the part of the value that a table shows.
        Raises TooLarge.
        """
        if not self.is_whole:
            return record.for_a_table()
        self.room -= record.size
        if self.room < 0:
            raise TooLarge(f"these records have more than {DOWNLOAD_BYTES // 2**20} MiB: oncelog consume reads them")
        return record

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Limit how many partitions keep entire values, to decode or search them, concurrently."""
        return self.decoding.values.workers.turns if self.decoding.is_needed else nullcontext()


class _PartitionPage:
    """Reads the records of one partition for a page."""

    def __init__(self, reading: _Reading, partition: TopicPartition, start: int) -> None:
        self._reading = reading
        self._wanted = reading.wanted
        self.partition = partition
        self.start = start
        self.position = start
        self.found: list[RecordView] = []
        self.looked_at = 0
        self.unread = 0
        self.is_done = False
        self._stable_end: int | None = None

    async def read_on(self, max_bytes: int, budget: _Budget) -> None:
        """Read further records of the partition, from the position of the last read on. Raises KafkaError or
        TaskFailed.
        """
        try:
            stretch = await read_stretch(self._reading.admin, self.partition, self.position, max_bytes)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # The records were deleted meanwhile, by retention or DeleteRecords: continue at the new start.
            first = (await starts(self._reading.admin, [self.partition], Earliest()))[self.partition.partition]
            self.is_done = first <= self.position
            self.start = self.position = max(first, self.position)
            return
        budget.bytes_left -= max(1, sum(each.batch.size for each in stretch.batches))
        self._stable_end = stretch.last_stable_offset
        if stretch.is_end or (self._wanted.committed_only and self.position >= stretch.last_stable_offset):
            self.is_done = True
            return
        await self._take(stretch, budget)

    async def _take(self, stretch: Stretch, budget: _Budget) -> None:
        """Add the records of at least one batch, and of further batches while there is time."""
        batches = deque(stretch.batches)
        while batches and not self.is_done:
            async with self._reading.turn():
                records = await decoded(partial(self._part, batches, budget))
                records, unread = await self._reading.decoding.read(records)
                self.unread += unread
                room = self._wanted.limit - len(self.found)
                self.found += map(self._reading.kept, records[:room])
                if len(records) >= room:
                    self.position = records[room - 1].offset + 1
                    self.is_done = True
            if not budget.is_left_of_time:
                return

    def _part(self, batches: deque[JudgedBatch], budget: _Budget) -> list[RecordView]:
        """Return the next records that match all conditions except the expression. The records come from complete
        batches, and have about TASK_BYTES together; reading ends earlier if the time is over. Without an expression,
        return no more records than are wanted.
        """
        taken: list[RecordView] = []
        size = 0
        is_final = self._wanted.expression is None
        needs_whole = self._reading.is_whole or self._reading.decoding.is_needed
        while batches and size < TASK_BYTES:
            judged = batches.popleft()
            for record in records_of(self.partition.partition, judged, self.position):
                self.position = record.offset + 1
                self.looked_at += 1
                if self._wanted.takes(record):
                    taken.append(record if needs_whole else record.for_a_table())
                    size += record.value_size
                    if is_final and len(self.found) + len(taken) >= self._wanted.limit:
                        return taken
            self.position = max(self.position, judged.batch.next_offset)
            size += judged.batch.size
            if not budget.is_left_of_time:
                break
        return taken

    def is_at_limit_of_stable(self, offset: int) -> bool:
        """Return whether reading must end although the log continues, because no further records are readable."""
        return self._wanted.committed_only and self._stable_end is not None and offset >= self._stable_end


def records_of(partition: int, judged: JudgedBatch, from_offset: int) -> Iterator[RecordView]:
    """Yield one view for each record of a batch, one for a control batch, and one for an unreadable batch."""
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


async def record_at(
    admin: Admin, partition: TopicPartition, offset: int, values: ValueReader, read_as: ReadAs
) -> RecordView | None:
    """Return the first record at `offset` or behind it; None at the end of the log. Raises OffsetOutOfRange and other
    KafkaErrors, or TaskFailed.
    """
    stretch = await read_stretch(admin, partition, offset, MIN_FETCH_BYTES)

    def first() -> RecordView | None:
        found = (record for judged in stretch.batches for record in records_of(partition.partition, judged, offset))
        return next(found, None)

    found = await decoded(first)
    if found is None or found.fate.is_control or found.error is not None:
        return found
    wanted = Wanted(read_as=read_as)
    decoding = Decoding(values, partition.topic, wanted, KEY_BYTES, RECORD_BYTES, indents=True)
    return (await decoding.read([found])).records[0]
