"""Pages of records and live tails of a log whose batches are small but decompress to large values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast

import pytest
from tests.support.storage import make_batch

from oncelog import TopicPartition
from oncelog.admin import LATEST_TIMESTAMP, Admin, LogPart
from oncelog.cli.offsets import Earliest
from oncelog.errors import ErrorCode, KafkaError
from oncelog.metadata.list_offsets import OffsetAndTimestamp
from oncelog_console.limits import KEY_BYTES, TAIL_RECORDS, VALUE_BYTES
from oncelog_console.lookups import records
from oncelog_console.lookups.batch_outcomes import judged_fresh
from oncelog_console.lookups.tailing import _newest, tail
from oncelog_console.lookups.wanted import Wanted
from oncelog_console.values.reader import ValueReader
from oncelog_console.values.workers import Workers
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.compression import Compression

TOPIC = "orders"
MEGABYTE = 1024 * 1024
LONG_KEY = b"k" * 10_000


class OneLog:
    """An admin client's view of a partition without open transactions."""

    def __init__(self, *batches: bytearray) -> None:
        self.batches = tuple(RecordBatch(bytes(each)) for each in batches)
        self.end = self.batches[-1].next_offset
        self.topics = [TOPIC]

    async def list_topics(self, include_internal: bool) -> list[str]:
        return self.topics

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], **_: Any
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        ends = {where: self.end if asked == LATEST_TIMESTAMP else 0 for where, asked in wanted.items()}
        return {where: OffsetAndTimestamp(offset, -1) for where, offset in ends.items()}

    async def read_log(self, asked: Mapping[TopicPartition, int], **_: Any) -> dict[TopicPartition, LogPart]:
        return {
            where: LogPart(0, self.end, self.end, tuple(b for b in self.batches if b.last_offset >= offset), ())
            for where, offset in asked.items()
        }

    def grow(self, *batches: bytearray) -> None:
        self.batches += tuple(RecordBatch(bytes(each)) for each in batches)


def admin_of(log: OneLog) -> Admin:
    return cast(Admin, log)


def large(offset: int) -> bytearray:
    return make_batch(bytes(MEGABYTE), key=LONG_KEY, compression=Compression.GZIP, base_offset=offset)


async def test_a_page_holds_of_its_records_what_it_shows() -> None:
    page = await records.page(
        admin_of(OneLog(large(0), large(1))), TOPIC, {0: 0}, Wanted(key=LONG_KEY), ValueReader(Workers())
    )
    assert [record.offset for record in page.records] == [0, 1], "found by the whole of their keys"
    for record in page.records:
        assert (len(record.value or b""), record.value_size) == (VALUE_BYTES, MEGABYTE)
        assert (len(record.key or b""), record.key_size) == (KEY_BYTES, len(LONG_KEY))


async def test_a_page_of_ten_megabytes_of_nested_json_is_made() -> None:
    nested = b'{"a":' * (2 * MEGABYTE)
    log = OneLog(make_batch(nested, b'{"a": {"a": 1}}', compression=Compression.GZIP))
    values = ValueReader(Workers())
    shown = await records.page(admin_of(log), TOPIC, {0: 0}, Wanted(), values)
    first = shown.records[0]
    assert (first.value_size, len(first.value or b"")) == (len(nested), VALUE_BYTES)
    found = await records.page(admin_of(log), TOPIC, {0: 0}, Wanted(value="$..b || $.a.a == 1"), values)
    assert ([record.offset for record in found.records], found.unread) == ([1], 1)
    await values.workers.close()


async def test_a_search_ends_in_time_within_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.0])
    monkeypatch.setattr(records, "monotonic", lambda: next(times, 1000.0))
    page = await records.page(
        admin_of(OneLog(large(0), large(1), large(2))), TOPIC, {0: 0}, Wanted(key=b"another"), ValueReader(Workers())
    )
    assert (page.looked_at, page.cursor, page.has_more) == (1, {0: 1}, True)


async def test_a_topic_that_was_deleted_since_is_not_known() -> None:
    log = OneLog(large(0))
    log.topics = []
    with pytest.raises(KafkaError) as starts:
        await records.starts(admin_of(log), [TopicPartition(TOPIC, 0)], Earliest())
    with pytest.raises(KafkaError) as page:
        await records.page(admin_of(log), TOPIC, {0: 0}, Wanted(), ValueReader(Workers()))
    assert {each.value.code for each in (starts, page)} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_tail_holds_what_it_sends() -> None:
    log = OneLog(large(0))
    async with aclosing(tail(admin_of(log), TOPIC, [0], Wanted(), ValueReader(Workers()))) as parts:
        assert (await anext(parts)).records == []
        log.grow(*(make_batch(*[b"v"] * TAIL_RECORDS, base_offset=1 + n * TAIL_RECORDS) for n in range(2)))
        log.grow(large(1 + 2 * TAIL_RECORDS))
        part = await anext(parts)
    assert (len(part.records), part.left_out) == (TAIL_RECORDS, TAIL_RECORDS + 1)
    last = part.records[-1]
    assert (last.offset, len(last.value or b""), last.value_size) == (1 + 2 * TAIL_RECORDS, VALUE_BYTES, MEGABYTE)


async def test_a_tail_by_key_leaves_out_none_with_it_for_others() -> None:
    log = OneLog(large(0))
    async with aclosing(tail(admin_of(log), TOPIC, [0], Wanted(key=b"rare"), ValueReader(Workers()))) as parts:
        assert (await anext(parts)).records == []
        log.grow(make_batch(b"it", key=b"rare", base_offset=1), make_batch(*[b"v"] * TAIL_RECORDS, base_offset=2))
        part = await anext(parts)
    assert ([record.offset for record in part.records], part.left_out) == ([1], 0)


def test_a_tail_keeps_no_more_of_a_fetch_than_it_sends() -> None:
    batches = [RecordBatch(bytes(make_batch(*[b"v"] * TAIL_RECORDS, base_offset=n * TAIL_RECORDS))) for n in range(3)]
    kept, count = _newest(0, judged_fresh(batches), 0, Wanted())
    assert (len(kept), count) == (TAIL_RECORDS, 3 * TAIL_RECORDS)
    assert kept[-1].offset == count - 1
