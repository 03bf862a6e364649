"""Checks the member epochs in heartbeats, offset commits and offset fetches (KIP-1251). Pure."""

from __future__ import annotations

from collections.abc import Callable

from oncelog_broker.coordinator.group.assignments import Owned, is_within
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.consumer.member import JOINING_EPOCH, ConsumerMember
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.errors import ErrorCode, KafkaError

FIRST_MEMBER_EPOCH_VERSION = 9
"""First version of OffsetCommit that supports member epochs."""
CheckPartition = Callable[[str, int], None]
"""Function that raises KafkaError for a partition (topic name, index) that the member may not commit."""


def known_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """Return the group member with this id. Raises KafkaError UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def known_static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the static member with this id and instance id. Raises KafkaError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID
    if another member has the instance id now.
    """
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def check_heartbeat_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Check the epoch of a heartbeat. A heartbeat with the member's present epoch is valid. The previous epoch is also
    valid if the heartbeat lists only partitions that the member has: the member may not have received the response with
    its new epoch. Raises KafkaError FENCED_MEMBER_EPOCH."""
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if epoch == member.previous_epoch and epoch < member.epoch and is_within(owned, member.assigned):
        return
    how = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member has a {how} member epoch ({epoch}) than the one known by the group coordinator ({member.epoch}). "
        "The member must give up all its partitions and join again.",
    )


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, topics: TopicView, *, version: int | None
) -> CheckPartition | None:
    """Check that a member may commit offsets in this epoch. Returns None if all partitions may be committed, otherwise
    a check for each partition. An older epoch is valid for a partition that was assigned to the member in that epoch or
    earlier, as long as the member has not given up the partition.

    `version`: version of the OffsetCommit request; None for TxnOffsetCommit. Raises KafkaError UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; ILLEGAL_GENERATION for classic members.
    """
    member = known_member(group, member_id)
    if version is not None and version < FIRST_MEMBER_EPOCH_VERSION and member.classic is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"members of the consumer protocol commit with OffsetCommit version {FIRST_MEMBER_EPOCH_VERSION} or above",
        )
    if epoch == member.epoch:
        return None
    stale = _stale(member)
    if epoch > member.epoch:
        raise KafkaError(stale, f"Epoch {epoch} is newer than the epoch {member.epoch} of member {member_id}.")

    def check(topic: str, partition: int) -> None:
        topic_id = topics.id_of(topic) or b""
        since = member.assigned.get(topic_id, {}).get(partition)
        if since is None:
            since = member.pending_revocation.get(topic_id, {}).get(partition)
        if since is None or epoch < since:
            raise KafkaError(
                stale,
                f"Epoch {epoch} of member {member_id} is older than its epoch {member.epoch}, and {topic}-{partition} "
                + ("is not the member's." if since is None else f"was given to it in epoch {since}."),
            )

    return check


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Check that a member fetches offsets in its own epoch. With another epoch the member could read an offset that the
    previous owner of the partition may still replace. Raises KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH,
    ILLEGAL_GENERATION."""
    if member_id is None and epoch < 0:
        return
    member = known_member(group, member_id or "")
    if epoch != member.epoch:
        raise KafkaError(_stale(member), f"Epoch {epoch} is not the epoch {member.epoch} of member {member_id}.")


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
