"""Arrow batches have the rows of the records, whichever way the records were decoded."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra pipeline is not installed")

from oncelog.consumer.records import UndecodedBatch, undecoded  # noqa: E402
from oncelog.errors import CorruptRecords  # noqa: E402
from oncelog_pipeline.spark import record_arrays, source_columns  # noqa: E402
from oncelog_pipeline.spark.source_columns import BatchBuilder  # noqa: E402
from oncelog_protocol.records.batch import RecordBatch  # noqa: E402
from oncelog_protocol.records.builder import build_batch  # noqa: E402
from oncelog_protocol.records.columns import MAX_DECOMPRESSED_BYTES  # noqa: E402
from oncelog_protocol.records.record import Record  # noqa: E402

BASE_TIMESTAMP = slice(27, 35)
"""The position of the base timestamp in a batch."""
LONG = [b"%04d" % number * 250 for number in range(200)]
MIXED = [
    *LONG[:90],
    None,
    b"",
    b"short",
    *LONG[90:130],
    None,
    *[b"%d" % number for number in range(20)],
    *LONG[130:150],
    None,
    *LONG[150:],
]


def batch_of(
    values: list[Any], first: int, *, keys: bool = False, time: int = 1000, headers: Any = ()
) -> UndecodedBatch:
    records = [
        Record(index, time, b"k%03d" % index if keys else None, value, list(headers))
        for index, value in enumerate(values)
    ]
    batch = undecoded(RecordBatch(build_batch(records, base_offset=first)), first, MAX_DECOMPRESSED_BYTES)
    assert batch is not None
    return batch


def table(parts: list[UndecodedBatch], *, includes_headers: bool = False) -> Any:
    builder = BatchBuilder("t", 3, includes_headers=includes_headers)
    batches = []
    for part in parts:
        builder.add(part)
        if builder.is_full:
            batches.append(builder.take())
    batches.append(builder.take())
    made = [batch for batch in batches if batch is not None]
    for batch in made:
        batch.validate(full=True)
    return pa.Table.from_batches(made)


def in_one_answer(parts: list[UndecodedBatch]) -> list[UndecodedBatch]:
    """Return the batches as parts of one Fetch response."""
    answer = memoryview(bytearray(b"an answer" + b"".join(part.batch.view for part in parts)))[9:]
    found, position = [], 0
    for part in parts:
        batch = RecordBatch(answer, position)
        found.append(part._replace(batch=batch, data=batch.payload))
        position += batch.size
    return found


A, B = b"a" * 100, b"b" * 200
ALIKE, OTHERWISE = [A, B, B, A], [B, A, B, A]
"""Values of two batches that have equal size and count."""


@pytest.mark.parametrize("is_one_answer", [False, True])
@pytest.mark.parametrize(
    "batches",
    [
        [ALIKE, ALIKE, OTHERWISE, ALIKE],
        [ALIKE, OTHERWISE, OTHERWISE],
        [[A], [A, A], [A, A], [A]],
        [[b"x" * 9000] * 3] * 3,  # the length has three bytes
        [[b"x" * 8190, b"y" * 8192]] * 2 + [[b"x" * 8192, b"y" * 8190]],
    ],
)
def test_batches_of_equal_size_may_have_other_lengths(batches: list[list[bytes]], is_one_answer: bool) -> None:
    parts = [batch_of(values, 10 * number) for number, values in enumerate(batches)]
    found = table(in_one_answer(parts) if is_one_answer else parts)
    assert found["value"].to_pylist() == [value for values in batches for value in values]


def test_the_records_of_batches_with_the_same_lengths_are_found_together(monkeypatch: pytest.MonkeyPatch) -> None:
    find, calls = record_arrays.record_starts, []

    def counted(*arguments: Any) -> list[Any]:
        calls.append(arguments)
        return find(*arguments)

    monkeypatch.setattr(record_arrays, "record_starts", counted)
    parts = [batch_of(LONG, 1000 * number) for number in range(9)]
    assert table(in_one_answer(parts)).num_rows == 9 * len(LONG)
    assert len(calls) == 1


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("values", [LONG, MIXED, [None] * 30, [b""] * 30, [b"x"]])
@pytest.mark.parametrize("headers", [(), [("h", b"v")]])
def test_the_rows_are_the_records(values: list[Any], keys: bool, headers: Any) -> None:
    """The rows are equal after a gap and for a truncated batch, too; rows with headers are decoded batch by batch."""
    whole = ((values, 0), (MIXED, 500), ([b"a", None], 900), (LONG, 902))
    parts = [batch_of(part, first, keys=keys, headers=headers) for part, first in whole]
    parts = [left for each in parts if (left := each.cut(7, 1000)) is not None]
    assert (record_arrays.record_arrays(parts) is None) == bool(headers)
    found = table(parts)
    expected = dict(enumerate(values)) | dict(enumerate(MIXED, 500)) | dict(enumerate([b"a", None, *LONG], 900))
    rows = dict(zip(found["offset"].to_pylist(), found["value"].to_pylist(), strict=True))
    assert rows == {offset: value for offset, value in expected.items() if 7 <= offset < 1000}
    assert all(before < after for before, after in pairwise(rows))
    assert (found["key"].null_count == 0) == keys


def test_headers_are_null_where_there_are_none() -> None:
    parts = [batch_of([b"a"], 0, headers=[("h", b"v"), ("n", None)]), batch_of([b"b"], 1)]
    found = table(parts, includes_headers=True)
    assert found["headers"].to_pylist() == [[{"key": "h", "value": b"v"}, {"key": "n", "value": None}], None]
    assert table([batch_of([b"b"] * 2, 1)], includes_headers=True)["headers"].to_pylist() == [None, None]


READS = """
import sys
from oncelog.consumer.records import undecoded
from oncelog_pipeline.spark.source_columns import BatchBuilder
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

