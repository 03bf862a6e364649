"""A log on a full disk stays intact: a refused append has changed nothing and may be retried."""

import errno
import os

import pytest
from tests.support.producers import ABORT, all_aborted, committed, mark, produce
from tests.support.storage import FaultyDisk, append, contents, fill, open_log

from oncelog_broker.runtime.disk import RealDisk, is_out_of_space
from oncelog_protocol.errors import KafkaError


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "orders-0"


def expected(count):
    return [(n, b"%070d" % n) for n in range(count)]


def no_room(path, data, **_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_on_a_full_disk_refuses_appends_and_continues(directory):
    disk = FaultyDisk()
    log = open_log(directory, disk=disk)
    fill(log, 30)
    log.flusher.flush()
    disk.full(torn_bytes=70)
    for _ in range(2):
        with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*No space"):
            append(log, b"lost")
    assert contents(log) == expected(30)
    assert log.reader.offset_for_timestamp(0, upper_bound=30) is not None
    assert log.trimmer.delete_records_before(25) == 25
    assert log.segment_base_offsets[0] > 0, "which may be what makes room"
    disk.append_fault = None
    assert append(log, b"x" * 70) == 30
    assert contents(log)[-1] == (30, b"x" * 70)
    log.close()
    assert log.is_cleanly_closed
    log = open_log(directory, clean_shutdown=True, log_start_offset=25)
    assert contents(log)[-1] == (30, b"x" * 70)
    log.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_full_disk_for_an_index_refuses_the_append(directory, suffix):
    disk = FaultyDisk()
    log = open_log(directory, disk=disk)
    fill(log, 8)
    disk.suffix = suffix
    disk.full()
    for change in (log.trimmer.roll, log.flusher.flush):
        with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*No space"):
            change()
    assert log.segment_base_offsets == [0]
    assert log.recovery_point == 0
    append(log, b"x")
    disk.append_fault = None
    log.trimmer.roll()
    log.flusher.flush()
    assert (log.segment_base_offsets, log.recovery_point) == ([0, 9], 9)
    log.close()


def test_a_full_disk_for_the_transaction_index_fails_the_flush_and_is_recovered(directory):
    disk = FaultyDisk()
    log = open_log(directory, disk=disk)
    produce(log, 1, 0, transactional=True)
    disk.suffix = ".txnindex"
    disk.full()
    mark(log, 1, ABORT)
    assert committed(log) == []
    with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*No space"):
        log.flusher.flush()
    disk.append_fault = None
    log.close()
    log = open_log(directory, clean_shutdown=True)
    assert all_aborted(log) == [(1, 0, 1, 2)]
    log.close()


def test_a_full_disk_for_a_snapshot_keeps_the_segments_that_wait_for_it(directory, monkeypatch):
    disk = FaultyDisk()
    log = open_log(directory, disk=disk)
    produce(log, 1, 0)
    log.trimmer.roll()
    with monkeypatch.context() as full:
        full.setattr(FaultyDisk, "replace_file", staticmethod(no_room))
        log.trimmer.delete_records_before(1)
        log.flusher.flush()
    assert (log.recovery_point, log.segment_base_offsets, log.flusher.is_flush_due) == (1, [0, 1], True)
    log.flusher.flush()
    assert (log.segment_base_offsets, log.flusher.is_flush_due) == ([1], False)
    log.close()


def test_a_full_disk_for_a_leader_epoch_refuses_the_append(directory, monkeypatch):
    log = open_log(directory, disk=FaultyDisk())
    fill(log, 2, epoch=1)
    with monkeypatch.context() as full:
        full.setattr(FaultyDisk, "replace_file", staticmethod(no_room))
        for _ in range(2):
            with pytest.raises(KafkaError, match="leader epochs"):
                append(log, b"x", epoch=2)
        assert log.trimmer.delete_records_before(1) == 1
    assert append(log, b"x", epoch=2) == 2
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(1, 1), (2, 2)]
    log.close()


def test_an_empty_leader_epoch_is_removed_without_records(directory):
    disk = FaultyDisk()
    log = open_log(directory, disk=disk)
    fill(log, 2, epoch=1)
    disk.full()
    with pytest.raises(KafkaError, match="No space"):
        append(log, b"x", epoch=2)
    assert log.latest_epoch == 2
    log.trimmer.truncate_to(2)
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(1, 0)]
    log.abandon()
    log = open_log(directory)
    assert (log.latest_epoch, contents(log)) == (1, expected(2))
    log.close()


def test_a_short_write_counts_as_a_full_disk(tmp_path, monkeypatch):
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: len(data) - 1)
    with pytest.raises(OSError, match="were written") as caught:
        file.append(b"data")
    assert is_out_of_space(caught.value)
    assert file.size == 0
    file.close()


def test_e49_appends_refused_by_a_full_disk_are_one_log_line(tmp_path, caplog):
    disk = FaultyDisk()
    logs = [open_log(tmp_path / name, disk=disk) for name in ("orders-0", "orders-1")]
    disk.full()
    for _ in range(20):
        for log in logs:
            with pytest.raises(KafkaError, match="No space left"):
                append(log)
    assert caplog.text.count("could not append") == 1
    for log in logs:
        log.abandon()
