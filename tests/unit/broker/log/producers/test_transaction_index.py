"""The index of aborted transactions: Kafka's bytes, and the search for the transactions in a range of offsets (S52)."""

import struct

import pytest

from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.producers.transaction_index import (
    TransactionIndexes,
    format_aborted,
    parse_aborted,
)
from oncelog_broker.log.segments.index import IndexCorrupt
from oncelog_broker.runtime.disk import RealDisk

A = EndedTransaction(1, 0, 12, 5)
B = EndedTransaction(2, 5, 15, 16)
C = EndedTransaction(1, 20, 25, 22)
D = EndedTransaction(3, 22, 40, 41)


@pytest.fixture
def indexes(tmp_path):
    return TransactionIndexes(RealDisk(), str(tmp_path))


@pytest.fixture
def filled(indexes):
    indexes.append(10, A)
    indexes.append(10, B)
    indexes.append(20, C)
    indexes.append(40, D)
    return indexes


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_s51_the_bytes_are_kafkas(indexes, tmp_path):
    indexes.append(10, A)
    indexes.append(10, B)
    data = (tmp_path / f"{10:020d}.txnindex").read_bytes()
    assert data == struct.pack(">hqqqq", 0, 1, 0, 12, 5) + struct.pack(">hqqqq", 0, 2, 5, 15, 16)
    assert len(data) == 2 * 34
    assert parse_aborted(data) == [A, B]


def test_s51_a_segment_without_aborts_has_no_index_file(indexes, tmp_path):
    assert not indexes
    assert indexes.collect(0, 100) == []
    indexes.replace_from(0, {})
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "found"),
    [
        (0, 100, [A, B, C, D]),
        (0, 3, [A]),
        (0, 5, [A]),
        (0, 6, [A, B]),
        (13, 100, [B, C, D]),
        (15, 16, [B]),
        (16, 20, []),
        (16, 21, [C]),
        (16, 23, [C, D]),
        (26, 30, [D]),
        (41, 100, []),
    ],
)
def test_s52_aborted_transactions_that_overlap_the_read_are_found(filled, fetch_offset, upper_bound, found):
    assert filled.collect(fetch_offset, upper_bound) == found


def test_s52_the_search_ends_before_later_segments(filled):
    """The search does not read the index of a later segment, so damage there does no harm."""
    filled._indexes[40]._entries = None
    assert filled.collect(0, 16) == [A, B]
    assert filled.collect(16, 22) == [C]


@pytest.mark.parametrize(
    "data",
    [
        format_aborted([A])[:-1],
        b"\x00\x01" + format_aborted([A])[2:],
        format_aborted([B, A]),
        format_aborted([A, A]),
        format_aborted([EndedTransaction(1, 5, 5, 6)]),
        format_aborted([EndedTransaction(1, -1, 5, 6)]),
    ],
)
def test_a_damaged_index_is_found_until_it_is_mended(tmp_path, data):
    with pytest.raises(IndexCorrupt):
        parse_aborted(data)
    (tmp_path / f"{10:020d}.txnindex").write_bytes(data)
    (tmp_path / f"{20:020d}.txnindex").write_bytes(format_aborted([C]))
    for _ in range(2):
        loaded = TransactionIndexes(RealDisk(), str(tmp_path))
        assert loaded.load(names(tmp_path)) == 10
        assert loaded.collect(0, 100) == [C]
        loaded.replace_from(10, {10: [A], 20: [C]})
    loaded.mend()
    again = TransactionIndexes(RealDisk(), str(tmp_path))
    assert again.load(names(tmp_path)) is None
    assert again.collect(0, 100) == [A, C]


def test_written_index_entries_are_loaded(filled, tmp_path):
    loaded = TransactionIndexes(RealDisk(), str(tmp_path))
    assert loaded.load(names(tmp_path)) is None
    assert loaded
    assert loaded.collect(0, 100) == [A, B, C, D]


def test_index_entries_behind_an_offset_are_replaced(filled, tmp_path):
    filled.replace_from(13, {10: [B], 20: []})
    assert filled.collect(0, 100) == [A, B]
    assert TransactionIndexes(RealDisk(), str(tmp_path)).load(names(tmp_path)) is None
    assert (tmp_path / f"{20:020d}.txnindex").read_bytes() == b""


def test_an_unchanged_index_file_is_not_written(filled, tmp_path):
    path = tmp_path / f"{10:020d}.txnindex"
    before = path.stat().st_mtime_ns
    filled.replace_from(0, {10: [A, B], 20: [C], 40: [D]})
    assert path.stat().st_mtime_ns == before


def test_segments_that_are_gone_are_forgotten(filled):
    filled.forget_below(20)
    assert filled.collect(0, 100) == [C, D]
    filled.truncate_to(40, 20)
    assert filled.collect(0, 100) == [C]
    filled.truncate_to(25, 20)
    assert filled.collect(0, 100) == []


def test_changed_index_files_are_synced_once(filled):
    paths = filled.paths_to_sync(40)
    assert [path[-29:-9] for path in paths] == [f"{10:020d}", f"{20:020d}"]
    assert filled.paths_to_sync(30) == []