builder = BatchBuilder("t", 3, includes_headers=False)
records = [Record(0, 1000, None, b"a", []), Record(0, -1, b"k", None, [])]
builder.add(undecoded(RecordBatch(build_batch(records)), 0, 1000))
assert builder.take().num_rows == 2
assert "pandas" not in sys.modules
"""


def test_plain_records_are_read_without_pandas() -> None:
    """Importing pandas takes longer than most tasks."""
    subprocess.run([sys.executable, "-c", READS], check=True, timeout=60)


def test_missing_timestamps_and_keys_are_null() -> None:
    found = table([batch_of([b"%d" % time], time, time=time - 1) for time in (0, 1001)])
    assert found["key"].to_pylist() == [None, None]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [None, 1_000_000]
    assert found["partition"].to_pylist() == [3, 3]


@pytest.mark.parametrize("headers", [(), [("h", b"v")]])
@pytest.mark.parametrize(("first", "later"), [(0, 2**62), (2**62, 2**62 - 1), (2**63 - 10, 20)])
def test_a_timestamp_that_spark_does_not_have_is_refused_and_not_another(first: int, later: int, headers: Any) -> None:
    """Both decoders refuse a timestamp that Spark cannot represent. In the last case, even the number of milliseconds
    exceeds 64 bits.
    """
    made = bytearray(build_batch([Record(0, 0, None, b"a", []), Record(1, later, None, b"b", list(headers))]))
    made[BASE_TIMESTAMP] = first.to_bytes(8, "big")
    batch = undecoded(RecordBatch(made), 0, MAX_DECOMPRESSED_BYTES)
    assert batch is not None
    with pytest.raises(CorruptRecords, match=r"t-3: the record at offset [01] has the timestamp \d+ ms"):
        table([batch])


def test_positions_do_not_overflow() -> None:
    """The encoded length of a record's field has at most 27 bits."""
    assert record_arrays.MAX_BYTES + 2 ** (7 * record_arrays.MAX_SHORT - 1) < 2**31


def test_large_batches_are_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_columns, "MAX_BYTES", 150_000)
    found = table([batch_of(LONG[:100], first) for first in range(0, 500, 100)])
    assert [len(chunk) for chunk in found["offset"].chunks] == [200, 200, 100]


def test_an_empty_gathering_makes_no_batch() -> None:
    assert BatchBuilder("t", 3, includes_headers=False).take() is None


def test_data_beyond_arrows_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_arrays, "MAX_BYTES", 99_999)
    assert len(table([batch_of(LONG[:100], 0)])) == 100
    monkeypatch.setattr(source_columns, "MAX_VALUES_BYTES", 99_999)
    with pytest.raises(ValueError, match="100,000 bytes of values in one batch"):
        table([batch_of(LONG[:100], 0)])
