"""ConsumerGroupDescribe (69), v0-1: state and members of groups of the consumer protocol (KIP-848).

Behaviour: a group that is unknown, or of another protocol, fails with GROUP_ID_NOT_FOUND. The assignment of a member
includes the partitions that the member must revoke. If the client may not describe a topic that is assigned in a group,
the entire group is refused. Versions: v1 adds the protocol of each member (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.coordinator.group.consumer.change import preferred_assignor
from oncelog_broker.coordinator.group.consumer.member import ConsumerMember
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.context import level_in_force
from oncelog_broker.server.request.duplicate_names import once
from oncelog_protocol.acls import ResourceType
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.consumer_group_describe import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup
Member = DescribedGroup.Member
TopicPartitions = Member.Assignment.TopicPartitions


def handle(request: ConsumerGroupDescribeRequest, context: GroupContext) -> Answer[ConsumerGroupDescribeResponse]:
    if level_in_force(context) < feature_levels.CONSUMER_GROUPS:
        error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "some broker does not know consumer groups yet")
        return ConsumerGroupDescribeResponse(groups=[_failed(group_id, error) for group_id in request.group_ids])
    described = then(context.in_slices(_describe_each(request, context)), all_of)
    return then(described, lambda groups: context.in_slices(_with_rights(request, groups, context)))


class _Found(NamedTuple):
    """The description of a group without its members, and a separate list of the members. Both describe the same
    moment; each member has its target assignment. The list is separate because thousands of members are described in
    slices.
    """

    group: DescribedGroup
    members: Sequence[tuple[ConsumerMember, Target]] = ()


def _describe_each(request: ConsumerGroupDescribeRequest, context: GroupContext) -> Steps[list[Answer[_Found]]]:
    runtime = context.services.groups.runtime
    assignors = context.services.groups.config.consumer_assignors
    answers = list[Answer[_Found]]()
    for group_id in once(request.group_ids):
        if not context.may(rules.DESCRIBE_CONSUMER_GROUP, group_id):
            answers.append(_not_found(group_id, KafkaError(rules.DESCRIBE_CONSUMER_GROUP.refused)))
        elif not group_id:
            answers.append(_not_found(group_id, KafkaError(ErrorCode.INVALID_GROUP_ID)))
        else:
            find = partial(_find, group_id, assignors)
            answers.append(runtime.read(group_id, find, partial(_not_found, group_id)))
        yield None
    return answers


def _with_rights(
    request: ConsumerGroupDescribeRequest, groups: list[_Found], context: GroupContext
) -> Steps[ConsumerGroupDescribeResponse]:
    """Return the groups with their members and, if requested, the client's authorized operations; groups that the
    client may not see are omitted.
    """
    shown, image = [], context.services.image
    for group, members in groups:
        for described, target in members:
            group.members.append(_member(described, target, image))
            yield None
        is_hidden = False
        if context.services.authorizer is not None:
            for member in group.members:
                assigned = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
                is_hidden |= not all(context.may(rules.TOPIC_OF_CONSUMER_GROUP, topic.topic_name) for topic in assigned)
                yield None
        if is_hidden:
            error = KafkaError(
                rules.TOPIC_OF_CONSUMER_GROUP.refused,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
            shown.append(_failed(group.group_id, error))
            continue
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.operations(ResourceType.GROUP, group.group_id)
        shown.append(group)
        yield None
    return ConsumerGroupDescribeResponse(groups=shown)


def _find(group_id: str, assignors: tuple[str, ...], machine: GroupMachine) -> _Found:
    group = machine.find_consumer(group_id)
    described = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group.members.values(), assignors),
        members=[],
    )
    return _Found(described, [(member, group.target_of(member.member_id)) for member in group.members.values()])


def _member(member: ConsumerMember, target: Mapping[bytes, Collection[int]], image: ClusterImage) -> Member:
    has: dict[bytes, list[int]] = {}
    for current in (member.assigned, member.pending_revocation):
        for topic_id, partitions in current.items():
            has.setdefault(topic_id, []).extend(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(has, image),
        target_assignment=_assignment(target, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Collection[int]], image: ClusterImage) -> Member.Assignment:
    """Return the assignment without deleted topics."""
    return Member.Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (topic := image.topic_by_id(topic_id)) is not None
        ]
    )


def _failed(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _not_found(group_id: str, error: KafkaError) -> _Found:
    return _Found(_failed(group_id, error))
