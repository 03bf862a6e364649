"""Kafka's text checkpoints: entries survive writing and reading, and damage is reported with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog_broker.log.checkpoints import CheckpointCorrupt, read_offset_checkpoint, write_offset_checkpoint
from oncelog_broker.runtime.disk import RealDisk

OFFSETS = {("orders", 1): 988, ("orders", 0): 1201, ("returns", 0): 0}


def test_checkpoints_have_kafkas_text_format(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_offset_checkpoint(RealDisk(), str(path), OFFSETS)
    assert path.read_text() == "0\n3\norders 0 1201\norders 1 988\nreturns 0 0\n"
    assert read_offset_checkpoint(RealDisk(), str(path)) == OFFSETS


def test_a_missing_checkpoint_file_has_no_entries(tmp_path: Path) -> None:
    assert read_offset_checkpoint(RealDisk(), str(tmp_path / "checkpoint")) == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("0\n", 1),
        ("1\n0\n", 1),
        ("0\n2\norders 0 1\n", 2),  # fewer lines than the header announces
        ("0\n1\norders 0 1", 3),  # cut off
        ("0\n1\norders 0\n", 3),
        ("0\n1\norders 0 x\n", 3),
        ("0\n2\norders 0 1\norders -1 1\n", 4),
        ("0\n1\norders 0 -1\n", 3),
    ],
)
def test_damage_to_a_checkpoint_is_reported_with_file_and_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointCorrupt, match=f"{path}, line {line}: "):
        read_offset_checkpoint(RealDisk(), str(path))
