"""Partition assignment strategies.

assignor.py            the interface of an assignor
range.py               runs of each topic, rack-aware            round_robin.py  all partitions in rotation
sticky.py              even, with few moves                      cooperative_sticky.py  sticky; members keep reading
balance.py             the algorithm of the sticky assignors
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
    """Return the assignors for a list of names and objects: each name becomes the assignor with that name, and objects
    are returned unchanged. Raises KeyError for an unknown name.
    """
    return [ASSIGNORS[chosen] if isinstance(chosen, str) else chosen for chosen in strategy]
