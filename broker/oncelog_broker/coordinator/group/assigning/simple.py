"""The assignor "simple" of share groups: a partition may be assigned to several members, and a member may have several
partitions.

Kafka's counterpart is SimpleAssignor. If there are M members and P partitions, each partition is assigned to ceil(M /
P) members, so that every member has at least one partition. The numbers of partitions of two members differ by at most
one. A member keeps its previous partitions, as far as these limits on members per partition and partitions per member
allow. If members read different topics, each topic is assigned separately. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from oncelog_broker.coordinator.group.assigning.spec import UNITS_PER_STEP, Subscriber, Targets, frozen_targets
from oncelog_broker.runtime.steps import Steps

SIMPLE: Final = "simple"
TopicPartition = tuple[bytes, int]


def assign_simply(members: Sequence[Subscriber], partitions: Mapping[bytes, Collection[int]]) -> Steps[Targets]:
    """Return the target assignment of each member of a share group. `partitions`: the partitions that may be assigned,
    by topic id. `members` must be in the order of their ids."""
    assigned: dict[str, dict[bytes, set[int]]] = {member.member_id: {} for member in members}
    if len({member.topics for member in members}) == 1:
        topics = [topic_id for topic_id in sorted(partitions) if topic_id in members[0].topics]
        together = [(topic_id, number) for topic_id in topics for number in sorted(partitions[topic_id])]
        yield from _assign(members, together, assigned)
    else:
        for topic_id in sorted(partitions):
            readers = [member for member in members if topic_id in member.topics]
            yield from _assign(readers, [(topic_id, number) for number in sorted(partitions[topic_id])], assigned)
    return (yield from frozen_targets(assigned))


def _assign(
    members: Sequence[Subscriber],
    partitions: Sequence[TopicPartition],
    assigned: Mapping[str, dict[bytes, set[int]]],
) -> Steps[None]:
    """Assign the partitions to the members, all of which read all these partitions. The new partitions of each member
    are added to `assigned`.
    """
    if not members or not partitions:
        return
    sharing = -(-len(members) // len(partitions))
    quota, extras = divmod(sharing * len(partitions), len(members))
    holders = dict.fromkeys(partitions, 0)
    rooms: dict[str, int] = {}
    done = 0
    for member in members:
        # The fair share of a member is `quota` or `quota + 1` partitions; `extras` members get `quota + 1`. The first
        # `extras` members that had more than `quota` partitions keep `quota + 1` of them.
        had = [(topic_id, number) for topic_id, numbers in member.target.items() for number in sorted(numbers)]
        kept = [partition for partition in had if holders.get(partition, sharing) < sharing]
        room = quota + (extras > 0 and len(kept) > quota)
        extras -= room > quota
        for partition in kept[:room]:
            holders[partition] += 1
            assigned[member.member_id].setdefault(partition[0], set()).add(partition[1])
            done += 1
            if done % UNITS_PER_STEP == 0:
                yield None
        rooms[member.member_id] = room - len(kept[:room])
    free = [partition for partition, count in holders.items() for _ in range(sharing - count)]
    # The partitions with the fewest members are at the end of the list.
    free.sort(key=lambda partition: holders[partition], reverse=True)
    yield from _fill(members, rooms, free, assigned)
    # A member may have fewer partitions than its share, if it already has every partition that is still in `free`. Then
    # other members get one of these partitions more.
    extras += sum(rooms.values())
    at_quota = [member for member in members if _count(assigned[member.member_id], partitions) <= quota]
    rooms = {member.member_id: 1 for member in at_quota}
    for member in at_quota:
        if not extras or not free:
            break
        before = len(free)
        yield from _fill([member], rooms, free, assigned)
        extras -= before - len(free)
        yield None


def _count(topics: Mapping[bytes, set[int]], partitions: Sequence[TopicPartition]) -> int:
    of = {topic_id for topic_id, _ in partitions}
    return sum(len(numbers) for topic_id, numbers in topics.items() if topic_id in of)


def _fill(
    members: Sequence[Subscriber],
    rooms: dict[str, int],
    free: list[TopicPartition],
    assigned: Mapping[str, dict[bytes, set[int]]],
) -> Steps[None]:
    """Assign partitions of `free` to members with fewer partitions than their share. Partitions at the end of `free`
    are assigned first; a partition is in `free` once for each further member to which it must be assigned. `rooms` has,
    by member id, how many partitions each member may still get. A member gets no more partitions if it already has
    every partition of `free`.
    """
    done = 0
    unfilled = [member.member_id for member in members if rooms[member.member_id] > 0]
    while unfilled and free:
        waiting = []
        for member_id in unfilled:
            index = _last_that_fits(free, assigned[member_id])
            if index is None:
                continue
            topic_id, number = free.pop(index)
            assigned[member_id].setdefault(topic_id, set()).add(number)
            rooms[member_id] -= 1
            if rooms[member_id]:
                waiting.append(member_id)
            done += 1
            if done % UNITS_PER_STEP == 0:
                yield None
        unfilled = waiting


def _last_that_fits(free: Sequence[TopicPartition], topics: Mapping[bytes, set[int]]) -> int | None:
    for index in range(len(free) - 1, -1, -1):
        topic_id, number = free[index]
        if number not in topics.get(topic_id, ()):
            return index
    return None
