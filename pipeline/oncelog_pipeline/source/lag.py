"""How far a query is behind, in the words of Spark's own Kafka connector, from the progress of the query. Pure.

Spark lets no source in Python report metrics of its own. What these are made of is in each progress: where the batch
ended and where the partitions did.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from oncelog_pipeline.source.offsets import BadOffsets, Offsets, offsets_from


def offsets_behind_latest(source: Mapping[str, Any]) -> dict[str, str]:
    """The metrics minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest of one of
    `query.lastProgress["sources"]`, as texts, as the connector has them; none where the progress does not tell.
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
    """Return how many offsets lie between where the batch ended and the ends of the partitions, over all sources; None
    where no source tells."""
    total = None
    for source in sources:
        end, latest = read_offsets(source.get("endOffset")), read_offsets(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        behind = sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())
        total = behind if total is None else total + behind
    return total


def read_offsets(value: Any) -> Offsets | None:
    """Offsets as Spark has them in a progress: JSON, or what was made of it. None for what is something else."""
    try:
        read = json.loads(value) if isinstance(value, str) else value
        return offsets_from(read) if isinstance(read, Mapping) else None
    except (ValueError, BadOffsets):
        return None
