"""DeleteShareGroupState (86), v0: a group coordinator deletes the state of share partitions (KIP-932)."""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.shares.services import ShareContext
from oncelog_broker.server.shares.state_requests import answered, error_fields
from oncelog_protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)

Topic = DeleteShareGroupStateResponse.DeleteStateResult


def handle(request: DeleteShareGroupStateRequest, context: ShareContext) -> Answer[DeleteShareGroupStateResponse]:
    shares = context.services.shares
    results = answered(
        request,
        rules.DELETE_SHARE_STATE,
        context,
        lambda key, asked: shares.delete(key),
        lambda partition, result: Topic.PartitionResult(partition=partition, **error_fields(result)),
    )
    return then(
        results,
        lambda topics: DeleteShareGroupStateResponse(
            results=[Topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics]
        ),
    )
