"""Who reads which partition.

assignor.py            what an assignor is
range.py               runs of each topic, rack-aware            round_robin.py  all partitions dealt out
sticky.py              even, with few moves                      cooperative_sticky.py  the same without stopping
balance.py             the algorithm of the last two
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.consumer.group.assignors.assignor import Assignor
from oncelog.consumer.group.assignors.cooperative_sticky import CooperativeStickyAssignor
from oncelog.consumer.group.assignors.range import RangeAssignor
from oncelog.consumer.group.assignors.round_robin import RoundRobinAssignor
from oncelog.consumer.group.assignors.sticky import StickyAssignor

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}


def assignors_for(strategy: Iterable[str | Assignor]) -> list[Assignor]:
    """By name, or as they are. Raises KeyError for a name that is not one."""
    return [ASSIGNORS[chosen] if isinstance(chosen, str) else chosen for chosen in strategy]
