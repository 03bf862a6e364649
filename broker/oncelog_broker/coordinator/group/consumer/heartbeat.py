"""Handles ConsumerGroupHeartbeat, with which a member joins the group, stays in the group, and moves to its target
assignment. This module has no I/O. State that is in the log changes only when a logged record is applied to it
(`replay`).

Kafka 4.3's counterpart is GroupMetadataManager.consumerGroupHeartbeat. Unlike in Kafka, the response asks for an early
next heartbeat in two cases: an assignment is being computed, or other members still have partitions of the member's
target. With early heartbeats each step of a rebalance takes less than one heartbeat interval.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.effects import Waiter
from oncelog_broker.coordinator.group.assignments import answered, has_same_partitions, owned_of
from oncelog_broker.coordinator.group.consumer.change import MemberChange, replace_static
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.consumer.epochs import (
    check_heartbeat_epoch,
    known_member,
    known_static_member,
)
from oncelog_broker.coordinator.group.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
)
from oncelog_broker.coordinator.group.consumer.regexes import MayDescribe, RegexChange, change_regex
from oncelog_broker.coordinator.group.consumer.step import ConsumerStep
from oncelog_broker.coordinator.group.consumer.target import maybe_assign, wait_ms
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

SOON_MS: Final = 1_000
"""Maximum heartbeat interval, in ms, of members that wait for an assignment or for partitions of other members."""
MIN_INTERVAL_MS: Final = 100
"""Minimum heartbeat interval, in ms, that a response requests."""
FIRST_CLIENT_MEMBER_ID_VERSION: Final = 1
NOT_SAID: Final = -1
"""Value of the rebalance timeout in a request that does not change the timeout."""


class Heartbeat(NamedTuple):
    """One ConsumerGroupHeartbeat request with its sender. `wrong_regex` is the error message for an invalid regular
    expression; None if the expression is valid or missing."""

    request: ConsumerGroupHeartbeatRequest
    client: Client
    waiter: Waiter
    may_describe: MayDescribe = lambda name: True
    wrong_regex: str | None = None

    @property
    def joins(self) -> bool:
        return self.request.member_epoch == JOINING_EPOCH

    @property
    def leaves(self) -> bool:
        return self.request.member_epoch < JOINING_EPOCH

    @property
    def is_full(self) -> bool:
        """Whether the request has all fields; a client sends all fields in its first request and after an error. A
        request with all fields gets a response with all fields.
        """
        request = self.request
        says_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        return request.rebalance_timeout_ms != NOT_SAID and says_topics and request.topic_partitions is not None


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Check the parts of a request that do not depend on the group. Raises KafkaError INVALID_REQUEST,
    UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    if not request.member_id and (version >= FIRST_CLIENT_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVING_EPOCH):
        raise _invalid("MemberId can't be empty.")
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == NOT_SAID:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def unchanged_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, client: Client, topics: TopicView
) -> ConsumerMember | None:
    """Return the sending member if this heartbeat requires no work: the member has reached its target and reports no
    change, and the group needs no new assignment. Otherwise, return None. Nearly every heartbeat changes nothing, so
    this check saves most of the work. `topics` are the present topics of the cluster.
    """
    member = group.members.get(request.member_id)
    if (
        member is not None
        and request.member_epoch == member.epoch == group.assignment_epoch == group.epoch
        and member.state is MemberState.STABLE
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == NOT_SAID
        and request.server_assignor is None
        and request.rack_id is None
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and (member.client_id, member.client_host) == client
        and member.classic is None
        and group.checked_topics is topics
        and not group.regex_members
    ):
        return member
    return None


def heartbeat(step: ConsumerStep, asked: Heartbeat) -> None:
    """Handle a heartbeat of a member that joins the group or stays in the group.

    Raises KafkaError GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
    UNRELEASED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION, MESSAGE_TOO_LARGE, COORDINATOR_NOT_AVAILABLE.
    """
    request = asked.request
    same = unchanged_member(step.group, request, asked.client, step.topics)
    if same is not None:
        _answer(step, asked, same, step.settings.heartbeat_interval_ms, shows_assignment=False)
        return
    check_room(step, request.member_id, request.instance_id)
    owned = owned_of(request.topic_partitions)
    member_id = request.member_id or step.new_id()
    replaced: str | None = None
    if request.instance_id is None:
        before = step.group.members.get(member_id)
        if before is None:
            before = ConsumerMember(member_id) if asked.joins else known_member(step.group, member_id)
        check_heartbeat_epoch(before, request.member_epoch, owned)
    elif asked.joins:
        before, replaced = _static_joins(step, member_id, request.instance_id)
    else:
        before = known_static_member(step.group, member_id, request.instance_id)
        check_heartbeat_epoch(before, request.member_epoch, owned)
    change = MemberChange(step, before, _said(before, asked), replaced)
    check_bytes(step, before if replaced or before.member_id in step.group.members else None, change.member)
    topics_changed = change.log_said()
    regex = change_regex(change, asked.may_describe, asked.wrong_regex)
    # If this step converts a classic group, a static member may take over a target that was computed for more members
    # than are left: the conversion has ended the rebalance that would have replaced that target.
    is_converted = replaced is not None and step.logged_group() is None
    change.raise_group_epoch(is_needed=topics_changed or is_converted or regex is RegexChange.RESOLVED)
    epoch, target = maybe_assign(change)
    subscription_changed = topics_changed or regex is not RegexChange.NONE
    change.reconcile(epoch, target, owned, subscription_changed=subscription_changed)
    shows = asked.joins or asked.is_full or not has_same_partitions(before.assigned, change.member.assigned)
    _answer(step, asked, change.member, _interval_ms(change, epoch), shows_assignment=shows)


def _static_joins(step: ConsumerStep, member_id: str, instance_id: str) -> tuple[ConsumerMember, str | None]:
    """Return the sending member, and the id of the static member that the sender replaces (None if the sender replaces
    no member). Raises KafkaError UNRELEASED_INSTANCE_ID.
    """
    old = step.group.static_member(instance_id)
    if old is None:
        return step.group.members.get(member_id) or ConsumerMember(member_id), None
    if old.classic is None and old.epoch != STATIC_LEAVING_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by member {old.member_id}. It can when that member has left or its session has ended.",
        )
    member = replace_static(step, old, member_id)
    return member, None if old.member_id == member_id else old.member_id


def check_room(step: ConsumerStep, member_id: str, instance_id: str | None) -> None:
    """Raises KafkaError GROUP_MAX_SIZE_REACHED for a new member if the group has group.consumer.max.size members. A
    static member that returns is not a new member."""
    group, most = step.group, step.config.consumer_max_size
    if len(group.members) >= most and member_id not in group.members and instance_id not in group.static_members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {most} members."
        )


def check_bytes(step: ConsumerStep, before: ConsumerMember | None, member: ConsumerMember) -> None:
    """Check the limits on the stored metadata of members, which are the same as in classic groups. Raises KafkaError
    MESSAGE_TOO_LARGE, GROUP_MAX_SIZE_REACHED, COORDINATOR_NOT_AVAILABLE."""
    group, config = step.group, step.config
    if before is not None and before.said == member.said:
        return
    size = member.held_bytes
    if size > config.member_metadata_max_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"group.member.metadata.max.bytes={config.member_metadata_max_bytes}"
        )
    more = size if before is None else size - before.held_bytes
    if more > 0 and group.held_bytes + more > config.metadata_max_bytes:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group.metadata.max.bytes={config.metadata_max_bytes}")
    if more > 0 and group.held.bytes + more > config.coordinator_metadata_max_bytes:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"group.coordinator.metadata.max.bytes={config.coordinator_metadata_max_bytes}",
        )


def _said(member: ConsumerMember, asked: Heartbeat) -> ConsumerMember:
    """Return the member updated with the fields of the request; missing fields stay unchanged."""
    request = asked.request
    names, regex, timeout = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.rebalance_timeout_ms,
    )
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == NOT_SAID else timeout,
        client_id=asked.client.client_id,
        client_host=asked.client.host,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _interval_ms(change: MemberChange, assignment_epoch: int) -> int:
    """Return the milliseconds until the member must send its next heartbeat."""
    step, member = change.step, change.member
    interval = step.settings.heartbeat_interval_ms
    if change.group_epoch > assignment_epoch:
        return min(interval, SOON_MS, max(MIN_INTERVAL_MS, wait_ms(step)))
    waits = member.state is MemberState.UNRELEASED or (member.regex and member.regex not in step.group.regexes)
    return min(interval, SOON_MS) if waits else interval


def _answer(
    step: ConsumerStep, asked: Heartbeat, member: ConsumerMember, interval_ms: int, *, shows_assignment: bool
) -> None:
    step.start_session(member)
    step.effects.reply(
        asked.waiter,
        ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=answered(member.assigned) if shows_assignment else None,
        ),
    )
