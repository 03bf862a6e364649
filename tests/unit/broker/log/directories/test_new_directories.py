"""Logs whose directories were not on the disk when the power went, or that cannot be brought there."""

from __future__ import annotations

import errno
import os

import pytest
from tests.support.logs import make_log
from tests.support.storage import NOW, SMALL, fill

from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.directories.partition_metadata import PARTITION_METADATA_FILE, partition_metadata
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk, RealFile
from oncelog_protocol.errors import ErrorCode, KafkaError

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
WHOLE = partition_metadata(TOPIC_ID)
CUT = [b"", WHOLE[:5], WHOLE[:-1], bytes(len(WHOLE)), WHOLE[:12] + bytes(len(WHOLE) - 12)]


class FailingSync(RealDisk):
    """The identity of a log cannot be synced."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return FailingFile(path, create=create)


class FailingFile(RealFile):
    def sync(self) -> None:
        if self.path.endswith(PARTITION_METADATA_FILE):
            raise OSError(errno.EIO, "Input/output error")
        super().sync()


@pytest.fixture
def start(tmp_path):
    running = []

    def start(disk=None):
        manager = LogManager.open(
            [tmp_path / "data"], node_id=1, cluster_id="c", disk=disk or RealDisk(), clock=ManualClock(NOW),
            config_of=lambda topic: SMALL,
        )  # fmt: skip
        running.append(manager)
        return manager

    yield start
    for manager in running:
        kill(manager)


def kill(manager):
    for log in manager.logs():
        log.abandon()
    for directory in manager._directories:
        directory.close(clean=False)


def tear(tmp_path, left):
    (tmp_path / "data" / "orders-0" / PARTITION_METADATA_FILE).write_bytes(left)


@pytest.mark.parametrize("left", CUT)
def test_records_of_which_nobody_knows_whose_they_are_are_set_aside(start, tmp_path, left):
    manager = start()
    fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 3)
    kill(manager)
    tear(tmp_path, left)
    manager = start()
    assert manager.failures == {}
    assert manager.partitions() == []
    (aside,) = [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert aside.name.endswith("-stray")
    assert any(path.stat().st_size for path in aside.glob("*.log"))
    assert make_log(manager, "orders", 0, OTHER_ID, SMALL).log_end_offset == 0


@pytest.mark.parametrize("left", CUT)
def test_an_empty_log_is_identified_again(start, tmp_path, left):
    manager = start()
    make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    kill(manager)
    tear(tmp_path, left)
    manager = start()
    assert manager.failures == {}
    make_log(manager, "orders", 0, OTHER_ID, SMALL)
    assert (tmp_path / "data" / "orders-0" / PARTITION_METADATA_FILE).read_bytes() == partition_metadata(OTHER_ID)


@pytest.mark.parametrize("left", [*CUT, b"version: 0\ntopic_id: not-one", b"junk"])
def test_what_was_synced_and_is_damaged_is_for_an_operator(start, tmp_path, left):
    manager = start()
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    log.flush()
    manager.checkpoint_recovery_points()
    kill(manager)
    tear(tmp_path, left)
    manager = start()
    assert PARTITION_METADATA_FILE in manager.failures["orders", 0]


def test_no_checkpoint_speaks_of_what_cannot_be_synced(start, tmp_path):
    manager = start(FailingSync())
    log = make_log(manager, "orders", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    manager.checkpoint_high_watermarks({("orders", 0): 3})
    assert "orders" not in (tmp_path / "data" / "replication-offset-checkpoint").read_text()
    with pytest.raises(KafkaError) as caught:
        log.flush()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.is_offline
    assert log.recovery_point == 0


def test_what_was_deleted_meanwhile_holds_nobody_up(start):
    manager = start()
    directory = make_log(manager, "orders", 0, TOPIC_ID, SMALL).new_directory
    manager.delete("orders", 0)
    directory.sync()
    assert directory.failure is None


def test_what_a_kill_left_is_synced_by_the_next_process(start, tmp_path, monkeypatch):
    manager = start()
    fill(make_log(manager, "orders", 0, TOPIC_ID, SMALL), 3)
    kill(manager)
    manager = start()
    synced = []
    monkeypatch.setattr(RealDisk, "sync_directory", lambda self, path: synced.append(os.path.basename(path)))
    manager.get("orders", 0).flush()
    assert synced.index("orders-0") < synced.index("data")
