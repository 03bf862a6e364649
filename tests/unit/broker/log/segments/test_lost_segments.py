"""Closed segments have lost records: the log goes offline and stays unchanged, because otherwise readers would skip the
lost records.
"""

import dataclasses
import os

import pytest
from tests.support.compacted import COMPACTED, clean, entries, put
from tests.support.storage import NOW, CountingDisk, append, contents, fill, log_files, open_log

from oncelog_protocol.errors import ErrorCode, KafkaError

COUNT = 50


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "orders-0"


@pytest.fixture
def bases(directory):
    """Return the base offsets of four segments, whose batches are all synced except for the last one."""
    log = open_log(directory)
    for number in range(COUNT - 1):
        append(log, b"%070d" % number, timestamp=NOW + number)
    log.flusher.flush()
    append(log, b"%070d" % (COUNT - 1), timestamp=NOW + COUNT - 1)
    log.close()
    found = [int(file[:20]) for file in log_files(directory)]
    assert len(found) == 4
    return found


def name(base, suffix="log"):
    return f"{base:020d}.{suffix}"


def state(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def reopen(directory, *, clean_shutdown, **options):
    options.setdefault("recovery_point", COUNT if clean_shutdown else COUNT - 1)
    return open_log(directory, clean_shutdown=clean_shutdown, **options)


def assert_offline(directory, message, **options):
    before = state(directory)
    with pytest.raises(KafkaError, match=message) as caught:
        reopen(directory, **options)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert state(directory) == before


either_start = pytest.mark.parametrize("clean_shutdown", [True, False])


@either_start
@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_emptied_segment_is_reported_as_lost(directory, bases, number, clean_shutdown):
    (directory / name(bases[number])).write_bytes(b"")
    assert_offline(directory, rf"{name(bases[number])} is empty.*remove it", clean_shutdown=clean_shutdown)


@either_start
def test_an_emptied_segment_is_told_from_one_that_compaction_emptied_by_its_index(directory, bases, clean_shutdown):
    (directory / name(bases[1])).write_bytes(b"")
    assert_offline(directory, "is empty", clean_shutdown=clean_shutdown, cleaner_checkpoint=bases[3])


@either_start
def test_a_segment_emptied_with_its_indexes_is_lost_in_an_uncompacted_log(directory, bases, clean_shutdown):
    for suffix in ("log", "index", "timeindex"):
        (directory / name(bases[1], suffix)).write_bytes(b"")
    assert_offline(directory, "is empty", clean_shutdown=clean_shutdown)


@either_start
def test_the_loss_can_be_accepted_as_the_message_says(directory, bases, clean_shutdown):
    for suffix in ("log", "index", "timeindex"):
        (directory / name(bases[1], suffix)).unlink()
    log = reopen(directory, clean_shutdown=clean_shutdown)
    assert [offset for offset, _ in contents(log)] == [*range(bases[1]), *range(bases[2], COUNT)]
    log.close()


@either_start
def test_an_emptied_segment_below_the_log_start_is_no_loss(directory, bases, clean_shutdown):
    (directory / name(bases[0])).write_bytes(b"")
    log = reopen(directory, clean_shutdown=clean_shutdown, log_start_offset=bases[1])
    assert contents(log)[0][0] == bases[1]
    log.close()


@either_start
def test_segments_that_compaction_emptied_are_legal(tmp_path, clean_shutdown):
    directory = tmp_path / "compacted-0"
    config = dataclasses.replace(COMPACTED, segment_bytes=100)
    log = open_log(directory, config)
    for _ in range(4):
        put(log, (b"k", b"v"))
    assert clean(log) is not None
    found, end = entries(log), log.log_end_offset
    assert [(directory / name(0)).stat().st_size, len(found)] == [0, 2]
    log.close()
    log = open_log(directory, config, clean_shutdown=clean_shutdown, recovery_point=end, cleaner_checkpoint=0)
    assert entries(log) == found
    log.close()


@either_start
@pytest.mark.parametrize("left", [1, 700])
def test_a_segment_cut_short_is_reported(directory, bases, left, clean_shutdown):
    path = directory / name(bases[1])
    path.write_bytes(path.read_bytes()[:left])
    assert_offline(directory, rf"{name(bases[1])} ends before offset", clean_shutdown=clean_shutdown)


@either_start
def test_a_segment_cut_short_between_two_batches_is_reported(directory, bases, clean_shutdown):
    path = directory / name(bases[1])
    batch = len(path.read_bytes()) // (bases[2] - bases[1])
    path.write_bytes(path.read_bytes()[: 5 * batch])
    assert_offline(directory, rf"{name(bases[1])} ends before offset", clean_shutdown=clean_shutdown)


def test_a_cut_below_the_recovery_point_in_its_segment_is_reported(directory, bases):
    """Recovery verifies batches from the recovery point on; from there on, the truncated segment would seem to end with
    a compaction gap.
    """
    path = directory / name(bases[1])
    batch = len(path.read_bytes()) // (bases[2] - bases[1])
    path.write_bytes(path.read_bytes()[: 3 * batch])
    assert_offline(directory, "ends before offset", clean_shutdown=False, recovery_point=bases[2] - 1)


@either_start
def test_an_index_that_is_wrong_takes_no_log_offline(directory, bases, clean_shutdown):
    """The index's last entry points beyond the end of the file, but the file contains that entry's batch. So the index
    is wrong, and no record is lost.
    """
    path = directory / name(bases[1], "index")
    entries = bytearray(path.read_bytes())
    entries[-4] ^= 0x40
    path.write_bytes(entries)
    log = reopen(directory, clean_shutdown=clean_shutdown)
    assert contents(log, max_bytes=1) == [(n, b"%070d" % n) for n in range(COUNT)]
    log.close()


@either_start
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("left", ["index", "timeindex"])
def test_a_removed_log_file_is_reported(directory, bases, number, left, clean_shutdown):
    base = bases[number]
    (directory / name(base)).unlink()
    if left == "index":
        (directory / name(base, "timeindex")).unlink()
    else:
        (directory / name(base, "index")).unlink()
    assert_offline(directory, rf"{name(base)} is missing.*offset {base} on", clean_shutdown=clean_shutdown)


def test_a_log_file_that_was_being_removed_is_no_loss(directory, bases):
    """Retention and compaction rename the log file first, so a crash may leave only the segment's indexes."""
    (directory / name(bases[0])).rename(directory / name(bases[0], "log.deleted"))
    log = reopen(directory, clean_shutdown=False)
    assert contents(log)[0][0] == bases[1]
    log.close()
    assert not [file for file in os.listdir(directory) if file.startswith(f"{bases[0]:020d}")]


def test_a_log_file_that_was_not_synced_is_no_loss(directory, bases):
    """A power cut may leave only the index of a new segment."""
    (directory / name(bases[3])).unlink()
    log = reopen(directory, clean_shutdown=False, recovery_point=bases[3])
    assert [offset for offset, _ in contents(log)] == [*range(bases[3])]
    log.close()
    assert name(bases[3], "timeindex") not in os.listdir(directory)


def test_an_unsynced_segment_that_is_empty_ends_the_log(directory, bases):
    """The later segments must not stay in the log, because there would be a hole in the log before them."""
    (directory / name(bases[2])).write_bytes(b"")
    log = reopen(directory, clean_shutdown=False, recovery_point=bases[1])
    assert [offset for offset, _ in contents(log)] == [*range(bases[2])]
    assert name(bases[3], "log.discarded") in os.listdir(directory)
    fill(log, 5, start=bases[2])
    assert len(contents(log)) == bases[2] + 5
    log.close()


def test_a_start_reads_one_entry_of_each_index(directory):
    log = open_log(directory)
    fill(log, 1000)
    log.close()
    disk = CountingDisk()
    log = open_log(directory, recovery_point=1000, clean_shutdown=True, high_watermark=1000, disk=disk)
    closed = len(log.segment_base_offsets) - 1
    assert (closed > 70, disk.bytes_read < 8 * closed + 8000) == (True, True)
    log.close()
