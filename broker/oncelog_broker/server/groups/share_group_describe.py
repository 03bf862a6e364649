"""ShareGroupDescribe (77), v1: state and members of share groups (KIP-932).

Behaviour: a group that is unknown, or of another protocol, fails with GROUP_ID_NOT_FOUND. If the client may not
describe a topic that is assigned in a group, the entire group is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from oncelog_broker.coordinator.group.assigning.simple import SIMPLE
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.share.share_member import ShareMember
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
from oncelog_protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

DescribedGroup = ShareGroupDescribeResponse.DescribedGroup
Member = DescribedGroup.Member


class _Found(NamedTuple):
    """The description of a group without its members, and a list of the members as they were at the same moment."""

    group: DescribedGroup
    members: Sequence[ShareMember] = ()


def handle(request: ShareGroupDescribeRequest, context: GroupContext) -> Answer[ShareGroupDescribeResponse]:
    if level_in_force(context) < feature_levels.SHARE_GROUPS:
        error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "some broker does not know share groups yet")
        return ShareGroupDescribeResponse(groups=[_failed(group_id, error) for group_id in request.group_ids])
    described = then(context.in_slices(_describe_each(request, context)), all_of)
    return then(described, lambda groups: context.in_slices(_with_members(request, groups, context)))


def _describe_each(request: ShareGroupDescribeRequest, context: GroupContext) -> Steps[list[Answer[_Found]]]:
    answers = list[Answer[_Found]]()
    for group_id in once(request.group_ids):
        if not context.may(rules.DESCRIBE_SHARE_GROUP, group_id):
            answers.append(_not_found(group_id, KafkaError(rules.DESCRIBE_SHARE_GROUP.refused)))
        elif not group_id:
            answers.append(_not_found(group_id, KafkaError(ErrorCode.INVALID_GROUP_ID)))
        else:
            found = context.services.groups.runtime.read(
                group_id, partial(_find, group_id), partial(_not_found, group_id)
            )
            answers.append(found)
        yield None
    return answers


def _with_members(
    request: ShareGroupDescribeRequest, groups: list[_Found], context: GroupContext
) -> Steps[ShareGroupDescribeResponse]:
    shown, image = [], context.services.image
    for group, members in groups:
        is_hidden = False
        for member in members:
            described = _member(member, image)
            group.members.append(described)
            if context.services.authorizer is not None:
                names = (topic.topic_name for topic in described.assignment.topic_partitions)
                is_hidden |= not all(context.may(rules.TOPIC_OF_SHARE_GROUP, name) for name in names)
            yield None
        if is_hidden:
            error = KafkaError(
                rules.TOPIC_OF_SHARE_GROUP.refused,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
            shown.append(_failed(group.group_id, error))
            continue
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.operations(ResourceType.GROUP, group.group_id)
        shown.append(group)
        yield None
    return ShareGroupDescribeResponse(groups=shown)


def _find(group_id: str, machine: GroupMachine) -> _Found:
    group = machine.find_share(group_id)
    described = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE,
        members=[],
    )
    return _Found(described, list(group.members.values()))


def _member(member: ShareMember, image: ClusterImage) -> Member:
    assignment = Member.Assignment
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=assignment(
            topic_partitions=[
                assignment.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
                if (topic := image.topic_by_id(topic_id)) is not None
            ]
        ),
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
