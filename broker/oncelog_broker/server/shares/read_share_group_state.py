"""ReadShareGroupState (84), v0: the leader of a partition loads the state of a share partition; the request also fences
older leaders (KIP-932).
"""

from __future__ import annotations

from oncelog_broker.coordinator.share.share_state import ShareState
from oncelog_broker.coordinator.share.state_batches import messages_of
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.shares.services import ShareContext
from oncelog_broker.server.shares.state_requests import answered, error_fields
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse

Topic = ReadShareGroupStateResponse.ReadStateResult
Result = Topic.PartitionResult


def handle(request: ReadShareGroupStateRequest, context: ShareContext) -> Answer[ReadShareGroupStateResponse]:
    shares = context.services.shares
    results = answered(
        request, rules.READ_SHARE_STATE, context, lambda key, asked: shares.read(key, asked.leader_epoch), _result
    )
    return then(
        results,
        lambda topics: ReadShareGroupStateResponse(
            results=[Topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics]
        ),
    )


def _result(partition: int, state: ShareState | KafkaError) -> Result:
    if isinstance(state, KafkaError):
        return Result(partition=partition, **error_fields(state))
    return Result(
        partition=partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=messages_of(Result.StateBatch, state.batches),
    )
