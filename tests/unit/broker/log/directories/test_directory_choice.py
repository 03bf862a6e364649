"""A full or failing data directory is not the first choice for new logs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.logs import make_log
from tests.support.storage import SMALL

from oncelog_broker.log.directories.directory_choice import LITTLE_ROOM_BYTES, REFUSAL_SECONDS
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_protocol.errors import KafkaError

TOPIC_ID = bytes([1]) * 16


class TwoDisks(RealDisk):
    """A disk on which the directory `b` is a separate device that may be full."""

    def __init__(self) -> None:
        self.free = {"a": 2 * LITTLE_ROOM_BYTES, "b": 2 * LITTLE_ROOM_BYTES}
        self.refuses_directories = self.refuses_files = self.refuses_removal = False

    def room(self, path: str) -> tuple[int, int]:
        return 10 * LITTLE_ROOM_BYTES, self.free[os.path.basename(path)]

    def _refuse(self, path: str, is_refused: bool) -> None:
        if is_refused and "/b/" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def make_directories(self, path: str) -> bool:
        self._refuse(path, self.refuses_directories)
        return super().make_directories(path)

    def replace_file(self, path: str, data: bytes, *, is_durable: bool = True, private: bool = False) -> None:
        self._refuse(path, self.refuses_files)
        super().replace_file(path, data, is_durable=is_durable, private=private)

    def remove_tree(self, path: str) -> None:
        self._refuse(path, self.refuses_removal)
        super().remove_tree(path)


@pytest.fixture
def disk() -> TwoDisks:
    return TwoDisks()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def logs(tmp_path: Path, disk: TwoDisks, clock: ManualClock) -> Iterator[LogManager]:
    directories = [tmp_path / "a", tmp_path / "b"]
    manager = LogManager.open(directories, node_id=1, cluster_id="c", disk=disk, clock=clock)
    yield manager
    manager.close()


def made_in(log: PartitionLog) -> str:
    return Path(log.directory).parent.name


def make(logs: LogManager, partition: int) -> str:
    return made_in(make_log(logs, "orders", partition, TOPIC_ID, SMALL))


def test_new_logs_go_to_the_directory_with_the_fewest_logs(logs: LogManager) -> None:
    assert [make(logs, number) for number in range(4)] == ["a", "b", "a", "b"]


def test_e47_a_directory_that_has_refused_a_log_is_not_the_first_choice_for_a_while(
    logs: LogManager, disk: TwoDisks, clock: ManualClock
) -> None:
    make(logs, 0)
    disk.refuses_directories = True
    with pytest.raises(KafkaError, match="No space left"):
        make(logs, 1)
    assert [make(logs, number) for number in (1, 2)] == ["a", "a"], "tried again, it is made elsewhere"
    disk.refuses_directories = False
    clock.advance_ms(int(REFUSAL_SECONDS * 1000))
    assert make(logs, 3) == "b"


def test_e47_a_directory_with_little_room_is_not_the_first_choice(logs: LogManager, disk: TwoDisks) -> None:
    disk.free["b"] = LITTLE_ROOM_BYTES - 1
    logs.note_rooms()
    assert [make(logs, number) for number in range(3)] == ["a", "a", "a"]
    disk.free["a"] = 0
    logs.note_rooms()
    assert make(logs, 3) == "b", "where all are full, the one with the fewest"


def test_e47_a_failed_creation_leaves_no_directory(logs: LogManager, disk: TwoDisks, tmp_path: Path) -> None:
    make(logs, 0)
    disk.refuses_files = True
    with pytest.raises(KafkaError, match="No space left"):
        make(logs, 1)
    assert not (tmp_path / "b" / "orders-1").exists(), "in two directories, it would keep the broker from starting"
    assert make(logs, 1) == "a"
    disk.refuses_files = False


def test_e47_the_remains_of_a_log_are_retried_in_their_directory(
    logs: LogManager, disk: TwoDisks, tmp_path: Path
) -> None:
    make(logs, 0)
    disk.refuses_files = disk.refuses_removal = True
    with pytest.raises(KafkaError, match="No space left"):
        make(logs, 1)
    assert (tmp_path / "b" / "orders-1").exists()
    disk.refuses_files = disk.refuses_removal = False
    assert make(logs, 1) == "b"
    assert not (tmp_path / "a" / "orders-1").exists()
    assert logs.topic_id("orders", 1) == TOPIC_ID
