"""A broker is killed during a compaction, at every single change of the disk, and then started again."""

import dataclasses
import errno
import os
import shutil
from contextlib import suppress

import pytest
from tests.support.compacted import COMPACTED, DAY_MS, PLENTY, Entry, clean, compaction_of, entries, last_values, put
from tests.support.storage import NOW, StoppingDisk, open_log

from oncelog_broker.log.compaction.compaction import Compaction
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.disk import SMALL_READ_SIZE
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.batch import CorruptBatch
from oncelog_protocol.records.compression import Compression

ONE_GROUP = COMPACTED
TWO_GROUPS = dataclasses.replace(COMPACTED, segment_bytes=1300)


def make(directory, config, *, disk=None) -> PartitionLog:
    """Create a log with an active segment and four closed segments of 8 batches each. Later records supersede all
    records of the last closed segment.
    """
    log = open_log(directory, config, disk=disk or StoppingDisk())
    for segment in range(4):
        for number in range(8):
            key = b"k%d" % (number % 3 if segment < 3 else 7)
            put(log, (key, b"%d-%d" % (segment, number)), (b"other", b"v" * 20), compression=Compression.LZ4)
        put(log, (b"deleted", None))
        log.trimmer.roll()
    put(log, (b"k7", b"active"))
    log.flusher.flush()
    return log


def run_until_stopped(log: PartitionLog, disk: StoppingDisk) -> bool:
    """Compact the log on a disk that may stop. Returns whether the compaction completed."""
    try:
        return clean(log, disk=disk) is not None
    except (OSError, KafkaError):
        return False


def content(directory, config) -> list[Entry]:
    log = open_log(directory, config)
    found = entries(log)
    log.close()
    return found


@pytest.mark.parametrize("config", [ONE_GROUP, TWO_GROUPS], ids=["one group", "two groups"])
def test_a_compaction_killed_at_any_change_of_the_disk_loses_nothing(tmp_path, config):
    make(tmp_path / "made", config).abandon()
    before = content(tmp_path / "made", config)
    shutil.copytree(tmp_path / "made", tmp_path / "whole")
    disk = StoppingDisk()
    whole = open_log(tmp_path / "whole", config, disk=disk)
    counted_from = disk.changes
    assert clean(whole, disk=disk) is not None
    changes = disk.changes - counted_from
    after = entries(whole)
    groups = len(whole.segment_base_offsets) - 1
    whole.close()
    assert (groups, len(after) < len(before) / 2, changes > 20) == (1 if config is ONE_GROUP else groups, True, True)

    outcomes = set()
    for stop_at in range(0, changes, 1 if config is ONE_GROUP else 3):
        here = tmp_path / f"at-{stop_at}"
        shutil.copytree(tmp_path / "made", here)
        disk = StoppingDisk()
        recovery_point = before[-1].offset + 1
        log = open_log(here, config, disk=disk, recovery_point=recovery_point)
        disk.stop_at = disk.changes + stop_at
        assert not run_until_stopped(log, disk)
        log.abandon()

        reopened = open_log(here, config, recovery_point=recovery_point, cleaner_checkpoint=0)
        found = entries(reopened)
        outcomes.add(tuple(found))
        assert last_values(found) == last_values(before)
        assert [name for name in os.listdir(here) if name.endswith((".swap", ".cleaned", ".deleted"))] == []
        for offset in range(0, reopened.log_end_offset + 1, 5):
            assert entries(reopened, offset) == [entry for entry in found if entry.offset >= offset]
        assert clean(reopened) is not None
        assert entries(reopened) == after
        reopened.close()
        shutil.rmtree(here)
    if config is ONE_GROUP:
        assert outcomes == {tuple(before), tuple(after)}, "a group is as before or as after, never a mixture"
    else:
        assert all(set(after) <= set(outcome) <= set(before) for outcome in outcomes)


def test_a_failed_write_leaves_the_log_online_and_nothing_behind(tmp_path):
    log = make(tmp_path, ONE_GROUP)
    before = entries(log)
    disk = StoppingDisk(stop_at=0)
    assert not run_until_stopped(log, disk)
    assert entries(log) == before
    assert clean(log) is not None
    assert last_values(entries(log)) == last_values(before)
    assert [name for name in os.listdir(tmp_path) if name.endswith((".swap", ".cleaned"))] == []
    log.close()


class FailsOnce(StoppingDisk):
    """A disk on which one change fails and all other changes succeed."""

    __slots__ = ()

    def step(self) -> None:
        self.changes += 1
        if self.changes == self.stop_at:
            raise OSError(errno.EIO, "an error of the disk")


def test_a_disk_that_fails_once_takes_nothing_with_it(tmp_path):
    """If the failure occurs while segments are replaced, the compacted files may be the only copy of the records."""
    make(tmp_path / "made", ONE_GROUP).abandon()
    before = last_values(content(tmp_path / "made", ONE_GROUP))
    went_offline = 0
    for stop_at in range(1, 60):
        here = tmp_path / f"at-{stop_at}"
        shutil.copytree(tmp_path / "made", here)
        disk = FailsOnce()
        log = open_log(here, ONE_GROUP, disk=disk)
        recovery_point = log.log_end_offset
        disk.stop_at = disk.changes + stop_at
        finished = run_until_stopped(log, disk)
        went_offline += log.is_offline
        log.abandon()
        reopened = open_log(here, ONE_GROUP, recovery_point=recovery_point, cleaner_checkpoint=0)
        assert last_values(entries(reopened)) == before
        reopened.close()
        shutil.rmtree(here)
        if finished and disk.changes < disk.stop_at:
            break
    assert went_offline > 10


