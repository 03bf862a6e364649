"""Produce (0), v3-13: append one batch per partition.

Behaviour: batches are opaque bytes, patched and written straight from the receive buffer. All partitions of a request
are appended before the answer; acks=all waits for the in-sync replicas, acks=0 has no answer at all, and an error then
closes the connection (T17), which is all that such a client can notice. Internal topics are not for clients to write.
Versions: v7 zstd allowed, v8 error messages per partition, v9 flexible, v13 topic ids instead of names.
Order (S59): topic -> CRC and size -> format -> duplicate, sequence, epoch -> offsets -> append -> producer state ->
answer. A batch that is in the log already is answered with NONE and its offset, or, where that is forgotten, with
DUPLICATE_SEQUENCE_NUMBER (S8, S12). A fenced producer gets INVALID_PRODUCER_EPOCH in every version (T8).
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from struct import Struct
from typing import Any, Final, NoReturn

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.transaction.metadata import Producer
from oncelog_broker.coordinator.transaction.verification import check_in_transaction
from oncelog_broker.log.producers.state import TRANSACTIONS_V2
from oncelog_broker.metadata.topic_names import INTERNAL_TOPICS
from oncelog_broker.replication.partition import Partition
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.slices import Slices, in_slices
from oncelog_broker.server.transactional_errors import code_for
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.records.batch import ATTRIBUTES_AT, COMPRESSION_MASK, HEADER_SIZE, TRANSACTIONAL_BIT

logger = logging.getLogger(__name__)

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = TopicResponse.PartitionProduceResponse

ACKS_ALLOWED: Final = (-1, 0, 1)
ZSTD: Final = 4
FIRST_ZSTD_VERSION: Final = 7
FIRST_TOPIC_ID_VERSION: Final = 13
FIRST_TRANSACTIONS_V2_VERSION: Final = 12
"""A transactional producer that sends this version has an epoch of its own for each transaction (KIP-890, T6)."""
PRODUCER_AT: Final = 43
"""Where a batch has its producer id and epoch."""
PRODUCER: Final = Struct(">qh")


def handle(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    return in_slices(_append_all(request, context), context.services.clock)


def _append_all(request: ProduceRequest, context: RequestContext) -> Slices[ProduceResponse | None]:
    response = ProduceResponse(responses=[])
    failed: KafkaError | None = None
    refused = None if request.transactional_id is None else _refused(request, request.transactional_id, context)
    for topic in request.topic_data:
        answers: list[PartitionResponse] = []
        response.responses.append(TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        for data in topic.partition_data:
            try:
                if refused is not None:
                    raise refused
                answers.append(_append(request, topic, data, context))
            except KafkaError as error:
                failed = error
                answers.append(
                    PartitionResponse(
                        index=data.index,
                        error_code=code_for(context.api_key, context.version, error.code),
                        base_offset=-1,
                        error_message=error.message,
                    )
                )
            yield
    if request.acks == 0:
        if failed is not None:
            context.connection.close(f"acks=0 produce failed: {failed}")
        return None
    return response


def _refused(request: ProduceRequest, transactional_id: str, context: RequestContext) -> KafkaError | None:
    """What is wrong with a transactional request as a whole: all its batches belong to its one producer (E28). Under
    transactions V2 its partitions become part of the transaction here, all at once (T7). `_append` sees to the rest,
    which is all where there is one batch."""
    if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1:
        return None
    batches = [data.records for topic in request.topic_data for data in topic.partition_data]
    whole = [batch for batch in batches if batch is not None and len(batch) >= HEADER_SIZE]
    if any(not batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT for batch in whole):
        return _not_transactional()
    producers = {PRODUCER.unpack_from(batch, PRODUCER_AT) for batch in whole}
    if len(producers) > 1:
        return KafkaError(ErrorCode.INVALID_RECORD, "a transactional request with records of several producers")
    if producers and context.version >= FIRST_TRANSACTIONS_V2_VERSION:
        producer = Producer(*producers.pop())
        try:
            check_in_transaction(
                context.services.transactions, transactional_id, producer, _led(request, context), registers=True
            )
        except KafkaError as error:
            return error
    return None


def _not_transactional() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, "a request with a transactional id and records that are not")


def _led(request: ProduceRequest, context: RequestContext) -> list[Partition]:
    """The partitions of the request that this broker leads; `_append` says what is wrong with the others."""
    found = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                found.append(_leader(topic, data.index, context))
            except KafkaError:
                continue
    return found


def _leader(topic: ProduceRequest.TopicProduceData, index: int, context: RequestContext) -> Partition:
    """The partition. Raises KafkaError also for an internal one, which clients may not write to."""
    replicas = context.services.replicas
    if context.version >= FIRST_TOPIC_ID_VERSION:
        partition = replicas.leader_by_id(topic.topic_id, index)
    else:
        partition = replicas.leader(topic.name, index)
    if partition.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to the internal {partition.topic}")
    return partition


def _append(
    request: ProduceRequest,
    topic: ProduceRequest.TopicProduceData,
    data: ProduceRequest.TopicProduceData.PartitionProduceData,
    context: RequestContext,
) -> PartitionResponse:
    if request.acks not in ACKS_ALLOWED:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: must be -1, 0 or 1")
    partition = _leader(topic, data.index, context)
    records = data.records
    if not isinstance(records, memoryview) or len(records) < HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a Produce request carries exactly one record batch per partition")
    attributes = records[ATTRIBUTES_AT + 1]
    transactional_id = request.transactional_id
    if attributes & TRANSACTIONAL_BIT:
        if transactional_id is None:
            # Who may write under which transactional id is checked by the id, so there must be one (CVE-2018-17196).
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records without a transactional id"
            )
    elif transactional_id is not None:
        raise _not_transactional()
    if attributes & COMPRESSION_MASK == ZSTD and context.version < FIRST_ZSTD_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {FIRST_ZSTD_VERSION} or later, this is {context.version}",
        )
    try:
        if transactional_id is None:
            base_offset, append_time = partition.append(records, required_acks=request.acks)
        else:
            base_offset, append_time = _append_in_transaction(partition, records, request, transactional_id, context)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_PRODUCER_ID:
            raise
        # The producer compares this with what was acknowledged last, to see if its records were deleted (S28).
        return PartitionResponse(
            index=data.index,
            error_code=error.code,
            base_offset=-1,
            log_start_offset=partition.log.log_start_offset,
            error_message=error.message,
        )
    return PartitionResponse(
        index=data.index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=append_time,
        log_start_offset=partition.log.log_start_offset,
    )


def _not_appended() -> NoReturn:
    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


@fail_point("append", dropped=_not_appended)
def _append_in_transaction(
    partition: Partition, records: memoryview, request: ProduceRequest, transactional_id: str, context: RequestContext
) -> tuple[int, int]:
    """As `Partition.append`, if the partition is in the open transaction; under transactions V2 it becomes part of it
    (T7). Nothing is awaited between the question and the append: a marker in between would end what was just found open
    (E3)."""
    is_v2 = context.version >= FIRST_TRANSACTIONS_V2_VERSION
    producer_id, epoch = PRODUCER.unpack_from(records, PRODUCER_AT)
    if not partition.log.producers.state.has_open_transaction(producer_id, epoch):
        producer = Producer(producer_id, epoch)
        check_in_transaction(context.services.transactions, transactional_id, producer, [partition], registers=is_v2)
    return partition.append(records, required_acks=request.acks, transaction_version=TRANSACTIONS_V2 if is_v2 else 0)
