"""The assignor "uniform": distributes partitions as evenly as possible and moves as few partitions as possible. Pure.

If all members read the same topics, each member keeps its previous partitions up to its quota, and the remaining
partitions are assigned to members below their quota. If the previous assignment is already balanced, it does not change
(KAFKA-18688). If members read different topics, `heterogeneous` is used.
"""

from __future__ import annotations

from oncelog_broker.coordinator.group.assigning.heterogeneous import assign_heterogeneous
from oncelog_broker.coordinator.group.assigning.spec import (
    UNITS_PER_STEP,
    GroupSpec,
    Subscriber,
    Targets,
    frozen_targets,
)
from oncelog_broker.runtime.steps import Steps

TopicPartition = tuple[bytes, int]


def assign_uniformly(spec: GroupSpec) -> Steps[Targets]:
    """Return the target assignment of each member."""
    if spec.is_homogeneous:
        return (yield from _assign_homogeneous(spec))
    return (yield from assign_heterogeneous(spec))


def _assign_homogeneous(spec: GroupSpec) -> Steps[Targets]:
    members = spec.members
    if not members:
        return {}
    free = yield from _unassigned(spec)
    quota, more = divmod(sum(spec.partitions.values()), len(members))
    assigned: dict[str, dict[bytes, set[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    seen: dict[bytes, set[int]] = {topic_id: set() for topic_id in spec.partitions}
    units = 0
    for number, member in enumerate(members):
        room = quota + (more > 0)
        kept, given_up = _keep(member, spec, room, seen)
        free += given_up
        assigned[member.member_id] = kept
        held = sum(map(len, kept.values()))
        left = room - held
        takes_one_more = more > 0
        if left and takes_one_more and len(members) - number > more:
            # `more` is the number of members that still get one partition more than `quota`. As long as enough members
            # follow, leave the additional partition to one of them, which may have had it before.
            left -= 1
            takes_one_more = False
        more -= takes_one_more
        if left:
            unfilled.append((member.member_id, left))
        units += 1 + held
        if units >= UNITS_PER_STEP:
            units = 0
            yield None
    free.reverse()
    for member_id, left in unfilled:
        for _ in range(min(left, len(free))):
            topic_id, partition = free.pop()
            assigned[member_id].setdefault(topic_id, set()).add(partition)
        units += left
        if units >= UNITS_PER_STEP:
            units = 0
            yield None
    return (yield from frozen_targets(assigned))


def _unassigned(spec: GroupSpec) -> Steps[list[TopicPartition]]:
    """Return the partitions that are in no member's previous target."""
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in spec.partitions}
    for number, member in enumerate(spec.members, 1):
        for topic_id, partitions in member.target.items():
            if topic_id in taken:
                taken[topic_id] |= partitions
        if number % UNITS_PER_STEP == 0:
            yield None
    free: list[TopicPartition] = []
    for topic_id in sorted(spec.partitions):
        held = taken[topic_id]
        free += [(topic_id, partition) for partition in range(spec.partitions[topic_id]) if partition not in held]
        yield None
    return free


def _keep(
    member: Subscriber, spec: GroupSpec, room: int, seen: dict[bytes, set[int]]
) -> tuple[dict[bytes, set[int]], list[TopicPartition]]:
    """Return (at most `room` of the member's previous partitions, which the member keeps; the other previous
    partitions, which the member gives up). `seen` has the previous partitions of the members that were handled before
    this member. If the broker stopped when only part of an assignment was logged, two members may have the same
    partition in their previous targets.
    """
    kept: dict[bytes, set[int]] = {}
    given_up: list[TopicPartition] = []
    for topic_id in sorted(member.target.keys() & spec.partitions.keys()):
        count, taken = spec.partitions[topic_id], seen[topic_id]
        had = [partition for partition in sorted(member.target[topic_id] - taken) if partition < count]
        taken.update(had)
        if had[:room]:
            kept[topic_id] = set(had[:room])
        given_up += [(topic_id, partition) for partition in had[room:]]
        room -= len(had[:room])
    return kept, given_up