def test_a_topic_that_is_made_again_meanwhile_gets_nothing_of_the_one_before(tmp_path):
    """The re-created topic's directory has the same name. Files that the old topic's compaction still writes there must
    be ignored, even after the process is killed.
    """
    for stop_at in range(25):
        here = tmp_path / f"at-{stop_at}"
        log = open_log(here, ONE_GROUP)
        for number in range(4):
            put(log, (b"k", b"%d" % number))
        log.trimmer.roll()
        disk = StoppingDisk()
        steps, chunk, jobs = compaction_of(log, disk=disk).steps(), None, 0
        while jobs < 2:  # the first job reads the keys; the second reads the records again to write them
            job = steps.send(chunk)
            chunk = job() if job is not None else None
            jobs += job is not None
        log.abandon()
        os.rename(here, tmp_path / f"deleted-{stop_at}")
        again = open_log(here, ONE_GROUP)
        put(again, (b"k", b"of the new topic"))
        again.flusher.flush()
        expected = entries(again)
        disk.stop_at = stop_at
        with suppress(StopIteration, OSError, KafkaError, CorruptBatch):
            job = steps.send(chunk)
            while True:
                job = steps.send(job() if job is not None else None)
        again.abandon()
        assert content(here, ONE_GROUP) == expected


def steps_of(log: PartitionLog):
    end = log.segment_base_offsets[-1]
    compaction = Compaction(
        log,
        disk=StoppingDisk(),
        first_dirty=0,
        end=end,
        now_ms=NOW,
        offset_map_bytes=PLENTY,
        producer_id_expiration_ms=DAY_MS,
        all_replicas_have_it=True,
    )
    return compaction.steps()


@pytest.mark.parametrize("change", ["retention", "truncation", "truncation and growth", "deletion"])
def test_a_log_that_changes_meanwhile_is_left_as_it_is(tmp_path, change):
    """The compaction notices any change of the log between two steps and removes its own files."""
    made = make(tmp_path / "made", ONE_GROUP)
    end = made.log_end_offset
    made.abandon()
    for at in range(0, 60, 3):
        here = tmp_path / f"at-{at}"
        shutil.copytree(tmp_path / "made", here)
        log = open_log(here, ONE_GROUP)
        steps, sent, number = steps_of(log), None, 0
        expected: list[Entry] | None = None
        result: object = "unfinished"
        try:
            while True:
                if number == at:
                    expected = alter(log, change, end)
                job = steps.send(sent)
                sent = job() if job is not None else None
                number += 1
        except StopIteration as finished:
            result = finished.value
        except (KafkaError, OSError):
            result = None
        steps.close()
        if expected is None:
            break
        assert result is None
        assert [name for name in os.listdir(here) if name.endswith((".swap", ".cleaned"))] == []
        if change != "deletion":
            assert entries(log) == expected
            log.close()
    assert at > 3, "there are steps to interrupt"


def alter(log: PartitionLog, change: str, end: int) -> list[Entry]:
    if change == "retention":
        log.trimmer.delete_records_before(log.segment_base_offsets[1])
    elif change == "deletion":
        log.abandon()
        return []
    else:
        log.trimmer.truncate_to(end // 2)
        if change == "truncation and growth":
            for _ in range(3):
                put(log, (b"k1", b"new"))
                log.trimmer.roll()
    return entries(log)


def test_a_kept_view_of_a_replaced_segment_stays_readable(tmp_path):
    config = dataclasses.replace(ONE_GROUP, segment_bytes=1 << 20)
    log = open_log(tmp_path, config)
    for number in range(3):
        put(log, (b"k", b"%d" % number * 80_000))
    log.trimmer.roll()
    view = log.reader.read(0, 1 << 20, upper_bound=log.log_end_offset, min_one_batch=True)
    assert len(view) > SMALL_READ_SIZE, "large enough to be a mapping of the file"
    copy = bytes(view)
    assert clean(log) is not None
    for path in log.trimmer.take_deleted(10.0**9):
        os.unlink(path)
    assert [name for name in os.listdir(tmp_path) if name.endswith(".deleted")] == []
    assert bytes(view) == copy
    log.close()


def test_a_flush_under_way_survives_the_replacement(tmp_path):
    log = open_log(tmp_path, ONE_GROUP)
    for number in range(40):
        put(log, (b"k", b"%d" % number))
        if number % 10 == 9:
            log.trimmer.roll()
    put(log, (b"k", b"active"))
    pending = log.flusher.prepare_flush()
    assert pending is not None
    assert clean(log) is not None
    pending.sync()
    log.flusher.finish_flush(pending)
    assert log.recovery_point == log.log_end_offset
    assert not log.is_offline
    log.close()
