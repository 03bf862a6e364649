"""AddPartitionsToTxn (24), v0-5: partitions become part of a transaction, or are looked up in it (S36).

Behaviour: all partitions of a transaction are added or none; where one does not exist, the others answer
OPERATION_NOT_ATTEMPTED. verify_only adds nothing and answers for each partition.
Versions: v0-3 one transaction, from a producer; v4-5 many, from a broker for its producers (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from oncelog_broker.coordinator.transaction.metadata import (
    TRANSACTIONS_V1,
    TRANSACTIONS_V2,
    Producer,
    TopicPartition,
)
from oncelog_broker.server.answers import when_all
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.transactional_errors import code_for
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult

FIRST_BATCHED_VERSION = 4


def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if context.version >= FIRST_BATCHED_VERSION:
        answers = [_serve(transaction, context) for transaction in request.transactions]
        return when_all(answers, lambda results: AddPartitionsToTxnResponse(results_by_transaction=results))
    transaction = Transaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return when_all(
        [_serve(transaction, context)],
        lambda results: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results),
    )


def _serve(transaction: Transaction, context: RequestContext) -> Result | asyncio.Future[Result]:
    """One transaction; a future where its record waits for replicas."""
    coordinator, image = context.services.transactions, context.services.image
    transactional_id = transaction.transactional_id
    asking = Producer(transaction.producer_id, transaction.producer_epoch)
    partitions = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]

    def result(code_of: Callable[[TopicPartition], ErrorCode]) -> Result:
        topics = [_topic_result(topic, code_of, context) for topic in transaction.topics]
        return Result(transactional_id=transactional_id, topic_results=topics)

    if not transactional_id:
        return result(lambda _: ErrorCode.INVALID_REQUEST)
    if transaction.verify_only:
        try:
            codes = coordinator.verify(transactional_id, asking, partitions)
        except KafkaError as error:
            refused = error.code
            return result(lambda _: refused)
        return result(codes.__getitem__)
    missing = {where for where in partitions if image.leader_of(*where) is None}
    if missing:
        return result(
            lambda where: (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if where in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
            )
        )
    version = TRANSACTIONS_V2 if context.version >= FIRST_BATCHED_VERSION else TRANSACTIONS_V1
    answer = coordinator.add_partitions(transactional_id, asking, partitions, version)
    if not isinstance(answer, asyncio.Future):
        return result(lambda _: answer)
    return asyncio.ensure_future(_later(answer, result))


async def _later(
    answer: asyncio.Future[ErrorCode], result: Callable[[Callable[[TopicPartition], ErrorCode]], Result]
) -> Result:
    code = await answer
    return result(lambda _: code)


def _topic_result(
    topic: AddPartitionsToTxnTopic, code_of: Callable[[TopicPartition], ErrorCode], context: RequestContext
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=index,
                partition_error_code=code_for(
                    context.api_key, context.version, code_of(TopicPartition(topic.name, index))
                ),
            )
            for index in topic.partitions
        ],
    )
