"""WriteTxnMarkers (27), v1-2: a coordinator has the end of transactions written into the logs that this broker leads
(S39, S40). Also what a tool sends to end a transaction that hangs (KIP-664).

Versions: v2 the transaction version, by which the epoch is checked (KIP-1228).
"""

from __future__ import annotations

from functools import partial

from oncelog_broker.coordinator.transaction.markers import Marker
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch

Asked = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = Result.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult


def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> Answer[WriteTxnMarkersResponse]:
    answers = context.services.slices.run(_write_each(request, context), must_finish=True)
    return then(then(answers, all_of), partial(_response, request))


def _write_each(request: WriteTxnMarkersRequest, context: RequestContext) -> Steps[list[Answer[ErrorCode]]]:
    """What becomes of each marker, in the order of the request."""
    answers = list[Answer[ErrorCode]]()
    for asked in request.markers:
        marker = Marker(
            ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
            asked.transaction_result,
            asked.coordinator_epoch,
            asked.transaction_version,
        )
        for topic in asked.topics:
            for index in topic.partition_indexes:
                answers.append(context.services.markers.append(marker, TopicPartition(topic.name, index)))
                yield None
    return answers


def _response(request: WriteTxnMarkersRequest, codes: list[ErrorCode]) -> WriteTxnMarkersResponse:
    code = iter(codes)
    return WriteTxnMarkersResponse(
        markers=[
            Result(
                producer_id=asked.producer_id,
                topics=[
                    TopicResult(
                        name=topic.name,
                        partitions=[
                            PartitionResult(partition_index=index, error_code=next(code))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in asked.topics
                ],
            )
            for asked in request.markers
        ]
    )
