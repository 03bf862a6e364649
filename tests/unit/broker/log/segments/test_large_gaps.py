"""A follower copies a log with compaction gaps that are larger than a segment index can express."""

import errno
from random import Random

import pytest
from tests.support.crashing_disk import CrashingDisk
from tests.support.producers import produce
from tests.support.storage import FaultyDisk, contents, log_files, make_batch, open_log

from oncelog_broker.log.segments.roll import MAX_RELATIVE_OFFSET
from oncelog_protocol.errors import KafkaError

FAR = 3 * 2**30
"""An offset beyond the range of a segment with base offset 0."""


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "orders-0"


def follow(log, *bases):
    """Append a batch of one record at each offset, as from one Fetch response of the leader."""
    log.append_as_follower(b"".join(make_batch(b"%070d" % base, base_offset=base) for base in bases))


def expected(*bases):
    return [(base, b"%070d" % base) for base in bases]


def opened_again(log, directory, *, clean):
    if clean:
        log.close()
    else:
        log.abandon()
    return open_log(directory, clean_shutdown=clean)


@pytest.mark.parametrize("clean", [True, False])
def test_a_gap_at_the_start_of_a_log_survives_recovery(directory, clean):
    """A new replica copies a topic whose first records are deleted."""
    log = open_log(directory)
    bases = [FAR + number for number in range(30)]
    follow(log, *bases)
    assert log.segment_base_offsets[0] == FAR
    log = opened_again(log, directory, clean=clean)
    assert contents(log) == expected(*bases)
    assert (log.log_start_offset, log.log_end_offset) == (FAR, FAR + 30)
    log.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_gap_between_records_survives_recovery(directory, clean):
    log = open_log(directory)
    bases = [0, 1, FAR, FAR + 1, 3 * FAR, 3 * FAR + 7]
    follow(log, *bases)
    assert log.segment_base_offsets == [0, FAR, 3 * FAR]
    assert contents(log) == expected(*bases)
    log = opened_again(log, directory, clean=clean)
    assert contents(log) == expected(*bases)
    assert contents(log, start=5) == expected(*bases[2:]), "a reader in the gap goes on behind it"
    log.trimmer.truncate_to(FAR + 1)
    assert (contents(log), log.log_end_offset) == (expected(*bases[:3]), FAR + 1)
    log.close()


def test_a_gap_up_to_the_last_offset_of_a_segment_is_kept(directory):
    log = open_log(directory)
    follow(log, 0, MAX_RELATIVE_OFFSET, MAX_RELATIVE_OFFSET + 1)
    assert log.segment_base_offsets == [0, MAX_RELATIVE_OFFSET + 1]
    log.close()


def test_a_gap_behind_an_empty_segment_survives_recovery(directory):
    """The producer state at the start of the new segment survives, too."""
    log = open_log(directory)
    produce(log, 1, 0)
    log.trimmer.roll()
    log.flusher.flush()
    follow(log, FAR)
    assert (log.segment_base_offsets, log_files(directory)) == ([0, FAR], [f"{base:020d}.log" for base in (0, FAR)])
    log = opened_again(log, directory, clean=False)
    assert not log.takes_any_sequence(1)
    assert log.log_end_offset == FAR + 1
    log.close()


def test_an_end_that_is_lost_is_told_from_a_gap(directory):
    """A power cut removed the end of a segment, but kept the next segment."""
    log = open_log(directory)
    follow(log, *range(30))
    first, second = log.segment_base_offsets[:2]
    log.abandon()
    with open(directory / f"{first:020d}.log", "r+b") as file:
        file.truncate(300)
    log = open_log(directory)
    assert log.log_end_offset < second
    assert log.segment_base_offsets == [first]
    log.close()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("rolls", [False, True])
def test_no_power_cut_takes_the_end_in_front_of_a_gap_and_leaves_what_follows(seed, rolls):
    """Otherwise the lost end of the segment would look like a compaction gap, and an incomplete replica would count as
    complete.
    """
    disk, bases = CrashingDisk(Random(seed)), [0, 1, 2, 3, FAR]
    log = open_log("/orders-0", disk=disk)
    follow(log, *bases[:2])
    log.flusher.flush()
    follow(log, *bases[2:4])
    if rolls:
        log.trimmer.roll()
    follow(log, FAR)
    disk.sync_directory("/orders-0")
    disk.open(f"/orders-0/{FAR:020d}.log").sync()
    disk.cut_power()
    found = contents(open_log("/orders-0", disk=disk))
    assert found == expected(*bases[: len(found)])


def test_a_full_disk_behind_a_gap_is_recovered_by_reopening(directory):
    """The log end is uncertain after the failed append. Reopening the log truncates the incomplete records."""
    disk = FaultyDisk()
    log = open_log(directory, disk=disk)
    follow(log, 0)
    disk.append_fault = errno.ENOSPC
    with pytest.raises(KafkaError, match="No space"):
        follow(log, FAR)
    assert log.is_offline
    log.abandon()
    log = open_log(directory)
    assert (log.log_end_offset, contents(log)) == (1, expected(0))
    follow(log, FAR)
    assert contents(log) == expected(0, FAR)
    log.close()
