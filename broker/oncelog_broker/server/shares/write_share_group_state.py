"""WriteShareGroupState (85), v0-1: the leader of a partition stores changes of a share partition's state (KIP-932).
Versions: v1 adds the number of records that are acknowledged or archived (KIP-1226).
"""

from __future__ import annotations

from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state_machine import StateWrite
from oncelog_broker.coordinator.share.state_batches import batches_of
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.shares.services import ShareContext
from oncelog_broker.server.shares.state_requests import answered, error_fields
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

Topic = WriteShareGroupStateResponse.WriteStateResult
Asked = WriteShareGroupStateRequest.WriteStateData.PartitionData


def handle(request: WriteShareGroupStateRequest, context: ShareContext) -> Answer[WriteShareGroupStateResponse]:
    def write(key: ShareKey, asked: Asked) -> Answer[KafkaError | None]:
        wanted = StateWrite(
            asked.state_epoch,
            asked.leader_epoch,
            asked.start_offset,
            asked.delivery_complete_count,
            batches_of(asked.state_batches),
        )
        return context.services.shares.write(key, wanted)

    results = answered(
        request,
        rules.WRITE_SHARE_STATE,
        context,
        write,
        lambda partition, result: Topic.PartitionResult(partition=partition, **error_fields(result)),
    )
    return then(
        results,
        lambda topics: WriteShareGroupStateResponse(
            results=[Topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics]
        ),
    )
