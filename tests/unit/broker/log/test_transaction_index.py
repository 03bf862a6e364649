"""The index of aborted transactions: Kafka's bytes, and the search of S52."""

import struct

import pytest

from oncelog_broker.log.producers.transaction_index import (
    AbortedTransaction,
    TransactionIndexes,
    format_aborted,
    parse_aborted,
)
from oncelog_broker.log.segments.index import IndexCorrupt
from oncelog_broker.runtime.disk import RealDisk

A = AbortedTransaction(1, 0, 12, 5)
B = AbortedTransaction(2, 5, 15, 16)
C = AbortedTransaction(1, 20, 25, 22)
D = AbortedTransaction(3, 22, 40, 41)


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


def test_s51_there_is_no_file_where_nothing_was_aborted(indexes, tmp_path):
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
def test_s52_those_that_touch_what_was_read(filled, fetch_offset, upper_bound, found):
    assert filled.collect(fetch_offset, upper_bound) == found


def test_s52_the_search_ends_where_all_before_was_decided(filled):
    """An entry of a later segment is not even looked at: its file may be gone bad without harm here."""
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
        format_aborted([AbortedTransaction(1, 5, 5, 6)]),
        format_aborted([AbortedTransaction(1, -1, 5, 6)]),
    ],
)
def test_a_damaged_index_is_found_and_removed(tmp_path, data):
    with pytest.raises(IndexCorrupt):
        parse_aborted(data)
    (tmp_path / f"{10:020d}.txnindex").write_bytes(data)
    (tmp_path / f"{20:020d}.txnindex").write_bytes(format_aborted([C]))
    loaded = TransactionIndexes(RealDisk(), str(tmp_path))
    assert loaded.load(names(tmp_path)) == 10
    assert names(tmp_path) == [f"{20:020d}.txnindex"]
    assert loaded.collect(0, 100) == [C]


def test_what_was_written_is_loaded(filled, tmp_path):
    loaded = TransactionIndexes(RealDisk(), str(tmp_path))
    assert loaded.load(names(tmp_path)) is None
    assert loaded
    assert loaded.collect(0, 100) == [A, B, C, D]


def test_what_comes_behind_an_offset_is_replaced(filled, tmp_path):
    filled.replace_from(13, {10: [B], 20: []})
    assert filled.collect(0, 100) == [A, B]
    assert TransactionIndexes(RealDisk(), str(tmp_path)).load(names(tmp_path)) is None
    assert (tmp_path / f"{20:020d}.txnindex").read_bytes() == b""


def test_a_file_is_not_written_where_it_says_so_already(filled, tmp_path):
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


def test_files_with_news_are_synced_once(filled):
    files = filled.files_to_sync(40)
    assert [file.path[-29:-9] for file in files] == [f"{10:020d}", f"{20:020d}"]
    for file in files:
        file.close()
    assert filled.files_to_sync(30) == []
