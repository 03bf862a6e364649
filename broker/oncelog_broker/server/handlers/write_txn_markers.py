"""WriteTxnMarkers (27), v1-2: a coordinator has the end of transactions written into the logs that this broker leads
(S39, S40). Also what a tool sends to end a transaction that hangs (KIP-664).

Versions: v2 the transaction version, by which the epoch is checked (KIP-1228).
"""

from __future__ import annotations

from oncelog_broker.coordinator.transaction.markers import Marker
from oncelog_broker.coordinator.transaction.metadata import Producer, TopicPartition
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

Asked = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = Result.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult


def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_write(asked, context) for asked in request.markers])


def _write(asked: Asked, context: RequestContext) -> Result:
    marker = Marker(
        Producer(asked.producer_id, asked.producer_epoch),
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    append = context.services.markers.append
    return Result(
        producer_id=asked.producer_id,
        topics=[
            TopicResult(
                name=topic.name,
                partitions=[
                    PartitionResult(partition_index=index, error_code=append(marker, TopicPartition(topic.name, index)))
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )
