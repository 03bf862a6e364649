"""Computes the lag metrics of Spark's own Kafka connector from the progress of a query. Pure.

Spark does not let a Python source report metrics of its own. This module computes them from two offsets that each
progress report has for each partition: the end of the batch, and the end of the partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from oncelog_pipeline.source.offsets import BadOffsets, Offsets, offsets_from


def offsets_behind_latest(source: Mapping[str, Any]) -> dict[str, str]:
    """Return minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest of `source`, an item of
    `query.lastProgress["sources"]`, as strings, like Spark's connector; {} if the progress lacks the needed offsets.
    """
    end, latest = read_offsets(source.get("endOffset")), read_offsets(source.get("latestOffset"))
    if not end or not latest:
        return {}
    behind = [max(0, offset - end.get(partition, 0)) for partition, offset in latest.items()]
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Return how many offsets lie between the end of the batch and the ends of the partitions, as a total over all
    sources. Returns None if no source reports both the end of its batch and the ends of its partitions.
    """
    total = None
    for source in sources:
        end, latest = read_offsets(source.get("endOffset")), read_offsets(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        behind = sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())
        total = behind if total is None else total + behind
    return total


def read_offsets(value: Any) -> Offsets | None:
    """Parse offsets of a progress report, as JSON text or already parsed. Returns None if the value contains no
    offsets.
    """
    try:
        read = json.loads(value) if isinstance(value, str) else value
        return offsets_from(read) if isinstance(read, Mapping) else None
    except (ValueError, BadOffsets):
        return None
