"""The file of a log's first segment is created with the first record. Before that, the log has only a directory and an
identity file.
"""

import errno
import os

import pytest
from tests.support.storage import append, contents, log_files, open_log

from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError


class SyncedNames(RealDisk):
    """Records the names that a directory has at its last sync."""

    def __init__(self):
        self.names = {}

    def sync_directory(self, path):
        self.names[path] = set(os.listdir(path))
        super().sync_directory(path)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "orders-0"


def test_the_first_segment_is_made_with_the_first_record(directory):
    log = open_log(directory)
    assert contents(log) == []
    assert run_steps(log.reader.offset_for_timestamp(0, upper_bound=0)) is None
    assert log_files(directory) == []
    assert append(log, b"first") == 0
    assert log_files(directory) == ["00000000000000000000.log"]
    log.close()
    log = open_log(directory, clean_shutdown=True)
    assert contents(log) == [(0, b"first")]
    log.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_got_no_record_is_opened_again_without_one(directory, clean):
    log = open_log(directory)
    if clean:
        log.close()
    else:
        log.abandon()
    assert os.listdir(directory) == []
    log = open_log(directory, clean_shutdown=clean)
    assert os.listdir(directory) == []
    assert append(log, b"first") == 0
    log.close()
    assert contents(open_log(directory, clean_shutdown=True)) == [(0, b"first")]


@pytest.mark.parametrize("flushes_before", [0, 1, 2])
def test_the_name_of_the_first_segment_is_synced_before_its_records_count_as_flushed(directory, flushes_before):
    disk = SyncedNames()
    log = open_log(directory, disk=disk)
    for _ in range(flushes_before):
        log.flusher.flush()
    append(log, b"first", epoch=-1)  # without a leader epoch, because an epoch would create a file, too
    log.flusher.flush()
    assert log.recovery_point == 1
    assert "00000000000000000000.log" in disk.names[str(directory)]
    log.close()


def test_a_failure_to_make_the_first_segment_refuses_the_append_and_keeps_the_log(directory):
    errors = [errno.ENOSPC, errno.EMFILE]

    class RefusingDisk(RealDisk):
        def open(self, path, *, create=False):
            if errors:
                raise OSError(errors.pop(0), "no")
            return super().open(path, create=create)

    log = open_log(directory, disk=RefusingDisk())
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            append(log, b"refused")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert append(log, b"first") == 0
    assert contents(log) == [(0, b"first")]
    log.close()


def test_the_log_start_survives_a_log_without_first_segment(directory):
    """The name of an empty segment file may be the only record of the log start."""
    log = open_log(directory, recovery_point=5, log_start_offset=5)
    assert log_files(directory) == ["00000000000000000005.log"]
    log.close()
    assert open_log(directory, clean_shutdown=True).log_start_offset == 5


def test_a_log_without_first_segment_can_be_truncated_and_rolled(directory):
    log = open_log(directory)
    log.trimmer.roll()
    log.trimmer.truncate_to(0)
    assert log.trimmer.delete_records_before(0) == 0
    log.trimmer.truncate_fully_and_start_at(7)
    assert append(log, b"seventh") == 7
    assert contents(log) == [(7, b"seventh")]
    log.close()


def test_a_file_in_place_of_the_first_segment_is_not_overwritten(directory):
    log = open_log(directory)
    (directory / "00000000000000000000.log").write_bytes(b"another's")
    with pytest.raises(KafkaError, match="has data already"):
        append(log, b"first")
    assert (directory / "00000000000000000000.log").read_bytes() == b"another's"
