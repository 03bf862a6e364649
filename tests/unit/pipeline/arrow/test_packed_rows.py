"""Rows that encode themselves yield the same batches, byte for byte, as records that are appended one by one."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.pipeline.arrow_rows import (
    Given,
    arrow_batch,
    built,
    packed_batches,
    packed_rows,
    plain_batches,
    records_of,
)

from oncelog_pipeline.arrow import packed_rows as packed_rows_module
from oncelog_pipeline.arrow import row_digest
from oncelog_pipeline.arrow.packed_rows import PIECE, EncodedColumns, PackedRows
from oncelog_pipeline.arrow.record_columns import record_columns
from oncelog_pipeline.sink.digest import digest_of
from oncelog_protocol.records.builder import RecordBatchBuilder
from oncelog_protocol.records.packing import Packed

NOW = 1_700_000_000_000
FIELD = st.none() | st.binary(max_size=4) | st.integers(55, 70).map(bytes)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "a", "é"]), FIELD), max_size=2)
ROW = st.tuples(FIELD, FIELD, HEADERS, st.integers(NOW - 100, NOW + 9000)).map(lambda fields: Given(*fields))
ROWS = st.tuples(st.lists(ROW, min_size=1, max_size=6), st.integers(1, 40)).map(lambda drawn: drawn[0] * drawn[1])
COLUMNS = st.sets(st.sampled_from(["key", "headers", "timestamp"])).map(sorted)


@given(ROWS, COLUMNS, st.integers(62, 3000), st.integers(0, 2), st.booleans())
@examples(200)
def test_the_batches_are_those_of_single_records(
    rows: list[Given], columns: list[str], size_limit: int, skipped: int, is_large: bool
) -> None:
    expected = plain_batches(rows, columns, NOW, size_limit)
    found = packed_batches(packed_rows(rows, columns, is_large=is_large, skipped=skipped), NOW, size_limit)
    assert found == expected
    assert [record[1:3] for record in records_of(found)] == [
        (row.key if "key" in columns else None, row.value) for row in rows
    ]


@given(ROWS, COLUMNS, st.data())
@examples(60)
def test_a_part_of_the_rows_is_packed(rows: list[Given], columns: list[str], data: Any) -> None:
    first = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(first + 1, len(rows)))
    part = PackedRows(EncodedColumns(record_columns(arrow_batch(rows, columns))), first, end)
    assert len(part) == end - first
    assert packed_batches(part, NOW, 1000) == plain_batches(rows[first:end], columns, NOW, 1000)


@given(ROWS, COLUMNS, st.integers(62, 3000), st.integers(0, 2), st.booleans(), st.data())
@examples(200)
def test_whole_batches_are_those_of_single_records(
    rows: list[Given], columns: list[str], size_limit: int, skipped: int, is_large: bool, data: Any
) -> None:
    """Each batch equals the batch of its records, byte for byte, and has at most `size_limit` bytes or one record. The
    rows of two partitions are encoded together.
    """
    columns_of_records = record_columns(arrow_batch(rows, columns, is_large=is_large, skipped=skipped))
    encoded = EncodedColumns(columns_of_records)
    middle = data.draw(st.integers(0, len(rows)))
    bounds = [(first, end) for first, end in ((0, middle), (middle, len(rows))) if first < end]
    for part, (first, end) in [(PackedRows(encoded, *each), each) for each in bounds]:
        done = first
        for packed in whole_batches(part, size_limit):
            count = len(packed.timestamps_ms)
            expected = plain_batches(rows[done : done + count], columns, NOW, 1 << 30)
            builder = RecordBatchBuilder.whole(packed)
            assert [built(builder)] == expected
            assert builder.size <= size_limit or count == 1
            done += count
        assert done == end


def whole_batches(rows: PackedRows, size_limit: int) -> list[Packed]:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(packed_rows_module, "LEAST_SHARE", 0)
        found = rows.batches(NOW, size_limit)
        assert found is not None
        return list(found)


def test_whole_batches_of_one_partition_have_about_the_same_size() -> None:
    rows = packed_rows([Given(bytes(100))] * 1000, [])
    sizes = [len(packed.data) for packed in whole_batches(rows, 50_000)]
    assert len(sizes) == 3, "107 KB of records do not fit into two batches"
    assert max(sizes) - min(sizes) < 1000


def test_few_rows_are_no_batches_of_their_own() -> None:
    rows = packed_rows([Given(bytes(100))] * 100, [])
    assert rows.batches(NOW, 60_000) is None
    assert rows.batches(NOW, 30_000) is not None


def test_records_of_many_sizes_are_packed_in_a_large_batch() -> None:
    """The encoded lengths and offsets take one to three bytes."""
    rows = [Given(bytes(number % 300 if number % 1000 else 20_000), b"%d" % number) for number in range(10_000)]
    assert packed_batches(packed_rows(rows, ["key"]), NOW, 1 << 30) == plain_batches(rows, ["key"], NOW, 1 << 30)


def test_a_clock_that_goes_back_is_a_negative_delta() -> None:
    rows = packed_rows([Given(b"v")] * 3, [])
    found = rows.pack(1, NOW - 5000, 1, NOW, 1000)
    assert list(found.timestamps_ms) == [NOW - 5000] * 2
    assert found.max_timestamp_ms == NOW - 5000


def test_the_largest_timestamp_is_the_batchs() -> None:
    rows = packed_rows([Given(b"v", timestamp_ms=NOW + each) for each in (3, 9, 1)], ["timestamp"])
    found = rows.pack(0, NOW, 1, NOW, 1000)
    assert (list(found.timestamps_ms), found.max_timestamp_ms) == ([NOW + 3, NOW + 9, NOW + 1], NOW + 9)


@pytest.mark.parametrize("room", [0, 1, 9])
def test_a_record_without_room_is_not_packed(room: int) -> None:
    """A record with a three-byte value takes ten bytes.

    The ten bytes are the length, attributes, time, offset, null key, length of the value, the value, and number of
    headers.
    """
    rows = packed_rows([Given(b"abc")], [])
    assert not rows.pack(0, NOW, 1, NOW, room).timestamps_ms
    assert len(rows.pack(0, NOW, 1, NOW, 10).timestamps_ms) == 1


@given(ROWS, COLUMNS, st.sampled_from([0, 60, 10_000]), st.booleans())
@examples(100)
def test_the_digest_is_that_of_the_columns(rows: list[Given], columns: list[str], large: int, is_large: bool) -> None:
    """The digests are equal for every limit above which a field counts as large."""
    rows = rows * 2
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(row_digest, "LARGE", large)
        found = packed_rows(rows, columns, is_large=is_large, skipped=1).digest("orders")
    assert found == digest_of(
        "orders",
        [row.value for row in rows],
        [row.key for row in rows] if "key" in columns else None,
        [row.headers for row in rows] if "headers" in columns else None,
    )


def test_the_digest_of_more_rows_than_a_piece() -> None:
    end = 2 * row_digest.PIECE + 1
    rows = [Given(b"%d" % number, b"k%d" % number, [("h", b"%d" % number)]) for number in range(end + 2)]
    part = PackedRows(EncodedColumns(record_columns(arrow_batch(rows, ["key", "headers"]))), 2, end)
    values, keys, headers = zip(*[row[:3] for row in rows[2:end]], strict=True)
    assert part.digest("t") == digest_of("t", values, keys, headers)


def test_a_row_without_a_time_has_the_time_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog_pipeline.arrow.record_columns.now_ms", lambda: NOW)
    rows = [Given(b"v", timestamp_ms=5), Given(b"v", timestamp_ms=None)]
    assert [packed_rows(rows, ["timestamp"]).row(index, 0)[0] for index in range(2)] == [5, NOW]


def test_pieces_are_all_rows_in_order() -> None:
    rows = [Given(b"%d" % number, None, [("h", b"%d" % number)], NOW + number) for number in range(PIECE + 3)]
    pieces = list(packed_rows(rows, ["key", "headers", "timestamp"]).pieces())
    assert [len(piece.values) for piece in pieces] == [PIECE, 3]
    found = [Given(v, k, h, t) for piece in pieces for v, k, t, h in zip(*piece, strict=True)]
    assert found == rows


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        PackedRows(EncodedColumns(record_columns(arrow_batch([Given(b"v")], []))), 1, 1)


def test_a_time_before_1970_and_a_header_without_a_name_are_refused() -> None:
    with pytest.raises(ValueError, match="timestamp -5"):
        packed_rows([Given(b"v", timestamp_ms=-5)], ["timestamp"])
    with pytest.raises(ValueError, match="a header without a key"):
        packed_rows([Given(b"v", headers=[(None, b"x")])], ["headers"])  # type: ignore[list-item]
