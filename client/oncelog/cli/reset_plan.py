"""The new offsets of `oncelog groups reset`: computes an offset per partition from the options, writes the offsets to a
file, and reads them from a file. Pure.

The file is CSV with a line per partition: topic,partition,offset. `--to-file` writes the file, and `--from-file` reads
it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oncelog.cli.offsets import MAX_OFFSET
from oncelog.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offset range of a partition: [beginning, end)."""

    beginning: int
    end: int


def shifted(
    committed: Mapping[TopicPartition, int], by: int, bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    """Return each committed offset moved by `by` offsets; a result outside the partition's bounds becomes the nearest
    bound.
    """
    return {
        partition: min(max(offset + by, bounds[partition].beginning), bounds[partition].end)
        for partition, offset in committed.items()
        if partition in bounds
    }


def to_csv(plan: Mapping[TopicPartition, int]) -> str:
    """Return the plan as the text of a file, sorted by partition."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for (topic, index), offset in sorted(plan.items()):
        writer.writerow((topic, index, offset))
    return out.getvalue()


def from_csv(lines: Iterable[str]) -> dict[TopicPartition, int]:
    """Parse the lines of a CSV file. Raises ValueError, whose message has the invalid line."""
    plan: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        try:
            topic, index, offset = row[0], int(row[1]), int(row[2])
        except (IndexError, ValueError):
            raise ValueError(f"line {number}: expected topic,partition,offset, not {','.join(row)!r}") from None
        if len(row) != 3 or index < 0 or not 0 <= offset <= MAX_OFFSET:
            raise ValueError(f"line {number}: no partition or offset can be that: {','.join(row)!r}")
        plan[TopicPartition(topic, index)] = offset
    return plan
