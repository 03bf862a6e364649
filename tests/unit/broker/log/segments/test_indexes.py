"""The two indexes of a segment are sorted entries in memory or in a file, which are searched and truncated."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog_broker.log.segments.index import IndexCorrupt
from oncelog_broker.log.segments.offset_index import OffsetIndex
from oncelog_broker.log.segments.time_index import TimeIndex
from oncelog_broker.runtime.disk import RealDisk

BASE = 1000
POSITIONS = [(1010, 500), (1020, 900), (1050, 2000)]
TIMES = [(50, 1010), (70, 1010), (90, 1050)]


def offset_index(tmp_path: Path, *, is_active: bool = True) -> OffsetIndex:
    index = OffsetIndex(RealDisk(), str(tmp_path / "x.index"), BASE)
    if is_active:
        index.reset()
    return index


def time_index(tmp_path: Path, *, is_active: bool = True) -> TimeIndex:
    index = TimeIndex(RealDisk(), str(tmp_path / "x.timeindex"), BASE)
    if is_active:
        index.reset()
    return index


def filled(tmp_path: Path) -> tuple[OffsetIndex, TimeIndex]:
    offsets, times = offset_index(tmp_path), time_index(tmp_path)
    for entry in POSITIONS:
        offsets.append(*entry)
    for stamp in TIMES:
        times.append(*stamp)
    return offsets, times


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize(
    ("offset", "entry"),
    [(1000, (BASE, 0)), (1009, (BASE, 0)), (1010, (1010, 500)), (1049, (1020, 900)), (9999, (1050, 2000))],
)
def test_a_lookup_finds_the_greatest_entry_not_above_an_offset(
    tmp_path: Path, offset: int, entry: tuple[int, int], is_closed: bool
) -> None:
    index, _ = filled(tmp_path)
    if is_closed:
        index.seal()
        index = offset_index(tmp_path, is_active=False)
    assert index.lookup(offset) == entry


def test_a_lookup_by_position_and_the_last_entry_are_right(tmp_path: Path) -> None:
    index, _ = filled(tmp_path)
    assert [index.lookup_position(at) for at in (499, 500, 1999)] == [(BASE, 0), (1010, 500), (1020, 900)]
    index.seal()
    closed = offset_index(tmp_path, is_active=False)
    assert closed.last() == closed.last_in_file() == (1050, 2000)
    assert offset_index(tmp_path).last() == (BASE, 0), "an empty one"


@pytest.mark.parametrize(
    ("timestamp", "entry"), [(49, (-1, BASE)), (50, (50, 1010)), (89, (70, 1010)), (95, (90, 1050))]
)
def test_a_lookup_finds_the_greatest_timestamp_not_above(
    tmp_path: Path, timestamp: int, entry: tuple[int, int]
) -> None:
    _, index = filled(tmp_path)
    assert index.lookup(timestamp) == entry


def test_a_timestamp_that_is_not_larger_is_skipped(tmp_path: Path) -> None:
    _, index = filled(tmp_path)
    index.append(90, 1060)
    index.append(80, 1070)
    assert (len(index), index.last()) == (3, (90, 1050))
    assert [index.last_before(offset) for offset in (1010, 1011, 1051)] == [(-1, BASE), (70, 1010), (90, 1050)]


def test_entries_truncated_in_memory_are_truncated_in_the_file(tmp_path: Path) -> None:
    offsets, times = filled(tmp_path)
    offsets.persist()
    times.persist()
    offsets.truncate_to(1020)
    times.truncate_to(1050)
    offsets.append(1030, 950)
    times.append(80, 1030)
    offsets.seal()
    times.seal()
    assert list(map(offset_index(tmp_path, is_active=False).lookup, (1020, 1030))) == [(1010, 500), (1030, 950)]
    assert time_index(tmp_path, is_active=False).last() == (80, 1030)


def test_zeros_at_the_end_are_no_entries(tmp_path: Path) -> None:
    """Kafka preallocates its index files, so their ends consist of zeros."""
    filled(tmp_path)[0].seal()
    with (tmp_path / "x.index").open("ab") as file:
        file.write(bytes(8 * 100))
    index = offset_index(tmp_path, is_active=False)
    assert (len(index), index.last(), index.last_in_file()) == (3, (1050, 2000), (1050, 2000))
    index.activate()
    index.append(1060, 2500)
    index.seal()
    assert (tmp_path / "x.index").stat().st_size == 4 * 8


@pytest.mark.parametrize(
    ("entries", "log_size"),
    [([(1010, 500), (1010, 600)], 9999), ([(1010, 500), (1020, 500)], 9999), ([(1010, 500)], 500)],
)
def test_entries_out_of_order_or_outside_the_log_are_found(
    tmp_path: Path, entries: list[tuple[int, int]], log_size: int
) -> None:
    index = offset_index(tmp_path)
    for entry in entries:
        index.append(*entry)
    with pytest.raises(IndexCorrupt, match=r"x\.index"):
        index.check(log_size)


def test_a_missing_or_cut_index_file_is_found(tmp_path: Path) -> None:
    with pytest.raises(IndexCorrupt, match="is missing"):
        offset_index(tmp_path, is_active=False).lookup(BASE)
    (tmp_path / "x.index").write_bytes(b"123")
    with pytest.raises(IndexCorrupt, match="not a multiple of 8"):
        offset_index(tmp_path, is_active=False).lookup(BASE)
