"""Arrow batches have the rows that the records are, whatever way their values take."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra pipeline is not installed")

from oncelog import ColumnBatch  # noqa: E402
from oncelog.consumer.records import decode_columns  # noqa: E402
from oncelog_pipeline.spark import source_columns, value_column  # noqa: E402
from oncelog_pipeline.spark.source_columns import BatchBuilder  # noqa: E402
from oncelog_protocol.records.batch import RecordBatch  # noqa: E402
from oncelog_protocol.records.builder import build_batch  # noqa: E402
from oncelog_protocol.records.record import Record  # noqa: E402

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


def decoded(values: list[Any], first: int, *, leaves_runs: bool, keys: bool, time: int = 1000) -> ColumnBatch:
    records = [Record(index, time, b"k%03d" % index if keys else None, value, []) for index, value in enumerate(values)]
    batch = decode_columns(RecordBatch(build_batch(records, base_offset=first)), first, leaves_runs=leaves_runs)
    assert batch is not None
    return batch


def table(parts: list[ColumnBatch]) -> Any:
    builder = BatchBuilder("t", 3, includes_headers=False)
    batches = []
    for part in parts:
        builder.add(part)
        if builder.is_full:
            batches.append(builder.take())
    if not builder.is_empty:
        batches.append(builder.take())
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("values", [LONG, MIXED, [None] * 30, [b""] * 30, [b"x"]])
def test_runs_make_the_same_rows(values: list[Any], keys: bool) -> None:
    """Also next to batches without runs, after a gap, and cut."""
    made = []
    for leaves_runs in (False, True):
        parts = [
            decoded(part, first, leaves_runs=leaves_runs, keys=keys)
            for part, first in ((values, 0), (MIXED, 500), ([b"a", None], 900), (LONG, 902))
        ]
        parts = [left for each in parts if (left := each.cut(7, 1000)) is not None]
        assert any(part.value_runs for part in parts) == leaves_runs
        made.append(table(parts))
    plain, gathered = made
    assert gathered.equals(plain)
    expected = dict(enumerate(values)) | dict(enumerate(MIXED, 500)) | dict(enumerate([b"a", None, *LONG], 900))
    rows = dict(zip(gathered["offset"].to_pylist(), gathered["value"].to_pylist(), strict=True))
    assert rows == {offset: value for offset, value in expected.items() if 7 <= offset < 1000}
    assert all(before < after for before, after in pairwise(rows))


def test_no_timestamp_and_no_key_are_null() -> None:
    found = table([decoded([b"%d" % time], time, leaves_runs=True, keys=False, time=time - 1) for time in (0, 1001)])
    assert found["key"].to_pylist() == [None, None]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [None, 1_000_000]
    assert found["partition"].to_pylist() == [3, 3]


def test_large_batches_are_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_columns, "MAX_BYTES", 150_000)
    parts = [decoded(LONG[:100], first, leaves_runs=True, keys=False) for first in range(0, 500, 100)]
    found = table(parts)
    assert [len(chunk) for chunk in found["offset"].chunks] == [200, 200, 100]


def test_what_arrow_cannot_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_column, "MAX_BYTES", 99_999)
    with pytest.raises(ValueError, match="100,000 bytes of values in one batch"):
        table([decoded(LONG[:100], 0, leaves_runs=True, keys=False)])
