"""The input of an assignor, and functions that all assignors share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.runtime.steps import Steps

UNITS_PER_STEP: Final = 256
"""Partitions or members that are handled before others have their turn; a fraction of a millisecond."""


class Subscriber(NamedTuple):
    """A member: `topics` are the ids of the existing topics that it reads, `target` its previous target assignment."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    target: Target


class GroupSpec(NamedTuple):
    """The members in the order of their ids, and the number of partitions of each topic that one of them reads.

    `is_homogeneous`: all members have the same subscription, given in the same way.
    """

    members: Sequence[Subscriber]
    partitions: Mapping[bytes, int]
    is_homogeneous: bool


Targets = dict[str, Target]
"""The target assignment of each member."""
Assignor = Callable[[GroupSpec], Steps[Targets]]


def frozen(assigned: Mapping[bytes, set[int]]) -> Target:
    """The finished target of a member."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items() if partitions}
