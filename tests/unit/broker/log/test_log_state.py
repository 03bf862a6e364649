"""LogState: the faults that take a log offline, and the log start after a power cut."""

import errno
import gc

import pytest
from tests.support.storage import SMALL, fill, open_log

from oncelog_broker.log.log_state import NOT_REFUSED, LogState
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import CorruptBatch

IO_ERROR = OSError(errno.EIO, "Input/output error")
DISK_FULL = OSError(errno.ENOSPC, "No space left on device")
NO_DESCRIPTOR = OSError(errno.EMFILE, "Too many open files")


@pytest.fixture
def state(tmp_path):
    return LogState(
        topic="orders",
        partition=3,
        directory=str(tmp_path / "orders-3"),
        config=SMALL,
        log_start_offset=10,
        recovery_point=20,
        cleaner_checkpoint=None,
    )


class TestFaults:
    def test_a_failed_write_takes_the_log_offline(self, state):
        error = state.fail("append to", IO_ERROR)
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "could not append to orders-3" in str(error)
        assert not state.may_be_changed
        with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*orders-3 is offline"):
            state.check_online()

    @pytest.mark.parametrize("refusal", [DISK_FULL, NO_DESCRIPTOR])
    def test_a_refused_write_leaves_the_log_online(self, state, refusal):
        assert state.fail_unless_refused("append to", refusal).code is ErrorCode.KAFKA_STORAGE_ERROR
        state.check_online()

    def test_a_refused_append_is_remembered_by_the_log_end(self, state):
        assert state.refused_append_at == NOT_REFUSED
        state.append_failed(DISK_FULL, end_before=25, end=25)
        assert (state.refused_append_at, state.offline_reason) == (25, None)

    def test_a_partial_append_takes_the_log_offline(self, state):
        state.append_failed(DISK_FULL, end_before=25, end=27)
        assert state.offline_reason is not None

    @pytest.mark.parametrize(
        ("error", "code"),
        [(IO_ERROR, ErrorCode.KAFKA_STORAGE_ERROR), (CorruptBatch("torn"), ErrorCode.CORRUPT_MESSAGE)],
    )
    def test_a_failed_read_leaves_the_log_online(self, state, error, code):
        assert state.read_error(error).code is code
        state.check_online()

    def test_no_change_is_allowed_during_a_truncation(self, state):
        state.is_truncating = True
        assert not state.may_be_changed
        state.check_online()


class TestDurableStart:
    def test_the_checkpointed_start_is_the_durable_one(self, state):
        state.log_start_offset, state.checkpointed_start = 30, 15
        assert state.durable_start_offset == 15

    def test_the_durable_start_is_at_least_the_first_synced_segment(self, state):
        state.log_start_offset, state.checkpointed_start = 30, 15
        state.note_synced_names(25)
        state.note_synced_names(5)  # an older flush ends after a newer one
        assert state.durable_start_offset == 25

    def test_the_durable_start_is_never_above_the_log_start(self, state):
        state.note_synced_names(99)
        assert state.durable_start_offset == state.log_start_offset == 10

    def test_segment_names_synced_before_a_truncation_do_not_count(self, state):
        state.note_synced_names(25)
        state.note_names_from(12)
        state.log_start_offset = state.checkpointed_start = 12
        state.log_start_offset = 30
        assert state.durable_start_offset == 12

    def test_each_rise_is_told(self, state):
        told = []
        state.log_start_offset = 30
        state.on_durable_start = lambda: told.append(state.durable_start_offset)
        state.checkpointed_start = 15
        state.checkpointed_start = 15  # the periodic checkpoint writes the same offset again
        state.note_synced_names(25)
        state.note_synced_names(25)
        state.checkpointed_start = 12
        assert told == [15, 25]


def test_a_released_log_is_freed_at_once(tmp_path):
    """The parts of a log must not refer back to the log object, because Python never frees a reference cycle of objects
    that are exempt from garbage collection (`runtime/garbage.py`).
    """
    log = open_log(tmp_path / "orders-0")
    fill(log, 3)
    log.close()
    gc.disable()
    try:
        before = sum(isinstance(found, PartitionLog) for found in gc.get_objects())
        del log
        assert sum(isinstance(found, PartitionLog) for found in gc.get_objects()) == before - 1
    finally:
        gc.enable()
