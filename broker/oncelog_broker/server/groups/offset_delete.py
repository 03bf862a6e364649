"""OffsetDelete (47), v0: delete offsets of a group for topics that the group does not read (KIP-496)."""

from __future__ import annotations

from dataclasses import replace

from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups.services import GroupContext
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

TopicRequest = OffsetDeleteRequest.OffsetDeleteRequestTopic
TopicResponse = OffsetDeleteResponse.OffsetDeleteResponseTopic


def handle(request: OffsetDeleteRequest, context: GroupContext) -> Answer[OffsetDeleteResponse]:
    if not context.may(rules.OFFSET_DELETE_GROUP, request.group_id):
        return _failed(KafkaError(rules.OFFSET_DELETE_GROUP.refused))
    if context.services.authorizer is None:
        return _delete(request, context)
    divided = context.in_slices(context.divided_in_steps(rules.OFFSET_DELETE, request.topics))
    return then(divided, lambda divided: _delete_some(request, *divided, context))


def _delete_some(
    request: OffsetDeleteRequest, topics: list[TopicRequest], denied: list[TopicRequest], context: GroupContext
) -> Answer[OffsetDeleteResponse]:
    """Delete the offsets of `topics`. The topics `denied`, which the client may not use, get an authorization error,
    unless the response has an error for the entire group."""

    def with_the_denied(response: OffsetDeleteResponse) -> Answer[OffsetDeleteResponse]:
        return response if response.error_code else context.in_slices(_with_refusals(response, denied))

    return then(_delete(replace(request, topics=topics), context), with_the_denied)


def _with_refusals(response: OffsetDeleteResponse, denied: list[TopicRequest]) -> Steps[OffsetDeleteResponse]:
    for topic in denied:
        answers = [
            TopicResponse.OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=rules.OFFSET_DELETE.refused
            )
            for partition in topic.partitions
        ]
        response.topics.append(TopicResponse(name=topic.name, partitions=answers))
        yield None
    return response


def _delete(request: OffsetDeleteRequest, context: GroupContext) -> Answer[OffsetDeleteResponse]:
    exists = context.services.image.has_partition
    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.delete_offsets(request, exists, waiter), _failed
    )


def _failed(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code, topics=[])
