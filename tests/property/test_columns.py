"""The two ways through a batch's bytes (field by field, run by run) give the same records, and so do runs of values
that are left where they are."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st
from pytest import MonkeyPatch

from oncelog.consumer.records import ColumnBatch, decode_columns
from oncelog_protocol.records import columns
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.columns import FieldRun, RecordColumns, read_columns
from oncelog_protocol.records.record import Record

BASE_TIME = 1_700_000_000_000

RUNS = st.lists(
    st.tuples(
        st.integers(1, 90),  # records of the run
        st.one_of(st.none(), st.integers(0, 70)),  # key size
        st.one_of(st.none(), st.integers(0, 300)),  # value size
        st.sampled_from([0, 0, 1, 40, 3000]),  # ms between records
        st.booleans(),  # with a header
    ),
    max_size=4,
)


LEFT_RUNS = st.lists(
    st.tuples(st.integers(10, 90), st.sampled_from([None, 1]), st.integers(20, 300), st.just(1), st.just(False)),
    min_size=1,
    max_size=3,
)
"""Of which most are long enough to stay where they are."""


def batch_bytes(runs: list[tuple[int, int | None, int | None, int, bool]]) -> bytearray:
    records, time = [], BASE_TIME
    for count, key_size, value_size, gap_ms, has_header in runs:
        for index in range(count):
            key = None if key_size is None else (b"%d" % index * 70)[:key_size]
            value = None if value_size is None else (b"%d" % index * 300)[:value_size]
            records.append(Record(0, time, key, value, [("h", b"v")] if has_header else []))
            time += gap_ms
    return build_batch(records or [Record(0, time, None, None, [])], base_offset=1000)


def read(data: bytearray, min_run: int, *, leaves_runs: bool = False) -> RecordColumns | str:
    with MonkeyPatch.context() as patch:
        patch.setattr(columns, "MIN_RUN", min_run)
        patch.setattr(columns, "MIN_LEFT_BYTES", 100)
        try:
            found = read_columns(RecordBatch(data), leaves_runs=leaves_runs)
        except CorruptBatch as error:
            return str(error)
    found.values = cut_out(found.values, found.value_runs or ())
    return found


def cut_out(values: list[bytes | None], runs: Sequence[FieldRun]) -> list[bytes | None]:
    """All values, those of runs in their places, where there was nothing before."""
    values = list(values)
    for run in runs:
        place = slice(run.first, run.end)
        assert values[place] == [None] * run.rows
        starts = range(run.start + run.at, run.start + run.at + run.rows * run.stride, run.stride)
        values[place] = [run.data[at : at + run.length] for at in starts]
        assert run.start + run.rows * run.stride <= len(run.data)
    return values


def same(data: bytearray) -> None:
    by_field, by_run, eager = read(data, 10**9), read(data, 8), read(data, 1)
    left = read(data, 8, leaves_runs=True)
    if isinstance(by_field, str):
        assert by_field == by_run == eager == left
        return
    for other in (by_run, eager, left):
        assert not isinstance(other, str)
        for name in ("offsets", "timestamps", "keys", "values"):
            assert getattr(other, name) == getattr(by_field, name), name
        assert list(map(list, other.headers)) == list(map(list, by_field.headers))
        assert str(other.error) == str(by_field.error)


@given(RUNS)
def test_runs_are_what_their_records_are(runs: list[tuple[int, int | None, int | None, int, bool]]) -> None:
    same(batch_bytes(runs))


@given(RUNS, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3))
def test_runs_agree_about_damage(
    runs: list[tuple[int, int | None, int | None, int, bool]], damage: list[tuple[int, int]]
) -> None:
    data = batch_bytes(runs)
    payload = len(data) - 61
    for position, byte in damage:
        data[61 + position % payload] = byte
    same(data)


@given(st.one_of(RUNS, LEFT_RUNS), st.floats(0, 1), st.floats(0, 1))
@example([(50, None, 100, 0, False)], 0.4, 0.5)
def test_what_is_cut_has_its_part_of_runs(
    runs: list[tuple[int, int | None, int | None, int, bool]], left_out: float, kept: float
) -> None:
    """`left_out`: how much of all records is before the cut; `kept`: how much of the others is in it."""
    data, total = RecordBatch(batch_bytes(runs)), sum(run[0] for run in runs)
    start = int(left_out * total)
    end = start + round(kept * (total - start))
    with MonkeyPatch.context() as patch:
        patch.setattr(columns, "MIN_LEFT_BYTES", 100)
        batch, plain = decode_columns(data, 1000, leaves_runs=True), decode_columns(data, 1000)
    assert batch is not None
    assert plain is not None
    cut, expected = batch.cut(1000 + start, 1000 + end), plain.cut(1000 + start, 1000 + end)
    if cut is None:
        assert expected is None
        return
    assert isinstance(expected, ColumnBatch)
    assert cut.offsets == expected.offsets
    assert cut_out(cut.values, cut.value_runs) == expected.values
