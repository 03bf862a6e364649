"""Produce (0), v3-13: append one batch per partition.

Behaviour: batches are opaque bytes, patched and written straight from the receive buffer. All partitions of a request
are appended before the answer; acks=all waits for the in-sync replicas, acks=0 has no answer at all, and an error then
closes the connection (T17), which is all that such a client can notice. Internal topics are not for clients to write.
Versions: v7 zstd allowed, v8 error messages per partition, v9 flexible, v13 topic ids instead of names.
Order (S59): topic -> CRC and size -> format -> offsets -> append -> answer.
"""

from __future__ import annotations

import logging
from typing import Final

from oncelog_broker.metadata.topic_names import INTERNAL_TOPICS
from oncelog_broker.server.dispatch import RequestContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.records.batch import ATTRIBUTES_AT, COMPRESSION_MASK, HEADER_SIZE

logger = logging.getLogger(__name__)

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = TopicResponse.PartitionProduceResponse

ACKS_ALLOWED: Final = (-1, 0, 1)
ZSTD: Final = 4
FIRST_ZSTD_VERSION: Final = 7
FIRST_TOPIC_ID_VERSION: Final = 13


def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    response = ProduceResponse(responses=[])
    failed: KafkaError | None = None
    for topic in request.topic_data:
        answers: list[PartitionResponse] = []
        response.responses.append(TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        for data in topic.partition_data:
            try:
                answers.append(_append(request, topic, data, context))
            except KafkaError as error:
                failed = error
                answers.append(
                    PartitionResponse(
                        index=data.index, error_code=error.code, base_offset=-1, error_message=error.message
                    )
                )
    if request.acks == 0:
        if failed is not None:
            context.connection.close(f"acks=0 produce failed: {failed}")
        return None
    return response


def _append(
    request: ProduceRequest,
    topic: ProduceRequest.TopicProduceData,
    data: ProduceRequest.TopicProduceData.PartitionProduceData,
    context: RequestContext,
) -> PartitionResponse:
    if request.acks not in ACKS_ALLOWED:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: must be -1, 0 or 1")
    replicas = context.broker.replicas
    if context.version >= FIRST_TOPIC_ID_VERSION:
        partition = replicas.leader_by_id(topic.topic_id, data.index)
    else:
        partition = replicas.leader(topic.name, data.index)
    if partition.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to the internal {partition.topic}")
    records = data.records
    if not isinstance(records, memoryview) or len(records) < HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a Produce request carries exactly one record batch per partition")
    if records[ATTRIBUTES_AT + 1] & COMPRESSION_MASK == ZSTD and context.version < FIRST_ZSTD_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {FIRST_ZSTD_VERSION} or later, this is {context.version}",
        )
    base_offset, append_time = partition.append(records, required_acks=request.acks)
    return PartitionResponse(
        index=data.index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=append_time,
        log_start_offset=partition.log.log_start_offset,
    )
