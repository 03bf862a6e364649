"""Faults of a simulated disk that strike chosen files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog_simulation.disk import DiskTroubles, SimulatedDisk
from oncelog_simulation.plan import Plan
from oncelog_simulation.process import ProcessIsDead
from oncelog_simulation.world import World


class Disk:
    """A disk with its faults; `deaths` counts how often a fault has killed the process."""

    def __init__(self, world: World) -> None:
        self.deaths = 0
        machine = world.brokers["broker-1"]
        self.troubles = DiskTroubles()
        process = machine._begin_process()
        self.disk = SimulatedDisk(machine.storage, self.troubles, process, world.loop, self._die, {})
        self.storage = machine.storage

    def _die(self) -> None:
        self.deaths += 1


@pytest.fixture
def disk() -> Iterator[Disk]:
    world = World(Plan(1))
    yield Disk(world)
    world.end()


@pytest.mark.parametrize(
    ("suffix", "first", "second"),
    [(".swap", ("/1.log.swap", "/1.log"), ("/1.index.swap", "/1.index")),
     (".deleted", ("/1.log", "/1.log.deleted"), ("/1.index", "/1.index.deleted"))],
)  # fmt: skip
def test_a_process_dies_between_two_renames_of_a_kind(
    disk: Disk, suffix: str, first: tuple[str, str], second: tuple[str, str]
) -> None:
    for source in (first[0], second[0], "/other.tmp"):
        disk.storage.make_file(source)
    disk.troubles.doomed_rename, disk.troubles.renames_left = suffix, 1
    disk.disk.rename(*first)
    disk.disk.rename("/other.tmp", "/other")
    with pytest.raises(ProcessIsDead):
        disk.disk.rename(*second)
    assert disk.deaths == 1
    assert {path for path, _ in disk.storage.files("/")} == {first[1], "/other", second[0]}
    disk.disk.rename(*second)  # the fault strikes once


def test_changes_of_a_failing_file_fail_and_no_others(disk: Disk) -> None:
    disk.troubles.failing_file = ".session"
    disk.disk.replace_file("/other", b"1")
    with pytest.raises(OSError, match="Input/output"):
        disk.disk.replace_file("/.session", b"1")
    assert disk.troubles.struck.keys() == {"EIO on write"}
    assert disk.storage.find("/.session") is None


def test_all_faults_of_chosen_files_end() -> None:
    troubles = DiskTroubles(doomed_file="a", doomed_rename="b", failing_file="c")
    troubles.end()
    assert troubles == DiskTroubles()
