"""One segment: the batches in its file, the entries in its indexes, and its state after each change."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.support.storage import NOW, FaultyDisk, make_batch

from oncelog_broker.log.segments.segment import DELETED_SUFFIX, Segment
from oncelog_broker.runtime.disk import Disk, RealDisk
from oncelog_protocol.records.batch import MAGIC_AT, NO_TIMESTAMP, CorruptBatch

BASE = 100
SIZE = len(make_batch())
EVERY_SECOND = SIZE + 1
"""Bytes between index entries, such that every second batch from the third on gets an entry."""


def create(directory: Path, disk: Disk | None = None) -> Segment:
    return Segment.create(disk or RealDisk(), str(directory), BASE, index_interval_bytes=EVERY_SECOND, now_ms=NOW)


def reopened(segment: Segment, directory: Path) -> Segment:
    """Return the active segment of a log that was closed in order and reopened."""
    segment.seal()
    segment.close()
    opened = Segment.open(
        RealDisk(), str(directory), BASE, index_interval_bytes=EVERY_SECOND, next_offset=segment.next_offset, now_ms=NOW
    )
    opened.activate()
    return opened


def append(segment: Segment, offset: int, timestamp: int = NOW) -> None:
    segment.append(make_batch(base_offset=offset, timestamp=timestamp), offset, timestamp)


def fill(segment: Segment, count: int) -> None:
    for number in range(count):
        append(segment, BASE + number, NOW + number)


def offsets(segment: Segment, start: int = BASE) -> list[int]:
    return [batch.last_offset for batch in segment.batches_from(start)]


def indexed(segment: Segment) -> list[tuple[int, int]]:
    """Return the (offset, position) of each entry of the offset index."""
    entries = [segment.offset_index.lookup(offset) for offset in range(BASE, segment.next_offset)]
    return sorted({(entry.offset, entry.position) for entry in entries if entry.position})


def test_an_index_entry_is_written_per_index_interval(tmp_path: Path) -> None:
    segment = create(tmp_path)
    fill(segment, 6)
    assert (segment.size, segment.next_offset, segment.noted_size) == (6 * SIZE, BASE + 6, 6 * SIZE)
    assert indexed(segment) == [(BASE + 2, 2 * SIZE), (BASE + 4, 4 * SIZE)]
    segment.close()


@pytest.mark.parametrize("offset", [BASE, BASE + 1, BASE + 2, BASE + 5])
def test_batches_are_found_with_and_without_an_entry_before_them(tmp_path: Path, offset: int) -> None:
    segment = create(tmp_path)
    fill(segment, 6)
    assert offsets(segment, offset) == list(range(offset, BASE + 6))
    segment.close()


def test_a_reopened_segment_has_the_same_state(tmp_path: Path) -> None:
    segment = create(tmp_path)
    fill(segment, 5)
    append(segment, BASE + 5, NOW - 10)
    known = (segment.size, segment.next_offset, segment.max_timestamp, segment.first_timestamp, indexed(segment))
    opened = reopened(segment, tmp_path)
    assert known == (opened.size, opened.next_offset, opened.max_timestamp, opened.first_timestamp, indexed(opened))
    append(opened, BASE + 6)
    assert offsets(opened) == list(range(BASE, BASE + 7))
    opened.close()


@pytest.mark.parametrize("end", [BASE, BASE + 1, BASE + 2, BASE + 3, BASE + 5])
def test_a_truncated_segment_equals_one_of_fewer_batches(tmp_path: Path, end: int) -> None:
    (tmp_path / "shorter").mkdir()
    cut, shorter = create(tmp_path), create(tmp_path / "shorter")
    fill(cut, 6)
    fill(shorter, end - BASE)
    cut.truncate_to(end)
    for name in ("size", "next_offset", "noted_size", "max_timestamp", "first_timestamp"):
        if end > BASE or name != "first_timestamp":
            assert getattr(cut, name) == getattr(shorter, name), name
    assert indexed(cut) == indexed(shorter)
    append(cut, end)
    assert offsets(cut) == list(range(BASE, end + 1))
    cut.close()
    shorter.close()


def test_truncation_behind_the_end_changes_nothing(tmp_path: Path) -> None:
    segment = create(tmp_path)
    fill(segment, 3)
    segment.truncate_to(BASE + 3)
    assert (segment.size, segment.next_offset) == (3 * SIZE, BASE + 3)
    segment.close()


def test_an_append_that_fails_has_changed_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    segment = create(tmp_path, disk)
    fill(segment, 2)
    disk.full(torn_bytes=10)
    with pytest.raises(OSError, match="No space") as failed:
        append(segment, BASE + 2)
    assert failed.value.errno == errno.ENOSPC
    assert (segment.size, segment.next_offset) == (2 * SIZE, BASE + 2)
    disk.append_fault = None
    append(segment, BASE + 2)
    assert offsets(segment) == [BASE, BASE + 1, BASE + 2]
    segment.close()


def test_a_segment_knows_its_largest_timestamp_and_offset(tmp_path: Path) -> None:
    segment = create(tmp_path)
    assert segment.max_timestamp == NO_TIMESTAMP
    for offset, timestamp in ((BASE, NOW), (BASE + 1, NOW + 50), (BASE + 2, NOW + 20)):
        append(segment, offset, timestamp)
    assert (segment.max_timestamp, segment.first_timestamp) == (NOW + 50, NOW)
    segment.seal()
    assert segment.time_index.last() == (NOW + 50, BASE + 1)
    assert segment.retention_timestamp_ms() == NOW + 50
    segment.close()


def test_the_age_of_a_segment_counts_from_its_first_batch(tmp_path: Path) -> None:
    segment = create(tmp_path)
    assert segment.age_ms(NOW + 7, now_ms=NOW + 5) == 5
    append(segment, BASE, NOW - 100)
    assert segment.age_ms(NOW + 7, now_ms=NOW + 5) == 107
    assert segment.age_ms(NO_TIMESTAMP, now_ms=NOW + 5) == 105
    segment.close()


def test_the_end_before_an_offset_follows_the_last_batch_that_ends_before_it(tmp_path: Path) -> None:
    segment = create(tmp_path)
    for first, last in ((BASE, BASE + 4), (BASE + 5, BASE + 6)):
        values = [b"v"] * (last - first + 1)
        segment.append(make_batch(*values, base_offset=first), last, NOW)
    ends = {offset: segment.end_before(offset) for offset in (BASE, BASE + 4, BASE + 5, BASE + 7)}
    assert ends == {BASE: BASE, BASE + 4: BASE, BASE + 5: BASE + 5, BASE + 7: BASE + 7}
    segment.close()


def test_a_segment_without_its_log_file_is_unreadable(tmp_path: Path) -> None:
    segment = Segment.create(
        RealDisk(), str(tmp_path), BASE, index_interval_bytes=EVERY_SECOND, now_ms=NOW, is_made_later=True
    )
    assert (segment.is_made, offsets(segment), list(tmp_path.iterdir())) == (False, [], [])
    segment.make()
    append(segment, BASE)
    assert offsets(segment) == [BASE]
    segment.close()


def test_a_segment_is_not_made_over_a_file_with_data(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, BASE)
    segment.close()
    with pytest.raises(FileExistsError):
        create(tmp_path)


def test_a_deleted_segment_loses_its_names_and_keeps_files_of_its_successor(tmp_path: Path) -> None:
    segment = create(tmp_path)
    fill(segment, 4)
    segment.seal()
    (tmp_path / f"{BASE:020d}.snapshot").write_bytes(b"")
    marked = segment.mark_deleted(keep=[".snapshot"])
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([*(Path(path).name for path in marked), f"{BASE:020d}.snapshot"])
    assert all(path.endswith(DELETED_SUFFIX) for path in marked)
    assert Path(marked[0]).name == f"{BASE:020d}.log{DELETED_SUFFIX}", "the log goes first"


def test_a_rebuild_that_meets_a_bad_batch_leaves_no_partial_facts(tmp_path: Path) -> None:
    segment = create(tmp_path)
    fill(segment, 6)
    segment = reopened(segment, tmp_path)
    end, newest = segment.next_offset, segment.max_timestamp
    bad = list(segment.batches_from(BASE))[3].position + MAGIC_AT
    with open(segment.path, "r+b") as file:
        file.seek(bad)
        file.write(b"\x07")
    with pytest.raises(CorruptBatch):
        segment.rebuild_indexes()
    assert segment.next_offset == end
    assert not segment.offset_index.is_active
    with open(segment.path, "r+b") as file:
        file.seek(bad)
        file.write(b"\x02")
    assert segment.max_timestamp == newest
