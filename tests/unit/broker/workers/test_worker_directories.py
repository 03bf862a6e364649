"""The division of data directories among workers: the move of a single broker's data, cut short at each step, and
refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.file_lock import LockHeld
from oncelog_broker.workers.worker_directories import (
    DirectoriesRefused,
    WorkerDirectories,
    has_workers,
    is_divided,
    refuse_single_broker,
)

BROKER = {
    "meta.properties": "m",
    "oncelog.identity": "i",
    ".kafka_cleanshutdown": "c",
    "recovery-point-offset-checkpoint": "r",
    "orders-0/00000000000000000000.log": "records",
    "worker-1/00000000000000000000.log": "records of partition 1 of the topic worker",
    "gone-0.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log": "deleted",
}
"""Files of a single broker that belong to worker 1 after the move."""
STORE = {"metadata.db": "s", "metadata.db-wal": "w"}


class FailingDisk(RealDisk):
    """A disk on which the rename with this number fails; the first rename has number 0."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    def rename(self, source: str, target: str) -> None:
        if not self._left:
            raise OSError("power cut")
        self._left -= 1
        super().rename(source, target)


class UnwritableDisk(RealDisk):
    """A disk on which replacing a file fails."""

    def replace_file(self, path: str, data: bytes, *, is_durable: bool = True, private: bool = False) -> None:
        raise OSError("power cut")


def written(directory: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    return directory


def content(directory: Path) -> dict[str, str]:
    found = {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}
    return {name: text for name, text in found.items() if name not in (".lock", "oncelog.workers")}


def divide(disk: RealDisk, directories: list[Path], workers: int) -> list[list[str]]:
    divided = WorkerDirectories.open(disk, [str(each) for each in directories], workers)
    try:
        divided.divide()
        return [divided.of(number) for number in range(1, workers + 1)]
    finally:
        divided.close()


def in_worker_1(files: dict[str, str]) -> dict[str, str]:
    return {f"worker1/{name}": text for name, text in files.items()}


def test_a_new_directory_is_divided(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert divide(RealDisk(), [data], 2) == [[str(data / "worker1")], [str(data / "worker2")]]
    assert has_workers(RealDisk(), [str(data)])
    assert content(data) == {}


def test_each_data_directory_has_one_for_each_worker(tmp_path: Path) -> None:
    directories = [written(tmp_path / "a", BROKER), written(tmp_path / "b", BROKER)]
    found = divide(RealDisk(), directories, 2)
    assert found[1] == [str(tmp_path / "a" / "worker2"), str(tmp_path / "b" / "worker2")]
    for each in directories:
        assert content(each) == in_worker_1(BROKER)


def test_the_data_of_a_single_broker_becomes_that_of_worker_1_but_for_the_store(tmp_path: Path) -> None:
    data = written(tmp_path / "data", BROKER | STORE)
    (data / "lost+found").mkdir()
    divide(RealDisk(), [data], 2)
    assert content(data) == in_worker_1(BROKER) | STORE
    assert (data / "lost+found").is_dir()
    divide(RealDisk(), [data], 2)  # every later start gives the same result
    assert content(data) == in_worker_1(BROKER) | STORE


@pytest.mark.parametrize("at", range(7))
def test_a_move_that_was_cut_short_is_refused_to_a_single_broker_and_continued(tmp_path: Path, at: int) -> None:
    data = written(tmp_path / "data", BROKER | STORE)
    with pytest.raises(OSError, match="power cut"):
        divide(FailingDisk(at), [data], 2)
    with pytest.raises(DirectoriesRefused):
        refuse_single_broker(RealDisk(), [str(data)])
    divide(RealDisk(), [data], 2)
    assert content(data) == in_worker_1(BROKER) | STORE


def test_nothing_is_moved_before_the_directory_says_that_it_is_divided(tmp_path: Path) -> None:
    data = written(tmp_path / "data", BROKER | STORE)
    with pytest.raises(OSError, match="power cut"):
        divide(UnwritableDisk(), [data], 2)
    assert content(data).items() >= (BROKER | STORE).items()
    refuse_single_broker(RealDisk(), [str(data)])


def test_files_that_a_user_puts_into_a_divided_directory_stay(tmp_path: Path) -> None:
    data = written(tmp_path / "data", {"worker1/meta.properties": "m", "notes.txt": "n"})
    divide(RealDisk(), [data], 2)
    assert content(data) == {"worker1/meta.properties": "m", "notes.txt": "n"}


def test_the_data_of_a_single_broker_beside_that_of_a_worker_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path / "data", {"worker1/meta.properties": "m", "orders-0/00000000000000000000.log": "r"})
    with pytest.raises(DirectoriesRefused, match="one of them does not belong here"):
        divide(RealDisk(), [data], 2)
    assert not has_workers(RealDisk(), [str(data)])


def test_fewer_workers_than_have_partitions_are_refused(tmp_path: Path) -> None:
    data = written(tmp_path / "data", {f"worker{number}/orders-{number}/x": "r" for number in (1, 2, 4)})
    with pytest.raises(DirectoriesRefused, match="partitions in worker2, worker4, which 1 worker does not open"):
        divide(RealDisk(), [data], 1)
    divide(RealDisk(), [data], 4)


def test_workers_without_partitions_may_be_left_out(tmp_path: Path) -> None:
    data = written(tmp_path / "data", {"worker1/orders-0/x": "r", "worker2/meta.properties": "m"})
    assert divide(RealDisk(), [data], 1) == [[str(data / "worker1")]]


def test_a_single_broker_learns_how_to_start_the_workers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    refuse_single_broker(RealDisk(), [str(data)])
    divide(RealDisk(), [data], 3)
    written(data, {"worker3/meta.properties": "m"})
    with pytest.raises(DirectoriesRefused, match="has the data of 3 workers: start it with --workers 3"):
        refuse_single_broker(RealDisk(), [str(data)])


def test_a_directory_restored_without_the_record_of_its_division_is_refused_to_a_single_broker(tmp_path: Path) -> None:
    data = written(tmp_path / "data", {"worker1/meta.properties": "m", "worker2/meta.properties": "m"})
    assert not has_workers(RealDisk(), [str(data)])
    assert is_divided(RealDisk(), [str(data)])
    with pytest.raises(DirectoriesRefused, match="has the data of 2 workers: start it with --workers 2"):
        refuse_single_broker(RealDisk(), [str(data)])
    divide(RealDisk(), [data], 2)
    assert has_workers(RealDisk(), [str(data)])


def test_one_supervisor_at_a_time(tmp_path: Path) -> None:
    first = WorkerDirectories.open(RealDisk(), [str(tmp_path)], 2)
    with pytest.raises(LockHeld):
        WorkerDirectories.open(RealDisk(), [str(tmp_path)], 2)
    first.close()
    WorkerDirectories.open(RealDisk(), [str(tmp_path)], 2).close()


def test_the_store_is_where_it_was(tmp_path: Path) -> None:
    a, b = tmp_path / "a", written(tmp_path / "b", STORE)
    divided = WorkerDirectories.open(RealDisk(), [str(a), str(b)], 2)
    assert divided.store_file() == str(b / "metadata.db")
    written(a, STORE)
    with pytest.raises(DirectoriesRefused, match="exists in"):
        divided.store_file()
    divided.close()
