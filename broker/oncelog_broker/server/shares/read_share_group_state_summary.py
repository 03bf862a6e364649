"""ReadShareGroupStateSummary (87), v0-1: the start offsets of share partitions, for descriptions of groups (KIP-932).

Behaviour: a share partition without state has a start offset of -1. Versions: v1 adds the number of records that are
acknowledged or archived (KIP-1226).
"""

from __future__ import annotations

from oncelog_broker.coordinator.share.share_state import NOT_SET, ShareState
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.shares.services import ShareContext
from oncelog_broker.server.shares.state_requests import answered, error_fields
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)

Topic = ReadShareGroupStateSummaryResponse.ReadStateSummaryResult
Result = Topic.PartitionResult


def handle(
    request: ReadShareGroupStateSummaryRequest, context: ShareContext
) -> Answer[ReadShareGroupStateSummaryResponse]:
    shares = context.services.shares
    results = answered(
        request,
        rules.SUMMARISE_SHARE_STATE,
        context,
        lambda key, asked: shares.summary(key, asked.leader_epoch),
        _result,
    )
    return then(
        results,
        lambda topics: ReadShareGroupStateSummaryResponse(
            results=[Topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics]
        ),
    )


def _result(partition: int, state: ShareState | KafkaError | None) -> Result:
    if isinstance(state, KafkaError):
        return Result(partition=partition, **error_fields(state))
    if state is None:
        return Result(partition=partition, start_offset=NOT_SET)
    return Result(
        partition=partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
    )
