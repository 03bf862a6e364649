"""The input of an assignor, and functions that all assignors share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.runtime.steps import Steps

UNITS_PER_STEP: Final = 256
"""Number of partitions or members that one step handles before other work runs; a step takes a fraction of a
millisecond."""


class Subscriber(NamedTuple):
    """A group member, as one of the inputs of an assignor. `topics` are the ids of the existing topics that the member
    reads; `target` is the member's previous target assignment.
    """

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    target: Target


class GroupSpec(NamedTuple):
    """The input of an assignor: the members in the order of their ids, and the number of partitions of each topic that
    any member reads.

    `is_homogeneous`: whether all members have the same subscription, in the same form (names or regular expression).
    """

    members: Sequence[Subscriber]
    partitions: Mapping[bytes, int]
    is_homogeneous: bool


Targets = dict[str, Target]
"""Result of an assignor: member id -> target assignment of this member."""
Assignor = Callable[[GroupSpec], Steps[Targets]]


def frozen_targets(assigned: Mapping[str, Mapping[bytes, set[int]]]) -> Steps[Targets]:
    """Return the target assignment of each member as immutable values, in several steps."""
    targets: Targets = {}
    for number, (member_id, target) in enumerate(assigned.items(), 1):
        targets[member_id] = frozen(target)
        if number % UNITS_PER_STEP == 0:
            yield None
    return targets


def frozen(assigned: Mapping[bytes, set[int]]) -> Target:
    """Return the target assignment of a member as an immutable value, without topics that have no partitions."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items() if partitions}
