"""InitializeShareGroupState (83), v0: a group coordinator initializes the state of share partitions (KIP-932)."""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.shares.services import ShareContext
from oncelog_broker.server.shares.state_requests import answered, error_fields
from oncelog_protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

Topic = InitializeShareGroupStateResponse.InitializeStateResult


def handle(
    request: InitializeShareGroupStateRequest, context: ShareContext
) -> Answer[InitializeShareGroupStateResponse]:
    shares = context.services.shares
    results = answered(
        request,
        rules.INITIALIZE_SHARE_STATE,
        context,
        lambda key, asked: shares.initialize(key, asked.state_epoch, asked.start_offset),
        lambda partition, result: Topic.PartitionResult(partition=partition, **error_fields(result)),
    )
    return then(
        results,
        lambda topics: InitializeShareGroupStateResponse(
            results=[Topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics]
        ),
    )
