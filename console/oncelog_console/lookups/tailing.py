"""New records as they arrive, from the ends of the partitions on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Final

from oncelog import TopicPartition
from oncelog.admin import LATEST_TIMESTAMP, Admin
from oncelog.errors import ErrorCode, KafkaError, PartialFailure
from oncelog_console.limits import KEY_BYTES, TAIL_BYTES, TAIL_RECORDS, VALUE_BYTES
from oncelog_console.lookups.batch_outcomes import JudgedBatch, judged_fresh, judged_stable
from oncelog_console.lookups.decoding import Decoding
from oncelog_console.lookups.record_view import RecordView
from oncelog_console.lookups.records import decoded, records_of
from oncelog_console.lookups.wanted import Wanted
from oncelog_console.values.reader import ValueReader
from oncelog_protocol.messages.fetch import IsolationLevel

WAIT_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class TailPart:
    """One message of a live tail: the newest records since the last message, and the number of skipped records before
    them.
    """

    records: list[RecordView]
    left_out: int


async def tail(
    admin: Admin, topic: str, partitions: list[int], wanted: Wanted, values: ValueReader
) -> AsyncGenerator[TailPart]:
    """Yield the new records after each fetch, without end; a yielded item may have no records. Raises KafkaError or
    TaskFailed.
    """
    committed_only = wanted.committed_only
    level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    decoding = Decoding(values, topic, wanted, KEY_BYTES, VALUE_BYTES)
    offsets = await _ends(admin, [TopicPartition(topic, index) for index in partitions], level)
    while True:
        try:
            parts = await admin.read_log(offsets, max_bytes=TAIL_BYTES, max_wait_ms=WAIT_MS, isolation_level=level)
        except KafkaError as error:
            offsets = await _moved_on(admin, error, offsets, level)
            yield TailPart([], 0)
            continue
        records: list[RecordView] = []
        left_out = 0
        for where, part in parts.items():
            judged = judged_stable(part) if committed_only else judged_fresh(part.batches)
            newest, count = await _newest_of(where, judged, offsets[where], decoding)
            records += newest
            left_out += count - len(newest)
            if part.batches:
                offsets[where] = max(offsets[where], part.batches[-1].next_offset)
        records.sort(key=_timestamp)
        yield TailPart(records[-TAIL_RECORDS:], left_out + max(0, len(records) - TAIL_RECORDS))


async def _ends(admin: Admin, wanted: list[TopicPartition], level: IsolationLevel) -> dict[TopicPartition, int]:
    answers = await admin.list_offsets(dict.fromkeys(wanted, LATEST_TIMESTAMP), isolation_level=level)
    return {where: answer.offset for where, answer in answers.items()}


async def _moved_on(
    admin: Admin, error: KafkaError, offsets: dict[TopicPartition, int], level: IsolationLevel
) -> dict[TopicPartition, int]:
    """Return the end offsets of partitions. The tail continues at these offsets after logs were truncated, or after
    records were deleted or compacted before the tail had read them. Raises `error` again if it has another cause.
    """
    errors = error.errors if isinstance(error, PartialFailure) else dict.fromkeys(offsets, error)
    others = [each for each in errors.values() if each.code is not ErrorCode.OFFSET_OUT_OF_RANGE]
    if others:
        raise others[0]
    await asyncio.sleep(WAIT_MS / 1000)
    return offsets | await _ends(admin, list(errors), level)


async def _newest_of(
    where: TopicPartition, judged: list[JudgedBatch], from_offset: int, decoding: Decoding
) -> tuple[deque[RecordView], int]:
    """Return the newest records that match the search expression, with decoded values, and the number of all matching
    records. The function processes one batch after another, so that few entire values are in memory.
    """
    wanted = decoding.wanted
    if not decoding.is_needed:
        return await decoded(partial(_newest, where.partition, judged, from_offset, wanted))
    kept: deque[RecordView] = deque(maxlen=TAIL_RECORDS)
    count = 0
    for each in judged:
        async with decoding.values.workers.turns:
            matching = await decoded(partial(_matching, where.partition, each, from_offset, wanted))
            if wanted.expression is None:
                count += max(0, len(matching) - TAIL_RECORDS)
                matching = matching[-TAIL_RECORDS:]
            found = (await decoding.read(matching)).records
        kept += (record.for_a_table() for record in found)
        count += len(found)
    return kept, count


def _matching(partition: int, judged: JudgedBatch, from_offset: int, wanted: Wanted) -> list[RecordView]:
    return [record for record in records_of(partition, judged, from_offset) if wanted.takes(record)]


def _newest(
    partition: int, judged: list[JudgedBatch], from_offset: int, wanted: Wanted
) -> tuple[deque[RecordView], int]:
    """Return the last TAIL_RECORDS matching records, and the number of all matching records."""
    kept: deque[RecordView] = deque(maxlen=TAIL_RECORDS)
    count = 0
    for each in judged:
        for record in records_of(partition, each, from_offset):
            if wanted.takes(record):
                kept.append(record.for_a_table())
                count += 1
    return kept, count


def _timestamp(record: RecordView) -> int:
    return record.timestamp_ms
