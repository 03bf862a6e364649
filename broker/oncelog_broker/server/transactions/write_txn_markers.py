"""WriteTxnMarkers (27), v1-2: a coordinator writes the end of transactions into the logs that this broker leads (S39,
S40). A tool that ends a hanging transaction sends this request, too (KIP-664).

Behaviour: the result of a marker is sent when all in-sync replicas have the marker. If that takes too long, the result
is REQUEST_TIMED_OUT, so that a partition with slow replicas does not delay the transactions of other partitions. After
REQUEST_TIMED_OUT the coordinator retries the marker. Versions: v2 adds the transaction version, which decides how the
epoch is checked (KIP-1228).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.coordinator.transaction.markers import Marker
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.transactions.services import TransactionContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch

Asked = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = Result.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult

COMMIT_SECONDS: Final = 5.0
"""The maximum number of seconds to wait until the in-sync replicas have the written markers."""


def handle(request: WriteTxnMarkersRequest, context: TransactionContext) -> Answer[WriteTxnMarkersResponse]:
    if not _may(context):
        count = sum(len(topic.partition_indexes) for asked in request.markers for topic in asked.topics)
        return context.in_slices(_response(request, [rules.WRITE_MARKERS.refused] * count))
    answers = context.services.slices.run(_write_each(request, context), must_finish=True)
    codes = then(answers, partial(_when_committed, context))
    return then(codes, lambda codes: context.in_slices(_response(request, codes)))


def _may(context: TransactionContext) -> bool:
    """Return whether the sender may write markers: an authenticated administrator on any listener, otherwise only a
    broker.
    """
    by_acls = context.services.authorizer is not None and context.may(rules.WRITE_MARKERS_AS_ADMIN)
    return by_acls or context.may_as_broker(rules.WRITE_MARKERS)


def _when_committed(context: TransactionContext, answers: list[Answer[ErrorCode]]) -> Answer[list[ErrorCode]]:
    context.effects_are_done()
    deadlines = context.services.deadlines
    return all_of([no_longer_than(COMMIT_SECONDS, answer, deadlines) for answer in answers])


def _write_each(request: WriteTxnMarkersRequest, context: TransactionContext) -> Steps[list[Answer[ErrorCode]]]:
    """Return the result of each marker, in the order of the request."""
    answers = list[Answer[ErrorCode]]()
    for asked in request.markers:
        yield None
        marker = Marker(
            ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
            asked.transaction_result,
            asked.coordinator_epoch,
            asked.transaction_version,
        )
        is_sound = min(asked.producer_id, asked.producer_epoch, asked.transaction_version) >= 0
        for topic in asked.topics:
            for index in topic.partition_indexes:
                where = TopicPartition(topic.name, index)
                answers.append(
                    context.services.markers.append(marker, where) if is_sound else ErrorCode.INVALID_REQUEST
                )
                yield None
    return answers


def _response(request: WriteTxnMarkersRequest, codes: list[ErrorCode]) -> Steps[WriteTxnMarkersResponse]:
    code = iter(codes)
    response = WriteTxnMarkersResponse(markers=[])
    for asked in request.markers:
        topics = list[TopicResult]()
        response.markers.append(Result(producer_id=asked.producer_id, topics=topics))
        for topic in asked.topics:
            partitions = list[PartitionResult]()
            topics.append(TopicResult(name=topic.name, partitions=partitions))
            yield None
            for index in topic.partition_indexes:
                partitions.append(PartitionResult(partition_index=index, error_code=next(code)))
                yield None
        yield None
    return response
