"""Handles ShareGroupHeartbeat, with which a member joins a share group, stays in the group, and leaves. This module has
no I/O. State that is in the log changes only when a logged record is applied to it (`replay`).

Kafka 4.3's counterpart is GroupMetadataManager.shareGroupHeartbeat. Unlike in Kafka, the response asks for an early
next heartbeat while share partitions are being initialized, because a new member cannot read until they are
initialized.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.effects import Waiter
from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.coordinator.group.share.share_group import ShareGroup, topics_of
from oncelog_broker.coordinator.group.share.share_member import JOINING_EPOCH, LEAVING_EPOCH, ShareMember
from oncelog_broker.coordinator.group.share.share_step import InitializeStates, ShareStep
from oncelog_broker.coordinator.group.share.share_target import maybe_assign, wait_ms
from oncelog_broker.coordinator.group.share.state_partitions import NamedPartitions
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

SOON_MS: Final = 500
"""Maximum heartbeat interval, in ms, of members that wait for an assignment."""
VERY_SOON_MS: Final = 100
"""Maximum heartbeat interval, in ms, while share partitions are being initialized."""
MAX_MEMBER_ID_CHARS: Final = 36
BY_RESET: Final = -1
"""Start offset of a share partition that has no start offset yet; the group's share.auto.offset.reset decides the
offset at the first read.
"""
FROM_THE_START: Final = 0

Assignment = ShareGroupHeartbeatResponse.Assignment


class ShareHeartbeat(NamedTuple):
    """One ShareGroupHeartbeat request with its sender."""

    request: ShareGroupHeartbeatRequest
    client: Client
    waiter: Waiter

    @property
    def joins(self) -> bool:
        return self.request.member_epoch == JOINING_EPOCH

    @property
    def leaves(self) -> bool:
        return self.request.member_epoch == LEAVING_EPOCH


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Check the parts of a request that do not depend on the group. Raises KafkaError INVALID_REQUEST."""
    check_member_id(request.member_id)
    for name, text in (("GroupId", request.group_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def check_member_id(member_id: str | None) -> None:
    """Raises KafkaError INVALID_REQUEST if the member id is empty or too long."""
    if member_id is None or not member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if len(member_id) > MAX_MEMBER_ID_CHARS:
        raise _invalid(f"MemberId has {len(member_id)} characters, at most {MAX_MEMBER_ID_CHARS} are allowed.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def heartbeat(step: ShareStep, asked: ShareHeartbeat) -> None:
    """Handle a heartbeat of a member that joins the share group or stays in the share group.

    Raises KafkaError GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, MESSAGE_TOO_LARGE,
    COORDINATOR_NOT_AVAILABLE.
    """
    request, group = asked.request, step.group
    same = _is_unchanged(step, asked)
    if same is not None:
        _answer(step, asked, same, step.settings.heartbeat_interval_ms, shows_assignment=False)
        return
    before = group.members.get(request.member_id)
    is_new = before is None
    if before is None:
        if not asked.joins:
            raise _unknown(group, request.member_id)
        if len(group.members) >= step.config.share_max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {step.config.share_max_size} members.",
            )
        before = ShareMember(request.member_id)
    _check_epoch(before, request.member_epoch)
    member = _said(before, asked)
    _check_bytes(step, None if is_new else before, member)
    if is_new or member.said != before.said:
        step.effects.append(member.metadata_record(group.group_id))
    members = {**group.members, member.member_id: member}
    names = topics_of(members)
    topics_changed = is_new or member.topics != before.topics
    group_epoch = _raise_group_epoch(step, names, is_needed=topics_changed or _lacks_assignment(step, members, names))
    epoch, target = maybe_assign(step, members, group_epoch, member.member_id)
    member = _reconciled(step, member, epoch, target)
    if is_new or member[1:3] != before[1:3] or member.assigned != before.assigned:
        step.effects.append(member.current_record(group.group_id))
    waits = _initialize_states(step, names, group_epoch)
    interval = step.settings.heartbeat_interval_ms
    if waits:
        interval = min(interval, VERY_SOON_MS)
    elif group_epoch > epoch:
        interval = min(interval, SOON_MS, max(VERY_SOON_MS, wait_ms(step)))
    says_all = asked.joins or request.subscribed_topic_names is not None
    _answer(step, asked, member, interval, shows_assignment=says_all or member.assigned != before.assigned)


def _is_unchanged(step: ShareStep, asked: ShareHeartbeat) -> ShareMember | None:
    """Return the sending member if this heartbeat requires no work: the member has reached its target and reports no
    change, and the group needs no new assignment. Otherwise, return None. Nearly every heartbeat changes nothing, so
    this check saves most of the work.
    """
    request, group = asked.request, step.group
    member = group.members.get(request.member_id)
    if (
        member is not None
        and request.member_epoch == member.epoch == group.assignment_epoch == group.epoch
        and request.subscribed_topic_names is None
        and request.rack_id is None
        and (member.client_id, member.client_host) == asked.client
        and group.checked_topics is step.topics
        and not group.state_partitions.initializing
        and not group.state_partitions.deleting
    ):
        return member
    return None


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Check the epoch of a heartbeat. The member's present epoch is valid. The previous epoch is also valid, because
    the member may not have received the response with its new epoch. Raises KafkaError FENCED_MEMBER_EPOCH.
    """
    if epoch in (JOINING_EPOCH, member.epoch) or (epoch == member.previous_epoch and epoch < member.epoch):
        return
    how = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _said(member: ShareMember, asked: ShareHeartbeat) -> ShareMember:
    """Return the member with the fields that the request sets; the other fields stay unchanged."""
    request = asked.request
    names = request.subscribed_topic_names
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=asked.client.client_id,
        client_host=asked.client.host,
        topics=member.topics if names is None else frozenset(names),
    )


def _check_bytes(step: ShareStep, before: ShareMember | None, member: ShareMember) -> None:
    """Check the limits on the stored metadata of members, which are the same as in classic groups. Raises KafkaError
    MESSAGE_TOO_LARGE, GROUP_MAX_SIZE_REACHED, COORDINATOR_NOT_AVAILABLE."""
    if before is not None and before.said == member.said:
        return
    group, config, size = step.group, step.config, member.held_bytes
    more = size if before is None else size - before.held_bytes
    if size > config.member_metadata_max_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"group.member.metadata.max.bytes={config.member_metadata_max_bytes}"
        )
    if more > 0 and group.held_bytes + more > config.metadata_max_bytes:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group.metadata.max.bytes={config.metadata_max_bytes}")
    if more > 0 and group.held.bytes + more > config.coordinator_metadata_max_bytes:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"group.coordinator.metadata.max.bytes={config.coordinator_metadata_max_bytes}",
        )


def _lacks_assignment(step: ShareStep, members: Collection[str], names: frozenset[str]) -> bool:
    """Whether the target assignment is out of date: an initialized share partition of a subscribed topic is not
    assigned yet, or an assigned share partition no longer has state.
    """
    group = step.group
    if group.assignment_epoch < group.epoch or not members:
        return False
    assigned: dict[bytes, frozenset[int]] = {}
    for target in group.targets.values():
        for topic_id, partitions in target.items():
            assigned[topic_id] = assigned.get(topic_id, partitions) | partitions
    read = {
        topic_id: named.partitions
        for topic_id, named in group.state_partitions.initialized.items()
        if named.name in names and step.topics.name_of(topic_id) is not None
    }
    return any(assigned.get(topic_id) != partitions for topic_id, partitions in read.items()) or any(
        topic_id not in read for topic_id in assigned
    )


def _raise_group_epoch(step: ShareStep, names: frozenset[str], *, is_needed: bool) -> int:
    """Raise the group epoch if the subscriptions (`is_needed`) or the subscribed topics in the cluster have changed.
    Returns the group epoch."""
    group = step.group
    if not is_needed and group.checked_topics is step.topics:
        return group.epoch
    metadata_hash = step.topics.hash_of(names)
    step.effects.changes.append(lambda: _mark_checked(step.logged_group(), step.topics))
    if not is_needed and metadata_hash == group.metadata_hash:
        return group.epoch
    step.effects.append(group.epoch_record(group.epoch + 1, metadata_hash))
    return group.epoch + 1


def _mark_checked(group: ShareGroup | None, topics: TopicView) -> None:
    if group is not None:
        group.checked_topics = topics


def _reconciled(step: ShareStep, member: ShareMember, epoch: int, target: Target) -> ShareMember:
    """Return the member after its target assignment has become its current assignment. Topics that the member no longer
    reads are left out; these topics stay in the target until the next assignment.
    """
    read = step.topics.ids_of(member.topics)
    assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in read}
    if member.epoch == epoch:
        return member._replace(assigned=assigned)
    return member._replace(epoch=epoch, previous_epoch=member.epoch, assigned=assigned)


def _initialize_states(step: ShareStep, names: frozenset[str], group_epoch: int) -> bool:
    """Initialize the share partitions of subscribed topics that have no state. Returns whether any share partitions are
    being initialized.

    A partition that was added to a topic starts at its first record. If it started at the end of its log, as
    share.auto.offset.reset=latest demands, the group would miss the records that were produced before the
    initialization (KAFKA-20742).
    """
    group, topics = step.group, step.topics
    state = group.state_partitions
    is_asked = 0 <= step.now_ms - group.asked_at_ms < step.config.share_initialize_retry_interval_ms
    starts: dict[bytes, dict[int, int]] = {}
    named: dict[bytes, NamedPartitions] = {}
    for name in sorted(names):
        topic_id = topics.id_of(name)
        if topic_id is None or topic_id in state.deleting:
            continue
        known = state.initialized.get(topic_id)
        had = frozenset[int]() if known is None else known.partitions
        under_way = state.initializing.get(topic_id)
        if is_asked and under_way is not None:
            had |= under_way.partitions
        missing = frozenset(range(topics.partitions_of(topic_id))) - had
        if missing:
            start = BY_RESET if known is None else FROM_THE_START
            starts[topic_id] = dict.fromkeys(sorted(missing), start)
            named[topic_id] = NamedPartitions(name, missing)
    if starts:
        step.effects.append(group.state_record(state.with_initializing(named)))
        step.effects.changes.append(lambda: _mark_asked(step.logged_group(), step.now_ms))
        step.effects.ends.append(InitializeStates(group.group_id, group_epoch, starts))
    return bool(starts or state.initializing)


def _mark_asked(group: ShareGroup | None, now_ms: int) -> None:
    if group is not None:
        group.asked_at_ms = now_ms


def _answer(
    step: ShareStep, asked: ShareHeartbeat, member: ShareMember, interval_ms: int, *, shows_assignment: bool
) -> None:
    step.start_session(member.member_id)
    step.effects.reply(
        asked.waiter,
        ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=_assignment(member.assigned) if shows_assignment else None,
        ),
    )


def _assignment(assigned: Target) -> Assignment:
    return Assignment(
        topic_partitions=[
            Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )


def leave(step: ShareStep, asked: ShareHeartbeat) -> None:
    """Handle a heartbeat with the epoch -1 (leave). Raises KafkaError UNKNOWN_MEMBER_ID."""
    member_id = asked.request.member_id
    if member_id not in step.group.members:
        raise _unknown(step.group, member_id)
    fence(step, member_id)
    step.effects.reply(
        asked.waiter,
        ShareGroupHeartbeatResponse(error_code=ErrorCode.NONE, member_id=member_id, member_epoch=LEAVING_EPOCH),
    )


def fence(step: ShareStep, member_id: str) -> None:
    """Remove a member and its assignment."""
    group, effects = step.group, step.effects
    step.end_session(member_id)
    effects.records += group.tombstones_of(member_id)
    left = {other: member for other, member in group.members.items() if other != member_id}
    effects.append(group.epoch_record(group.epoch + 1, step.topics.hash_of(topics_of(left))))
    if not left:  # an empty group needs no new assignment
        effects.append(group.target_epoch_record(group.epoch + 1, 0))


def _unknown(group: ShareGroup, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
