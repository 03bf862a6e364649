"""A broker process leaves a file in its data directory from which the next process there identifies it."""

import stat

import pytest

from oncelog_broker.metadata.membership.incarnation import (
    SESSION_FILE,
    Predecessor,
    Trace,
    is_log_tail_kept,
    leave_trace,
    read_trace,
)
from oncelog_broker.metadata.stores.store import ConnectionLost, SessionKey
from oncelog_broker.runtime import disk
from oncelog_broker.runtime.disk import RealDisk

KEY = SessionKey(0x1F00000000000001, bytes(range(16)))


def test_a_trace_is_read_back_and_private(tmp_path):
    for trace in (Trace(KEY, "b"), Trace(None, "b"), Trace(SessionKey(-5, b"x" * 16), ""), Trace(KEY, "b", False)):
        leave_trace(RealDisk(), str(tmp_path), trace)
        assert read_trace(RealDisk(), str(tmp_path)) == trace
        assert stat.S_IMODE((tmp_path / SESSION_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"session":"x","password":"","boot":""}', b"\xff"])
def test_a_trace_that_cannot_be_read_is_none(tmp_path, content):
    if content is not None:
        (tmp_path / SESSION_FILE).write_bytes(content)
    assert read_trace(RealDisk(), str(tmp_path)) is None


@pytest.mark.parametrize(
    ("trace", "boot", "was_closed_cleanly", "is_kept"),
    [
        (None, "a", True, True),
        (None, "a", False, False),
        (Trace(KEY, "a"), "a", False, True),
        (Trace(KEY, "a"), "b", False, False),
        (Trace(KEY, "a"), "b", True, True),
        (Trace(KEY, ""), "", False, False),
        (Trace(KEY, "a", is_log_tail_kept=False), "a", True, False),
    ],
)
def test_the_end_of_the_logs_is_sure_after_a_clean_stop_or_in_the_same_boot(trace, boot, was_closed_cleanly, is_kept):
    assert is_log_tail_kept(trace, boot, was_closed_cleanly=was_closed_cleanly) is is_kept


def test_a_system_without_a_boot_id_has_none(monkeypatch, tmp_path):
    assert RealDisk().boot_id() == RealDisk().boot_id()
    monkeypatch.setattr(disk, "BOOT_ID_FILE", str(tmp_path / "none"))
    assert RealDisk().boot_id() == ""


class Store:
    session_key = SessionKey(7, b"p" * 16)

    def __init__(self, error=None):
        self.ended, self._error = [], error

    async def end_session(self, key):
        self.ended.append(key)
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, ConnectionLost("", "gone")])
async def test_the_session_before_is_ended_or_ends_by_itself(tmp_path, error):
    leave_trace(RealDisk(), str(tmp_path), Trace(KEY, "b"))
    store = Store(error)
    predecessor = Predecessor(store, RealDisk(), str(tmp_path), was_closed_cleanly=True)
    await predecessor.end_session()
    assert store.ended == [KEY]
    predecessor.leave_trace()
    assert read_trace(RealDisk(), str(tmp_path)) == Trace(store.session_key, predecessor.boot)


def test_a_restarted_broker_reports_possible_losses_of_its_crashed_predecessor(tmp_path):
    """The previous process ended at some point before it registered, perhaps in an orderly way."""
    leave_trace(RealDisk(), str(tmp_path), Trace(KEY, "the boot before"))
    for was_closed_cleanly in (False, True, False):
        process = Predecessor(Store(), RealDisk(), str(tmp_path), was_closed_cleanly=was_closed_cleanly)
        assert not process.is_log_tail_kept
        # The file of the previous process keeps the key of the metadata store session that must still be closed.
        assert read_trace(RealDisk(), str(tmp_path)).key == KEY
    process.leave_trace()
    successor = Predecessor(Store(), RealDisk(), str(tmp_path), was_closed_cleanly=False)
    assert not successor.is_log_tail_kept
    successor.leave_trace()
    successor.on_registered()
    assert successor.is_log_tail_kept
    assert Predecessor(Store(), RealDisk(), str(tmp_path), was_closed_cleanly=False).is_log_tail_kept
