"""The assignor "uniform" for groups whose members read different topics. Pure.

Members keep their previous partitions of the topics that they read. Each free partition is assigned to the member with
the fewest partitions among the members that read its topic. After the free partitions, the topics are balanced one by
one. Partitions of a topic move from the reader with the most partitions to the reader with the fewest, until these two
readers differ by at most one partition or no move is possible. Topics with many partitions per reader are balanced
first, because they have the largest share of each reader's partitions. Kafka's counterpart is
UniformHeterogeneousAssignmentBuilder. If two readers have equally many partitions, this assignor may choose another
reader than Kafka.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from oncelog_broker.coordinator.group.assigning.spec import UNITS_PER_STEP, GroupSpec, Targets, frozen_targets
from oncelog_broker.runtime.steps import Steps

MAX_ROUNDS: Final = 16
"""The maximum number of times that all topics are balanced one by one."""


class _Plan:
    """The assignment of partitions to members while it is computed. A member is identified by its index in
    `GroupSpec.members`.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self.partitions = spec.partitions
        self.assigned: list[dict[bytes, set[int]]] = []
        self.loads: list[int] = []
        """Number of assigned partitions of each member."""
        self.readers: dict[bytes, list[int]] = {topic_id: [] for topic_id in spec.partitions}
        self.owners: dict[bytes, dict[int, int]] = {topic_id: {} for topic_id in spec.partitions}

    def give(self, topic_id: bytes, partition: int, member: int) -> None:
        before = self.owners[topic_id].get(partition)
        if before is not None:
            self.assigned[before][topic_id].discard(partition)
            self.loads[before] -= 1
        self.owners[topic_id][partition] = member
        self.assigned[member].setdefault(topic_id, set()).add(partition)
        self.loads[member] += 1

    def topics_in_order(self) -> list[bytes]:
        """Return the topics in the order of assignment: topics with more partitions per reader come first. Of two
        topics with equally many partitions per reader, the topic with fewer readers comes first.
        """

        def place(topic_id: bytes) -> tuple[float, int, bytes]:
            readers = len(self.readers[topic_id])
            return (-self.partitions[topic_id] / readers, readers, topic_id)

        return sorted((topic_id for topic_id in self.partitions if self.readers[topic_id]), key=place)


def assign_heterogeneous(spec: GroupSpec) -> Steps[Targets]:
    """Return the target assignment of each member."""
    plan = _Plan(spec)
    yield from _keep(spec, plan)
    topics = plan.topics_in_order()
    for topic_id in topics:
        yield from _give_free(plan, topic_id)
    for _ in range(MAX_ROUNDS):
        moved = 0
        for topic_id in topics:
            moved += yield from _balance(plan, topic_id)
        if not moved:
            break
    return (
        yield from frozen_targets(dict(zip((member.member_id for member in spec.members), plan.assigned, strict=True)))
    )


def _keep(spec: GroupSpec, plan: _Plan) -> Steps[None]:
    units = 0
    for number, member in enumerate(spec.members):
        plan.assigned.append({})
        plan.loads.append(0)
        for topic_id in member.topics:
            plan.readers[topic_id].append(number)
        for topic_id, partitions in member.target.items():
            if topic_id not in member.topics:
                continue
            for partition in partitions:
                if partition < spec.partitions[topic_id] and partition not in plan.owners[topic_id]:
                    plan.give(topic_id, partition, number)
            units += len(partitions)
        units += 1 + len(member.topics)
        if units >= UNITS_PER_STEP:
            units = 0
            yield None


def _give_free(plan: _Plan, topic_id: bytes) -> Steps[None]:
    owners = plan.owners[topic_id]
    free = [partition for partition in range(plan.partitions[topic_id]) if partition not in owners]
    if not free:
        return
    fewest = [(plan.loads[member], member) for member in plan.readers[topic_id]]
    heapify(fewest)
    for number, partition in enumerate(free, 1):
        load, member = heappop(fewest)
        plan.give(topic_id, partition, member)
        heappush(fewest, (load + 1, member))
        if number % UNITS_PER_STEP == 0:
            yield None
    yield None


def _balance(plan: _Plan, topic_id: bytes) -> Steps[int]:
    """Balance the readers of one topic by moving partitions of this topic; returns the number of moved partitions."""
    readers, loads, moved = plan.readers[topic_id], plan.loads, 0
    if len(readers) < 2:
        return 0
    fewest = [(loads[member], member) for member in readers]
    most = [(-loads[member], -member) for member in readers if plan.assigned[member].get(topic_id)]
    heapify(fewest)
    heapify(most)
    yield None
    while most:
        negative, giver = -most[0][0], -most[0][1]
        if negative != loads[giver] or not plan.assigned[giver].get(topic_id):
            heappop(most)
            if plan.assigned[giver].get(topic_id):
                heappush(most, (-loads[giver], -giver))
            continue
        load, taker = fewest[0]
        if load != loads[taker]:
            heappop(fewest)
            heappush(fewest, (loads[taker], taker))
            continue
        if loads[giver] - load <= 1:
            break
        plan.give(topic_id, max(plan.assigned[giver][topic_id]), taker)
        heappush(most, (-loads[taker], -taker))
        moved += 1
        if moved % UNITS_PER_STEP == 0:
            yield None
    return moved
