"""StreamsGroupDescribe (89), v0: state, topology and members of streams groups (KIP-1071).

Behaviour: a group that is not known, or is of another protocol, fails with GROUP_ID_NOT_FOUND. If the client may not
describe a topic of the group's topology, the entire group is refused. The partition counts are the configured counts,
which follow from the existing topics. While topics are missing, the response has the counts that the application has
sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.streams.configured_topology import ConfiguredTopology, WantedTopic
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember
from oncelog_broker.coordinator.group.streams.streams_topology import StreamsTopology, Subtopology
from oncelog_broker.coordinator.group.streams_tasks import TaskSet, listed
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.context import TOPICS_PER_STEP, level_in_force
from oncelog_broker.server.request.duplicate_names import once
from oncelog_protocol.acls import ResourceType
from oncelog_protocol.coordinator_records.streams_groups import TopicInfo as LoggedTopic
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from oncelog_protocol.messages.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TopicInfo

DescribedGroup = StreamsGroupDescribeResponse.DescribedGroup
Member = DescribedGroup.Member
Topology = DescribedGroup.Topology


class _Found(NamedTuple):
    """The description of a group, to which the members must still be added. `members` has the members at the same
    moment, each with its target assignment; `topics` has all topics of the topology.
    """

    group: DescribedGroup
    members: list[tuple[StreamsMember, TaskSet]]
    topics: list[str]


def handle(request: StreamsGroupDescribeRequest, context: GroupContext) -> Answer[StreamsGroupDescribeResponse]:
    if level_in_force(context) < feature_levels.STREAMS_GROUPS:
        error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "some broker does not know streams groups yet")
        return StreamsGroupDescribeResponse(groups=[_failed(group_id, error) for group_id in request.group_ids])
    described = then(context.in_slices(_describe_each(request, context)), all_of)
    return then(described, lambda groups: context.in_slices(_with_members(request, groups, context)))


def _describe_each(request: StreamsGroupDescribeRequest, context: GroupContext) -> Steps[list[Answer[_Found]]]:
    answers = list[Answer[_Found]]()
    for group_id in once(request.group_ids):
        if not context.may(rules.DESCRIBE_STREAMS_GROUP, group_id):
            answers.append(_not_found(group_id, KafkaError(rules.DESCRIBE_STREAMS_GROUP.refused)))
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
    request: StreamsGroupDescribeRequest, groups: list[_Found], context: GroupContext
) -> Steps[StreamsGroupDescribeResponse]:
    shown = []
    for group, members, topics in groups:
        if (yield from _is_hidden(topics, context)):
            error = KafkaError(
                rules.TOPIC_OF_STREAMS_GROUP.refused,
                "The described group uses topics that the client is not authorized to describe.",
            )
            shown.append(_failed(group.group_id, error))
            continue
        for member, target in members:
            group.members.append(_member(member, target))
            yield None
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.operations(ResourceType.GROUP, group.group_id)
        shown.append(group)
        yield None
    return StreamsGroupDescribeResponse(groups=shown)


def _is_hidden(topics: list[str], context: GroupContext) -> Steps[bool]:
    if context.services.authorizer is None:
        return False
    for number, name in enumerate(topics, 1):
        if not context.may(rules.TOPIC_OF_STREAMS_GROUP, name):
            return True
        if number % TOPICS_PER_STEP == 0:
            yield None
    return False


def _find(group_id: str, machine: GroupMachine) -> _Found:
    group = machine.find_streams(group_id)
    described = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[],
    )
    members = [(member, group.target_of(member_id)) for member_id, member in group.members.items()]
    return _Found(described, members, [] if group.topology is None else _topics_of(group.topology))


def _topics_of(topology: StreamsTopology) -> list[str]:
    sinks = (name for each in topology.subtopologies.values() for name in each.repartition_sink_topics)
    return sorted({*topology.required, *sinks})


def _topology(group: StreamsGroup) -> Topology | None:
    if group.topology is None:
        return None
    configured = group.configured if group.configured is not None and group.configured.is_ready else None
    return Topology(
        epoch=group.topology.epoch,
        subtopologies=[_subtopology(each, configured) for each in group.topology.subtopologies.values()],
    )


def _subtopology(subtopology: Subtopology, configured: ConfiguredTopology | None) -> Topology.Subtopology:
    found = None if configured is None else configured.subtopologies.get(subtopology.subtopology_id)
    return Topology.Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(set(subtopology.source_topics)),
        repartition_sink_topics=sorted(set(subtopology.repartition_sink_topics)),
        state_changelog_topics=_infos(
            subtopology.state_changelog_topics if found is None else (), () if found is None else found.changelogs
        ),
        repartition_source_topics=_infos(
            subtopology.repartition_source_topics if found is None else (),
            () if found is None else found.repartition_sources,
        ),
    )


def _infos(logged: Iterable[LoggedTopic], configured: Iterable[WantedTopic]) -> list[TopicInfo]:
    infos = [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in logged
    ]
    infos += [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=max(0, topic.replication_factor),
            topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs.items()],
        )
        for topic in configured
    ]
    return sorted(infos, key=lambda info: info.name)


def _member(member: StreamsMember, target: TaskSet) -> Member:
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=(None if member.endpoint is None else Endpoint(host=member.endpoint[0], port=member.endpoint[1])),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.tags],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(member.assigned.tasks),
        target_assignment=_assignment(target),
        is_classic=False,
    )


def _assignment(tasks: TaskSet) -> Member.Assignment:
    def ids(subtopology: str, partitions: list[int]) -> TaskIds:
        return TaskIds(subtopology_id=subtopology, partitions=partitions)

    return Member.Assignment(
        active_tasks=listed(tasks.active, ids),
        standby_tasks=listed(tasks.standby, ids),
        warmup_tasks=listed(tasks.warmup, ids),
    )


def _failed(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        topology=None,
        members=[],
    )


def _not_found(group_id: str, error: KafkaError) -> _Found:
    return _Found(_failed(group_id, error), [], [])
