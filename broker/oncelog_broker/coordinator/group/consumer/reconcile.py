"""Moves a member from its current assignment to its target assignment, one step per heartbeat. Pure.

A member first gives up the partitions that are not in its target, then gets the free partitions of its target. A change
of the target alone does not free a partition: the partition becomes free when its former owner sends a heartbeat that
no longer lists it. Two members never read the same partition, even if heartbeats are late or lost, because a partition
is assigned only when it is free.

The action at a heartbeat depends on the member's state (`_next` moves the member one step towards its target):

- STABLE: nothing, if the member is at the epoch of the target and its subscription has not changed. If the subscription
  has changed, the member must immediately give up the topics that it no longer reads. If the member is not at the epoch
  of the target, the action is `_next`.
- UNREVOKED: `_next`, if the heartbeat lists none of the partitions that the member must give up. A member that still
  lists partitions that it must give up keeps its state and epoch.
- UNRELEASED: `_next`, so that the member gets partitions that have become free.
- UNKNOWN: `_next`, if the heartbeat lists no partitions. A member that lists partitions in the state UNKNOWN is fenced.

Kafka's counterpart is CurrentAssignmentBuilder, with the change of KAFKA-19974: a member that leaves the state
UNREVOKED does not get a higher epoch for this reason alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from oncelog_broker.coordinator.group.assignments import EMPTY, NO_PARTITIONS, Current, Owned, Target
from oncelog_broker.coordinator.group.consumer.member import ConsumerMember, MemberState
from oncelog_protocol.errors import ErrorCode, KafkaError


class Aim(NamedTuple):
    """The input of a member's reconciliation with its target: the assignment `target`, computed for the assignment
    epoch `epoch`. `topics` are the ids of the topics that the member reads; the member gets no partitions of other
    topics. `is_free(topic_id, partition)` returns whether a partition has no owner. `owned` are the partitions that the
    member's request lists; None if the request has no list."""

    epoch: int
    target: Target
    topics: frozenset[bytes]
    is_free: Callable[[bytes, int], bool]
    owned: Owned | None
    subscription_changed: bool


def reconcile(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """Return the member after the next step; the result is the unchanged member if no step is possible. Raises
    KafkaError FENCED_MEMBER_EPOCH."""
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
    """Whether the member still owns any of these partitions; True if the request does not list the owned partitions."""
    if owned is None:
        return True
    return any(
        partition in partitions.get(topic_id, EMPTY) for topic_id, listed in owned.items() for partition in listed
    )


def _drop_unread(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """Move the partitions of topics that the member no longer reads to `pending_revocation`; the member's epoch does
    not change.
    """
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
    """Return the member after its next step towards the target: the member gives up partitions or gets free partitions.
    `epoch`: the epoch of the returned member if it must give up partitions first. A member with nothing to give up gets
    the epoch of the target.
    """
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
            # The member may keep a partition that it was about to give up, because no other member can have received
            # this partition yet.
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
