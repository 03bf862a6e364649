"""Unused files give up their descriptors for other files; only a count of the open descriptors shows this."""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

import pytest
from tests.support.descriptors import no_descriptors_left

from oncelog_broker.runtime import disk as disk_module
from oncelog_broker.runtime.descriptors import MAX_MAPPINGS, MIN_FILES, OTHER_DESCRIPTORS, SPARE_COUNT, divide
from oncelog_broker.runtime.disk import FileClosed, RealDisk, RealFile
from oncelog_broker.runtime.open_files import OpenFiles


@pytest.fixture
def open_files(monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    files = OpenFiles(capacity=3)
    monkeypatch.setattr(disk_module, "OPEN_FILES", files)
    return files


def make(tmp_path: Path, count: int) -> list[RealFile]:
    return [RealDisk().open(str(tmp_path / f"file{number}"), create=True) for number in range(count)]


def rests(file: RealFile) -> bool:
    return file._fd < 0


def test_many_files_share_a_few_descriptors(open_files: OpenFiles, tmp_path: Path) -> None:
    files = make(tmp_path, 20)
    for turn in range(3):
        for number, file in enumerate(files):
            assert file.append(b"%d of %d;" % (turn, number)) == file.size - len(b"%d of %d;" % (turn, number))
            assert len(open_files) <= 3
    for number, file in enumerate(files):
        assert file.read(0, 1000) == b"".join(b"%d of %d;" % (turn, number) for turn in range(3))
        file.truncate(3)
        file.sync()
        assert file.read(0, 1000) == b"0 o"
    for file in files:
        file.close()
    assert len(open_files) == 0


def test_the_most_recently_used_file_stays_open(open_files: OpenFiles, tmp_path: Path) -> None:
    first, second, third = make(tmp_path, 3)
    (fourth,) = make(tmp_path / "..", 1)
    assert [rests(file) for file in (first, second, third)] == [True, False, False], "all were new"
    second.append(b"x")
    first.append(b"x")
    assert [rests(file) for file in (first, second, third, fourth)] == [False, False, True, False]
    for file in (first, second, third, fourth):
        file.close()
    os.remove(fourth.path)


def test_a_view_outlives_the_rest_of_its_file(open_files: OpenFiles, tmp_path: Path) -> None:
    first, *_ = make(tmp_path, 1)
    first.append(b"abc")
    view = first.view(0, 3)
    first.is_used = False
    assert open_files.make_room()
    assert rests(first)
    assert view == b"abc"
    again = first.view(1, 2)
    assert again == b"bc"
    assert isinstance(again.obj, mmap.mmap)
    first.close()


def test_a_file_that_is_closed_does_not_open_again(open_files: OpenFiles, tmp_path: Path) -> None:
    (file,) = make(tmp_path, 1)
    file.append(b"abc")
    file.is_used = False
    assert open_files.make_room()
    file.close()
    for use in (lambda: file.append(b"x"), lambda: file.read(0, 1), file.sync):
        with pytest.raises(FileClosed):
            use()


def test_a_file_that_is_synced_neither_rests_nor_gives_its_number_to_another(
    open_files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An fsync may take long, and its thread has only the number of the descriptor."""
    syncing, go_on, synced = threading.Event(), threading.Event(), []

    def slow_sync(descriptor: int) -> None:
        syncing.set()
        go_on.wait(10)
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(disk_module.os, "fsync", slow_sync)
    (file,) = make(tmp_path, 1)
    thread = threading.Thread(target=file.sync)
    thread.start()
    syncing.wait(10)
    file.is_used = False
    assert not open_files.make_room()
    assert file.append(b"not held up") == 0
    file.close()
    others = make(tmp_path / "..", 2)
    go_on.set()
    thread.join()
    assert synced == [file.path]
    assert rests(file)
    for other in others:
        other.close()
        os.remove(other.path)


def test_an_open_without_free_descriptors_takes_that_of_a_resting_file(
    open_files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_files.capacity = 100
    files = make(tmp_path, 5)
    with no_descriptors_left():
        (another,) = make(tmp_path / "..", 1)
        assert sum(map(rests, files)) == 1
        for file in files:
            file.append(b"x")
    for file in (*files, another):
        file.close()
    os.remove(another.path)


@pytest.mark.parametrize("limit", [0, 100, 200, 1024, 20_000, 2**20])
def test_the_available_descriptors_are_divided(limit: int) -> None:
    division = divide(limit, max_connections=10_000)
    assert division.connections <= min(10_000, limit // 2)
    assert division.mappings <= MAX_MAPPINGS
    assert division.files >= MIN_FILES
    if limit >= 200:
        parts = division.connections + division.mappings + division.files + SPARE_COUNT + OTHER_DESCRIPTORS
        assert parts == limit
        assert division.connections > limit // 4 or division.connections == 10_000
