"""Reads and writes Kafka's text checkpoints: one small file per data directory (or partition), always replaced
completely.

- The first line has the version of the format, 0.
- The second line has the number of entries.
- Each further line has an entry: `orders 0 1201` means topic orders, partition 0, offset 1201.

The caller that reads a checkpoint decides what to do about a corrupt file. `LogManager` ignores a corrupt offset
checkpoint; `data_directory.py` lists the consequences. `recovery` rebuilds a corrupt leader epoch checkpoint from the
batches. Kafka's counterparts are CheckpointFile and OffsetCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from oncelog_broker.runtime.disk import Disk

CHECKPOINT_VERSION: Final = 0
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"

TopicPartition = tuple[str, int]
Entry = TypeVar("Entry")


class CheckpointCorrupt(ValueError):
    """The file does not have the format of a checkpoint; the message names file and line."""


def parse_checkpoint(path: str, data: bytes, parse_entry: Callable[[list[str]], Entry]) -> list[Entry]:
    """Return the entries of a checkpoint; `parse_entry` converts the fields of one line and may raise ValueError.
    Raises CheckpointCorrupt.
    """
    number = 0
    try:
        lines = data.decode("utf-8").splitlines()
        number = max(0, len(lines) - 1)
        if data and not data.endswith(b"\n"):
            raise ValueError("the line is incomplete")
        number = 0
        if len(lines) < 2:
            raise ValueError("the version or the number of entries is missing")
        if int(lines[0]) != CHECKPOINT_VERSION:
            raise ValueError(f"version {lines[0]:.20}, only {CHECKPOINT_VERSION} is supported")
        number, expected = 1, int(lines[1])
        if expected != len(lines) - 2:
            raise ValueError(f"{expected} entries are announced, but {len(lines) - 2} found")
        entries = []
        for number, line in enumerate(lines[2:], start=2):  # noqa: B007 - for the message
            entries.append(parse_entry(line.split()))
    except ValueError as error:
        raise CheckpointCorrupt(f"{path}, line {number + 1}: {error}") from error
    return entries


def format_checkpoint(entries: Iterable[tuple[object, ...]]) -> bytes:
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join([str(CHECKPOINT_VERSION), str(len(lines)), *lines, ""]).encode()


def read_offset_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return the offsets by topic and partition; empty if the file does not exist. Raises CheckpointCorrupt,
    OSError.
    """
    if not disk.exists(path):
        return {}
    return dict(parse_checkpoint(path, disk.read_file(path), _parse_offset))


def write_offset_checkpoint(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint file at `path` with these offsets. Raises OSError if the write fails; the old file is then
    unchanged.
    """
    rows = ((topic, partition, offset) for (topic, partition), offset in sorted(offsets.items()))
    disk.replace_file(path, format_checkpoint(rows))


def _parse_offset(fields: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = fields
    if int(partition) < 0 or int(offset) < 0:
        raise ValueError(f"a negative number in {' '.join(fields):.80}")
    return (topic, int(partition)), int(offset)
