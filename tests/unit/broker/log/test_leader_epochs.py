"""Leader epochs and their start offsets survive restarts, are truncated with the log, and are read by followers."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog_broker.log.checkpoints import CheckpointCorrupt
from oncelog_broker.log.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from oncelog_broker.runtime.disk import RealDisk

ENTRIES = [(1, 0), (3, 10), (4, 25)]


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    made = LeaderEpochs.load(RealDisk(), str(tmp_path / LEADER_EPOCH_FILE))
    for epoch, start in ENTRIES:
        made.assign(epoch, start)
    return made


def reloaded(tmp_path: Path) -> list[tuple[int, int]]:
    return list(LeaderEpochs.load(RealDisk(), str(tmp_path / LEADER_EPOCH_FILE)).entries)


def test_a_new_leader_epoch_is_in_the_file_at_once(epochs: LeaderEpochs, tmp_path: Path) -> None:
    assert list(epochs.entries) == ENTRIES == reloaded(tmp_path)
    assert (epochs.latest_epoch, epochs.is_unsynced) == (4, True)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 1), (9, 1), (10, 3), (24, 3), (25, 4), (1000, 4)])
def test_the_leader_epoch_of_a_record_is_found(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    assert epochs.epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 25)), (4, (4, 99)), (5, (-1, -1)), (-1, (-1, -1))],
)
def test_the_end_of_a_leader_epoch_is_found(epochs: LeaderEpochs, epoch: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset_for_epoch(epoch, 99) == answer


@pytest.mark.parametrize(
    ("epoch", "start", "left"),
    [
        (5, 30, [*ENTRIES, (5, 30)]),
        (4, 40, ENTRIES),  # no new entry, because the epoch continues
        (2, 10, [(1, 0), (2, 10)]),  # entries that contradict the new one are removed
        (5, 10, [(1, 0), (5, 10)]),
    ],
)
def test_epochs_and_offsets_strictly_increase(
    epochs: LeaderEpochs, tmp_path: Path, epoch: int, start: int, left: list[tuple[int, int]]
) -> None:
    epochs.assign(epoch, start)
    assert list(epochs.entries) == left == reloaded(tmp_path)


def test_leader_epochs_are_truncated_with_the_log(epochs: LeaderEpochs, tmp_path: Path) -> None:
    epochs.truncate_from_end(25)
    assert list(epochs.entries) == [(1, 0), (3, 10)]
    epochs.truncate_from_start(4)
    assert list(epochs.entries) == [(1, 4), (3, 10)]
    epochs.truncate_from_start(12)
    assert list(epochs.entries) == [(3, 12)] == reloaded(tmp_path)
    assert epochs.epoch_for_offset(11) is None
    epochs.clear()
    assert (epochs.latest_epoch, reloaded(tmp_path)) == (-1, [])


def test_an_epoch_that_cannot_be_written_has_not_begun(epochs: LeaderEpochs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(RealDisk, "replace_file", full)
    with pytest.raises(OSError, match="No space"):
        epochs.assign(5, 30)
    assert (list(epochs.entries), epochs.latest_epoch) == (ENTRIES, 4)


@pytest.mark.parametrize("text", ["0\n1\n-1 5\n", "0\n1\n1 -5\n", "0\n2\n1 5\n", "0\n1\n1\n"])
def test_a_bad_leader_epoch_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / LEADER_EPOCH_FILE).write_text(text)
    with pytest.raises(CheckpointCorrupt, match=LEADER_EPOCH_FILE):
        reloaded(tmp_path)
