"""Converts a group of the consumer protocol to a classic group, when only classic members are left. Pure.

The conversion is logged as one batch: the tombstones that delete the group of the consumer protocol, and the record of
the classic group. The generation of the classic group is the group epoch, and the members' assignments are the target
assignments. After the conversion the members must join again, since a member has left. Then the record has no leader,
so that a coordinator that loads the group also lets the members join again (`ClassicGroup.must_join_again`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.coordinator.group.classic_group import ClassicGroup, Member
from oncelog_broker.coordinator.group.consumer.consumer_group import CONSUMER_PROTOCOL, ConsumerGroup
from oncelog_broker.coordinator.group.consumer.member import ConsumerMember
from oncelog_broker.coordinator.group.consumer.step import ConsumerStep
from oncelog_broker.coordinator.group.consumer_records import ConsumerGroupRecord
from oncelog_broker.coordinator.group.records import group_record
from oncelog_broker.coordinator.group.step import GroupTimer, TimerKind
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.consumer_protocol import VERSION, ConsumerProtocolAssignment, encode_versioned
from oncelog_protocol.schema import schema_of

logger = logging.getLogger(__name__)

AssignedTopic = ConsumerProtocolAssignment.TopicPartition


def may_downgrade_without(step: ConsumerStep, gone: Collection[str]) -> bool:
    """Whether the group becomes a classic group when these members leave."""
    group, config = step.group, step.config
    left = [member for member_id, member in group.members.items() if member_id not in gone]
    if not left or any(member.classic is None for member in left):
        return False
    return config.may_downgrade and len(left) <= config.max_size


def may_downgrade_with(step: ConsumerStep, replaced: ConsumerMember) -> bool:
    """Whether the group becomes a classic group when a classic member replaces the member `replaced`."""
    group, config = step.group, step.config
    others_are_classic = group.classic_members == len(group.members) - 1 and replaced.classic is None
    return others_are_classic and config.may_downgrade and len(group.members) <= config.max_size


def downgrade(step: ConsumerStep, gone: Collection[str]) -> None:
    """Convert the group to a classic group without these members; the remaining members must join again."""
    group = step.group
    left = {member_id: member for member_id, member in group.members.items() if member_id not in gone}
    targets = {member_id: group.target_of(member_id) for member_id in left}
    _become_classic(step, group.tombstones(), left, targets, group.epoch, rejoins=True)


def downgrade_with(step: ConsumerStep, replaced: str, joined: ConsumerMember, epoch: int, *, rejoins: bool) -> None:
    """Convert the group to a classic group in which `joined` replaces the member `replaced`. The step (context of the
    operation) already contains the records that add `joined`.
    """
    group = step.group
    members = {member_id: member for member_id, member in group.members.items() if member_id != replaced}
    members[joined.member_id] = joined
    targets = {member_id: group.target_of(member_id) for member_id in members}
    targets[joined.member_id] = group.target_of(replaced)
    as_it_will_be = ConsumerGroup(group.group_id)
    as_it_will_be.members, as_it_will_be.targets, as_it_will_be.regexes = members, targets, group.regexes
    as_it_will_be.has_old_topics = group.has_old_topics
    _become_classic(step, as_it_will_be.tombstones(), members, targets, epoch, rejoins=rejoins)


def _become_classic(
    step: ConsumerStep,
    tombstones: list[ConsumerGroupRecord],
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, Target],
    epoch: int,
    *,
    rejoins: bool,
) -> None:
    group_id, effects = step.group.group_id, step.effects
    classic = ClassicGroup(group_id)
    classic.generation, classic.protocol_type = epoch, CONSUMER_PROTOCOL
    for member in members.values():
        assert member.classic is not None
        classic.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                list(member.classic.protocols),
            )
        )
    classic.protocol_name = classic.select_protocol()
    for member_id, target in targets.items():
        known = classic.members[member_id]
        known.assignment = classic_assignment(target, known.metadata(classic.protocol_name), step.topics)
    if rejoins:
        classic.leader_id = None
    effects.records += tombstones
    effects.append(group_record(group_id, classic.logged(step.now_ms)))
    for member in members.values():
        step.cancel_timers(member.member_id)
        step.start_session(member)
    if rejoins:
        effects.start_timer(GroupTimer(TimerKind.REJOIN, group_id), 0.0)

    def follow_all_protocols() -> None:
        """Restore all protocols of the members in the new classic group. The logged record has only one protocol of
        each member; the other protocols are soft state, which replaying the record does not restore.
        """
        logged = step.groups.get(group_id)
        if isinstance(logged, ClassicGroup):
            for member in classic.members.values():
                logged.set_protocols(logged.members[member.member_id], member.protocols)

    effects.changes.append(follow_all_protocols)
    logger.info("a group has become classic", extra={"group": group_id, "members": len(members)})


def classic_assignment(target: Mapping[bytes, Collection[int]], subscription: bytes, topics: TopicView) -> bytes:
    """Return the assignment of a classic member, encoded in the version of its own subscription."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopic(topic=name, partitions=sorted(partitions))
            for topic_id, partitions in target.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
    (version,) = VERSION.unpack_from(subscription)
    return encode_versioned(assignment, min(max(version, 0), schema_of(ConsumerProtocolAssignment).versions.high))
