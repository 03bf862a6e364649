"""How a member moves from its current assignment to its target, one heartbeat at a time. Pure.

A member first gives up the partitions that are not in its target, then gets the free ones of its target. A partition
becomes free when the heartbeat of its former owner no longer lists it, not when the target changes. So no partition is
ever read by two members, whatever is late or lost.

    STABLE      at the epoch of the target: nothing to do. Another epoch: next. Subscription changed: the member must
                give up at once the topics that it no longer reads. UNREUNREVOKED   it still owns partitions that it
                must give up, or does not report them: it keeps its state and epoch.nOtherwise: see the next row. Else:
                next. UNRELEASED  next, at each heartbeat: so freed partitions are handed out. UNKNOWN     owns nothing:
                next. Otherwise it is fenced.

Source: Kafka's CurrentAssignmentBuilder, with KAFKA-19974 (leaving UNREVOKED does not raise the epoch by itself).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from oncelog_broker.coordinator.group.assignments import EMPTY, NO_PARTITIONS, Current, Owned, Target
from oncelog_broker.coordinator.group.consumer.member import ConsumerMember, MemberState
from oncelog_protocol.errors import ErrorCode, KafkaError


class Aim(NamedTuple):
    """Where a member is to get: `target` at the epoch `epoch`. `topics` are the ids of the topics that it reads; of
    others it gets nothing. `is_free` tells whether a partition has no owner. `owned` are the partitions that the
    member's request lists, None if it has no list."""

    epoch: int
    target: Target
    topics: frozenset[bytes]
    is_free: Callable[[bytes, int], bool]
    owned: Owned | None
    subscription_changed: bool


def reconcile(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """Return the member one step further; the same value if no step is due. Raises KafkaError FENCED_MEMBER_EPOCH."""
    if member.state is MemberState.STABLE:
        if member.epoch != aim.epoch:
            return _next(member, member.epoch, aim)
        return _drop_unread(member, aim) if aim.subscription_changed else member
    if member.state is MemberState.UNREVOKED:
        if _owns(aim.owned, member.pending_revocation):
            return _drop_unread(member, aim) if aim.subscription_changed else member
        return _next(member, member.epoch, aim)
    if member.state is MemberState.UNRELEASED:
        return _next(member, member.epoch, aim)
    if aim.owned is None or any(aim.owned.values()):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this release does not know. It must give up all partitions and join again.",
        )
    return _next(member, aim.epoch, aim)


def _owns(owned: Owned | None, partitions: Current) -> bool:
    """Whether the member still owns any of these partitions, as far as known."""
    if owned is None:
        return True
    return any(
        partition in partitions.get(topic_id, EMPTY) for topic_id, listed in owned.items() for partition in listed
    )


def _drop_unread(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """Remove the topics that the member no longer reads; the epoch stays."""
    unread = member.assigned.keys() - aim.topics
    if not unread:
        return member
    assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in unread}
    pending = dict(member.pending_revocation)
    for topic_id in sorted(unread):
        pending[topic_id] = {**pending.get(topic_id, {}), **member.assigned[topic_id]}
    if _owns(aim.owned, pending):
        return member.moved_to(member.epoch, MemberState.UNREVOKED, assigned, pending)
    return member.moved_to(member.epoch, member.state, assigned, member.pending_revocation)


def _next(member: ConsumerMember, epoch: int, aim: Aim) -> ConsumerMember:
    """`epoch` is the one in which the member stays while it has partitions to give up."""
    assigned: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    given: dict[bytes, list[int]] = {}
    is_unreleased = False
    for topic_id in sorted(aim.target.keys() | member.assigned.keys()):
        wanted = aim.target.get(topic_id, EMPTY) if topic_id in aim.topics else EMPTY
        had = member.assigned.get(topic_id, {})
        kept = {partition: since for partition, since in had.items() if partition in wanted}
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(had):
            revoked[topic_id] = {partition: since for partition, since in had.items() if partition not in wanted}
        own = member.pending_revocation.get(topic_id, EMPTY)
        for partition in sorted(wanted - kept.keys()):
            # The member may keep a partition that it was about to give up: no other member can have it.
            if partition in own or aim.is_free(topic_id, partition):
                given.setdefault(topic_id, []).append(partition)
            else:
                is_unreleased = True
    if revoked and _owns(aim.owned, revoked):
        return member.moved_to(epoch, MemberState.UNREVOKED, assigned, revoked)
    for topic_id, partitions in given.items():
        assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(partitions, aim.epoch)}
    state = MemberState.UNRELEASED if is_unreleased else MemberState.STABLE
    return member.moved_to(aim.epoch, state, assigned, NO_PARTITIONS)
