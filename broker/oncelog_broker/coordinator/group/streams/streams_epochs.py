"""Checks the epochs of offset commits and offset fetches in streams groups. Pure.

Kafka 4.3's counterparts are StreamsGroup.validateOffsetCommit and validateOffsetFetch.
"""

from __future__ import annotations

from oncelog_broker.coordinator.group.consumer.epochs import FIRST_MEMBER_EPOCH_VERSION, CheckPartition
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup, unknown_member
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember
from oncelog_protocol.errors import ErrorCode, KafkaError


def check_commit(group: StreamsGroup, member_id: str, epoch: int, *, version: int | None) -> CheckPartition | None:
    """Check that a member may commit offsets in this epoch. Returns None if the epoch is valid for all partitions,
    otherwise a function that checks one partition. An older epoch is valid for the partitions of an active task that
    the member received in that epoch or earlier and has not given up (KIP-1251).

    `version` is the version of OffsetCommit, or None for TxnOffsetCommit. Raises KafkaError UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH.
    """
    member = _known(group, member_id)
    if version is not None and version < FIRST_MEMBER_EPOCH_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"members of the streams protocol commit with OffsetCommit version {FIRST_MEMBER_EPOCH_VERSION} or above",
        )
    if epoch == member.epoch:
        return None
    if epoch > member.epoch:
        raise _stale(f"Epoch {epoch} is newer than the epoch {member.epoch} of member {member_id}.")

    def check(topic: str, partition: int) -> None:
        subtopology = None if group.topology is None else group.topology.sources.get(topic)
        since = None if subtopology is None else _given_in(member, subtopology, partition)
        if since is None or epoch < since:
            raise _stale(
                f"Epoch {epoch} of member {member_id} is older than its epoch {member.epoch}, and the task of "
                f"{topic}-{partition} " + ("is not the member's." if since is None else f"was given to it in {since}.")
            )

    return check


def check_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Check that a member fetches offsets in its current epoch. Raises KafkaError UNKNOWN_MEMBER_ID,
    STALE_MEMBER_EPOCH."""
    if member_id is None and epoch < 0:
        return
    member = _known(group, member_id or "")
    if epoch != member.epoch:
        raise _stale(f"Epoch {epoch} is not the epoch {member.epoch} of member {member_id}.")


def _known(group: StreamsGroup, member_id: str) -> StreamsMember:
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group, member_id)
    return member


def _given_in(member: StreamsMember, subtopology: str, partition: int) -> int | None:
    """Return the epoch in which the member received the active task; None if the member does not have the task as an
    active task.
    """
    for tasks in (member.assigned, member.pending_revocation):
        since = tasks.active.get(subtopology, {}).get(partition)
        if since is not None:
            return since
    return None


def _stale(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, message)
