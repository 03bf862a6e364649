"""Checks that replicas have the same records below the high watermark, and that each leader epoch has only one
leader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from oncelog_testing.history.events import Place, ReplicaLog
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind, Violation

__tracebackhide__ = True  # hides this module in the traceback of a failed test


def replica_violations(history: History) -> Iterator[Violation]:
    by_place: defaultdict[Place, list[ReplicaLog]] = defaultdict(list)
    for log in history.replicas:
        by_place[log.place].append(log)
    for place, logs in by_place.items():
        for log in logs:
            if log.end < log.high_watermark:
                yield Violation(
                    Kind.REPLICAS_DIFFER,
                    f"{place}: broker {log.broker} ends at {log.end}, below its high watermark {log.high_watermark}",
                )
        for one, other in combinations(logs, 2):
            yield from _differences(place, one, other)
    by_epoch: defaultdict[tuple[Place, int], set[int]] = defaultdict(set)
    for led in history.leaders:
        by_epoch[led.place, led.epoch].add(led.broker)
    for (place, epoch), brokers in by_epoch.items():
        if len(brokers) > 1:
            yield Violation(Kind.TWO_LEADERS, f"{place} in epoch {epoch}: {sorted(brokers)}")


def _differences(place: Place, one: ReplicaLog, other: ReplicaLog) -> Iterator[Violation]:
    """Compare only offsets that both replicas have: retention may have deleted more records in one replica, and above
    the high watermark the replicas may differ.
    """
    start, end = max(one.start, other.start), min(one.high_watermark, other.high_watermark)
    ours, theirs = (
        [batch for batch in log.batches if start <= batch.base_offset and batch.next_offset <= end]
        for log in (one, other)
    )
    if ours != theirs:
        differing = set(ours) ^ set(theirs)
        where = min(batch.base_offset for batch in differing)
        yield Violation(
            Kind.REPLICAS_DIFFER, f"{place}: brokers {one.broker} and {other.broker} from {where} on, below {end}"
        )
