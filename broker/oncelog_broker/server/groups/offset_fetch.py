"""OffsetFetch (9), v1-10: the committed offsets of groups.

Behaviour: a partition without a committed offset returns -1, which is no error; an unknown group has no committed
offsets. The response contains a partition once even if the request names it twice. With require_stable, an offset with
a pending transactional commit fails with UNSTABLE_OFFSET_COMMIT (S37), which clients retry. A member of a consumer
group sends its member epoch (v9), which must be current: otherwise another member might still overwrite the offset that
the member reads. Versions: v2 adds all topics of a group and a top-level error, v5 leader epochs, v7 require_stable, v8
many groups in one request, v10 topic ids in place of names (T9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, Final

from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.offsets import CommittedOffset
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_broker.server.request.duplicate_names import TOPICS_PER_STEP, by_topic
from oncelog_broker.server.request.request_chunks import is_long, joined, parts
from oncelog_broker.server.request.topic_ids import resolve_names
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

GroupRequest = OffsetFetchRequest.OffsetFetchRequestGroup
TopicRequest = GroupRequest.OffsetFetchRequestTopics
GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup
TopicResponse = GroupResponse.OffsetFetchResponseTopics
PartitionResponse = TopicResponse.OffsetFetchResponsePartitions
SingleTopic = OffsetFetchResponse.OffsetFetchResponseTopic

FIRST_GROUP_ERROR_VERSION: Final = 2
FIRST_BATCHED_VERSION: Final = 8
FIRST_TOPIC_ID_VERSION: Final = 10
NO_OFFSET: Final = -1
NO_TOPIC_ID: Final = bytes(16)
PARTITIONS: Final = "partition_indexes"
"""The name of the field of a requested topic that lists its partitions."""
Named = list[tuple[str, Collection[int]]]
"""Topics by name, each with its partition indexes."""
TopicKey = tuple[str, bytes]
"""Topic name and topic id; a client sets only one of them, depending on the request version."""


def handle(request: OffsetFetchRequest, context: GroupContext) -> Answer[OffsetFetchResponse]:
    if context.version >= FIRST_BATCHED_VERSION:
        answers = context.in_slices(_fetch_each(request, context))
        return then(then(answers, all_of), lambda groups: OffsetFetchResponse(groups=groups))

    def fetch(group: GroupRequest) -> Answer[OffsetFetchResponse]:
        answer = _fetch(group, request.require_stable, context)
        return then(answer, lambda response: context.in_slices(_of_one_group(response, group, context.version)))

    return then(context.in_slices(_only_group(request)), fetch)


def _only_group(request: OffsetFetchRequest) -> Steps[GroupRequest]:
    """Return the group of a request before v8 as a list of one group."""
    group = GroupRequest(group_id=request.group_id, topics=None)
    if request.topics is not None:
        group.topics = []
        for number, topic in enumerate(request.topics, 1):
            group.topics.append(TopicRequest(name=topic.name, partition_indexes=topic.partition_indexes))
            if number % TOPICS_PER_STEP == 0:
                yield None
    return group


def _fetch_each(request: OffsetFetchRequest, context: GroupContext) -> Steps[list[Answer[GroupResponse]]]:
    answers = list[Answer[GroupResponse]]()
    for group in (yield from _each_once(request.groups)):
        answers.append(_fetch(group, request.require_stable, context))
        yield None
    return answers


def _each_once(groups: Iterable[GroupRequest]) -> Steps[Iterable[GroupRequest]]:
    """Yield each group once; if a group is named twice, its topics are combined."""
    found: dict[str, GroupRequest] = {}
    for number, group in enumerate(groups, 1):
        first = found.setdefault(group.group_id, group)
        if first is not group and first.topics is not None:
            if group.topics is None:
                first.topics = None
            else:
                first.topics.extend(group.topics)
        if number % TOPICS_PER_STEP == 0:
            yield None
    return found.values()


def _fetch(group: GroupRequest, require_stable: bool, context: GroupContext) -> Answer[GroupResponse]:
    """Return the offsets of one group. Very many partitions are read in several parts at different times. A concurrent
    commit may then be visible in one part and not in another, as with two separate requests.
    """

    def failed(error: KafkaError) -> GroupResponse:
        return GroupResponse(group_id=group.group_id, topics=[], error_code=error.code)

    if not context.may(rules.OFFSET_FETCH_GROUP, group.group_id):
        return failed(KafkaError(rules.OFFSET_FETCH_GROUP.refused))
    asks_for_all = group.topics is None

    def fetch_part(topics: list[TopicRequest]) -> Answer[GroupResponse]:
        unknown: list[TopicRequest] = []
        denied: list[TopicRequest] = []
        if context.version >= FIRST_TOPIC_ID_VERSION:
            topics, unknown = resolve_names(topics, context.services.image)
        if context.services.authorizer is not None:
            rule = rules.OFFSET_FETCH_ALL if asks_for_all else rules.OFFSET_FETCH
            topics, denied = context.divided(rule, topics)
            if asks_for_all:
                denied = []

        def query(machine: GroupMachine) -> GroupResponse:
            machine.check_fetch(group.group_id, group.member_id, group.member_epoch)
            answers = [_offsets(machine, group.group_id, topic, require_stable) for topic in topics]
            refused = [_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in unknown]
            refused += [_refused(topic, rules.OFFSET_FETCH.refused) for topic in denied]
            return GroupResponse(group_id=group.group_id, topics=answers + refused)

        return context.services.groups.runtime.read(group.group_id, query, failed)

    def fetch(topics: list[TopicRequest] | KafkaError) -> Answer[GroupResponse]:
        if isinstance(topics, KafkaError):
            return failed(topics)
        if not is_long(topics, PARTITIONS):
            return fetch_part(topics)
        answers = context.in_slices(_each(parts(topics, PARTITIONS), fetch_part))
        return then(then(answers, all_of), partial(_joined, context))

    asked: Answer[Any] = (
        _all_topics(group, require_stable, context) if group.topics is None else _topics_once(group.topics, context)
    )
    return then(asked, fetch)


def _each(
    parts: Iterable[list[TopicRequest]], fetch: Callable[[list[TopicRequest]], Answer[GroupResponse]]
) -> Steps[list[Answer[GroupResponse]]]:
    answers = []
    for topics in parts:
        answers.append(fetch(topics))
        yield None
    return answers


def _joined(context: GroupContext, answers: list[GroupResponse]) -> Answer[GroupResponse]:
    """Combine the responses to the parts of one group. If a part has an error, the entire group gets this error: this
    broker does not coordinate the group, and the client sends the request again.
    """
    for answer in answers:
        if answer.error_code:
            return answer
    topics = context.in_slices(joined(answer.topics for answer in answers))
    return then(topics, lambda topics: GroupResponse(group_id=answers[0].group_id, topics=topics))


def _topics_once(topics: list[TopicRequest], context: GroupContext) -> Answer[list[TopicRequest]]:
    named = context.in_slices(by_topic(((topic.name, topic.topic_id), topic.partition_indexes) for topic in topics))
    return then(named, lambda named: context.in_slices(_topics(named.items())))


def _all_topics(
    group: GroupRequest, require_stable: bool, context: GroupContext
) -> Answer[list[TopicRequest] | KafkaError]:
    """Return the partitions for which the group has offsets. With `require_stable`, the result also has the partitions
    without an offset for which an open transaction has a pending offset. Without these partitions in the response, the
    client would assume that no offset will come (S37). A deleted topic is left out if the client uses topic ids,
    because the topic has no id any more.
    """
    group_id, member_id, epoch = group.group_id, group.member_id, group.member_epoch
    image = context.services.image

    def identified(names: Named) -> Iterator[tuple[TopicKey, Collection[int]]]:
        for name, partitions in names:
            topic = image.topic(name) if context.version >= FIRST_TOPIC_ID_VERSION else None
            if topic is not None or context.version < FIRST_TOPIC_ID_VERSION:
                yield (name, NO_TOPIC_ID if topic is None else topic.topic_id), partitions

    def query(machine: GroupMachine) -> Named | KafkaError:
        machine.check_fetch(group_id, member_id, epoch)
        offsets = machine.offsets
        named: dict[str, Collection[int]] = dict(offsets.of_group(group_id))
        if require_stable:
            for topic, partitions in offsets.pending_only(group_id).items():
                named[topic] = [*named.get(topic, ()), *partitions]
        return list(named.items())

    def failed(error: KafkaError) -> Named | KafkaError:
        return error

    def listed(names: Named | KafkaError) -> Answer[list[TopicRequest] | KafkaError]:
        return names if isinstance(names, KafkaError) else context.in_slices(_topics(identified(names)))

    names: Answer[Any] = context.services.groups.runtime.read(group_id, query, failed)
    return then(names, listed)


def _topics(named: Iterable[tuple[TopicKey, Collection[int]]]) -> Steps[list[TopicRequest]]:
    topics = []
    for number, ((name, topic_id), partitions) in enumerate(named, 1):
        topics.append(TopicRequest(name=name, topic_id=topic_id, partition_indexes=list(partitions)))
        if number % TOPICS_PER_STEP == 0:
            yield None
    return topics


def _offsets(machine: GroupMachine, group_id: str, topic: TopicRequest, require_stable: bool) -> TopicResponse:
    answers = []
    for index in topic.partition_indexes:
        if require_stable and machine.offsets.is_pending(group_id, topic.name, index):
            answers.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        else:
            answers.append(_offset(index, machine.offsets.get(group_id, topic.name, index)))
    return TopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=answers)


def _offset(index: int, committed: CommittedOffset | None) -> PartitionResponse:
    if committed is None:
        return _no_offset(index, ErrorCode.NONE)
    return PartitionResponse(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )


def _no_offset(index: int, code: ErrorCode) -> PartitionResponse:
    return PartitionResponse(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code)


def _refused(topic: TopicRequest, code: ErrorCode) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_no_offset(index, code) for index in topic.partition_indexes],
    )


def _of_one_group(answer: GroupResponse, asked: GroupRequest, version: int) -> Steps[OffsetFetchResponse]:
    """Return the response before v8; v1 has no top-level error, so each partition carries the error."""
    code = ErrorCode.of(answer.error_code)
    answers = iter(answer.topics)
    if code and version < FIRST_GROUP_ERROR_VERSION:
        answers = (_refused(topic, code) for topics in parts(asked.topics or (), PARTITIONS) for topic in topics)
    found: list[list[SingleTopic]] = []
    for part in parts(answers):
        found.append([_single(topic) for topic in part])
        yield None
    return OffsetFetchResponse(error_code=code, topics=(yield from joined(found)))


def _single(topic: TopicResponse) -> SingleTopic:
    return SingleTopic(
        name=topic.name,
        partitions=[
            SingleTopic.OffsetFetchResponsePartition(
                partition_index=partition.partition_index,
                committed_offset=partition.committed_offset,
                committed_leader_epoch=partition.committed_leader_epoch,
                metadata=partition.metadata,
                error_code=partition.error_code,
            )
            for partition in topic.partitions
        ],
    )
