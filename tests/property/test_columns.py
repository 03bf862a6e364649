"""A batch yields the same records whether it is decoded field by field or in runs of similar records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytest import MonkeyPatch

from oncelog_protocol.records import columns
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.columns import RecordColumns, read_columns
from oncelog_protocol.records.record import Record

BASE_TIME = 1_700_000_000_000

RUNS = st.lists(
    st.tuples(
        st.integers(1, 90),  # number of records in the run
        st.one_of(st.none(), st.integers(0, 70)),  # key size
        st.one_of(st.none(), st.integers(0, 300)),  # value size
        st.sampled_from([0, 0, 1, 40, 3000]),  # milliseconds between consecutive records
        st.booleans(),  # whether records have a header
    ),
    max_size=4,
)


def batch_bytes(runs: list[tuple[int, int | None, int | None, int, bool]]) -> bytearray:
    records, time = [], BASE_TIME
    for count, key_size, value_size, gap_ms, has_header in runs:
        for index in range(count):
            key = None if key_size is None else (b"%d" % index * 70)[:key_size]
            value = None if value_size is None else (b"%d" % index * 300)[:value_size]
            records.append(Record(0, time, key, value, [("h", b"v")] if has_header else []))
            time += gap_ms
    return build_batch(records or [Record(0, time, None, None, [])], base_offset=1000)


def read(data: bytearray, min_run: int) -> RecordColumns | str:
    with MonkeyPatch.context() as patch:
        patch.setattr(columns, "MIN_RUN", min_run)
        try:
            return read_columns(RecordBatch(data))
        except CorruptBatch as error:
            return str(error)


def same(data: bytearray) -> None:
    by_field, by_run, eager = read(data, 10**9), read(data, 8), read(data, 1)
    if isinstance(by_field, str):
        assert by_field == by_run == eager
        return
    for other in (by_run, eager):
        assert not isinstance(other, str)
        for name in ("offsets", "timestamps", "keys", "values"):
            assert getattr(other, name) == getattr(by_field, name), name
        assert list(map(list, other.headers)) == list(map(list, by_field.headers))
        assert str(other.error) == str(by_field.error)


@given(RUNS)
def test_runs_equal_their_records(runs: list[tuple[int, int | None, int | None, int, bool]]) -> None:
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
