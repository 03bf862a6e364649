"""Converts a classic group with members to the consumer protocol, when the first member of the consumer protocol joins.
Pure.

The conversion is one batch of records, which must not be divided: the tombstone of the classic group, and the
subscription, target, and current assignment of each member, all with the generation as epoch. Waiting requests of the
classic group get an error that makes the member join again.
"""

from __future__ import annotations

import logging
from typing import Final

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.assignments import NO_TARGET, Target, at_epoch
from oncelog_broker.coordinator.group.classic_group import ClassicGroup, Member
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.consumer.member import ClassicProtocols, ConsumerMember, MemberState
from oncelog_broker.coordinator.group.consumer_records import ConsumerGroupRecord, TargetRecord
from oncelog_broker.coordinator.group.records import group_record
from oncelog_broker.coordinator.group.step import GroupTimer, TimerKind
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
)
from oncelog_protocol.errors import ErrorCode, KafkaError, MalformedMessage

logger = logging.getLogger(__name__)

STATELESS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Client-side assignors whose user data the conversion may drop. Sticky assignors store only information that the
broker has anyway. librdkafka copies the user data of a subscription into the assignment. Kafka's broker mistakes this
copy for the state of a custom assignor.
"""


def upgrade(classic: ClassicGroup, config: GroupConfig, topics: TopicView, effects: Effects) -> ConsumerGroup:
    """Add the records of the conversion to `effects`; returns the group as it will be after these records are replayed.

    Raises KafkaError GROUP_ID_NOT_FOUND if the group cannot be converted, because the migration policy, the group's
    protocol or its size does not allow it, or because user data of a member would be lost.
    """
    _check(classic, config)
    members = [_member(classic, member, topics) for member in classic.members.values()]
    group = ConsumerGroup(classic.group_id)
    records: list[ConsumerGroupRecord] = [member.metadata_record(classic.group_id) for member, _ in members]
    names = frozenset().union(*(member.topics for member, _ in members))
    records.append(group.epoch_record(classic.generation, topics.hash_of(names)))
    records += [TargetRecord(classic.group_id, member.member_id, target) for member, target in members]
    records.append(group.target_epoch_record(classic.generation, 0))
    records += [member.current_record(classic.group_id) for member, _ in members]
    for record in records:
        group.replay(record)
    if classic.is_logged:
        effects.append(group_record(classic.group_id, None))
    effects.records += records
    for waiter in (*classic.joining.values(), *classic.syncing.values()):
        effects.reply(waiter, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
    for kind in (TimerKind.JOIN, TimerKind.SYNC):
        effects.cancel_timer(GroupTimer(kind, classic.group_id))
    for member, _ in members:
        assert member.classic is not None
        timer = GroupTimer(TimerKind.SESSION, classic.group_id, member.member_id)
        effects.start_timer(timer, member.classic.session_timeout_ms / 1000)
    logger.info("a classic group has become a consumer group", extra={"group": classic.group_id})
    return group


def _check(classic: ClassicGroup, config: GroupConfig) -> None:
    reason = None
    if not config.may_upgrade:
        reason = "because online upgrade is disabled"
    elif not classic.is_consumer_group:
        reason = "because the group does not use the consumer embedded protocol"
    elif len(classic.members) > config.consumer_max_size:
        reason = "because the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _refused(classic, reason)


def _refused(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {classic.group_id} to consumer group {reason}."
    )


def _member(classic: ClassicGroup, member: Member, topics: TopicView) -> tuple[ConsumerMember, Target]:
    """Return the converted member, and the member's last assignment as its target. A member that never sent SyncGroup
    has no assignment."""
    protocol = classic.protocol_name or member.protocols[0][0]
    try:
        said = decode_versioned(ConsumerProtocolSubscription, member.metadata(protocol))
        assignment = decode_versioned(ConsumerProtocolAssignment, member.assignment) if member.assignment else None
    except MalformedMessage as error:
        raise _refused(classic, "because the embedded consumer protocol is malformed") from error
    if assignment is not None and assignment.user_data and protocol not in STATELESS:
        raise _refused(
            classic,
            "because an unsupported custom assignor is in use. Switch to a default assignor before the upgrade",
        )
    target: Target = NO_TARGET
    if assignment is not None:
        target = {
            topic_id: frozenset(topic.partitions)
            for topic in assignment.assigned_partitions
            if topic.partitions and (topic_id := topics.id_of(topic.topic)) is not None
        }
    upgraded = ConsumerMember(
        member.member_id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        state=MemberState.STABLE,
        instance_id=member.instance_id,
        rack_id=said.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(said.topics),
        classic=ClassicProtocols(member.session_timeout_ms, tuple(member.protocols)),
        assigned=at_epoch(target, classic.generation),
    )
    return upgraded, target
