"""The assignor "range": each member gets consecutive partitions of each topic that it reads. Pure.

Topics with equal numbers of partitions and the same subscribed members are divided in the same way; for example
partition 3 of all these topics is assigned to the same member. The assignor ignores the previous assignment.
"""

from __future__ import annotations

from oncelog_broker.coordinator.group.assigning.spec import UNITS_PER_STEP, GroupSpec, Subscriber, Targets
from oncelog_broker.runtime.steps import Steps


def assign_ranges(spec: GroupSpec) -> Steps[Targets]:
    """Divide the partitions of each topic among the members that read the topic. Static members come first, ordered by
    instance id, then dynamic members, ordered by member id. If the partitions do not divide evenly, the first members
    in this order get one additional partition.
    """
    members = sorted(spec.members, key=_place)
    readers = dict.fromkeys(spec.partitions, 0)
    for member in members:
        for topic_id in member.topics:
            readers[topic_id] += 1
    place = dict.fromkeys(spec.partitions, 0)
    targets: Targets = {}
    units = 0
    for member in members:
        target = {}
        for topic_id in sorted(member.topics):
            each, more = divmod(spec.partitions[topic_id], readers[topic_id])
            number = place[topic_id]
            place[topic_id] += 1
            start = number * each + min(number, more)
            end = start + each + (number < more)
            if start < end:
                target[topic_id] = frozenset(range(start, end))
            units += 1 + end - start
        targets[member.member_id] = target
        if units >= UNITS_PER_STEP:
            units = 0
            yield None
    return targets


def _place(member: Subscriber) -> tuple[bool, str]:
    return (member.instance_id is None, member.member_id if member.instance_id is None else member.instance_id)
