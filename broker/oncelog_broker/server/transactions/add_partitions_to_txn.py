"""AddPartitionsToTxn (24), v0-5: adds partitions to a transaction, or verifies that the transaction contains them
(S36).

Behaviour: all partitions of a transaction are added, or none; if one partition does not exist or is internal, the other
partitions get OPERATION_NOT_ATTEMPTED. verify_only adds nothing and returns a result for each partition. Versions: v0-3
have one transaction, from a producer; v4-5 have many, from a broker for its producers (KIP-890), or from a client for
its own transactions.

Allowed senders (S97): a broker with CLUSTER_ACTION on the inter-broker listener, for every producer. Any other sender
needs rights on the transactional id and the topics. This holds in every version, also in versions for brokers, because
some clients use the highest version that a broker serves. Only brokers may send verify_only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.topic_names import INTERNAL_TOPICS, TRANSACTION_STATE
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps, run_steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.transactional_errors import code_for
from oncelog_broker.server.transactions.services import TransactionContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2
from oncelog_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog_protocol.producer_id import ProducerIdAndEpoch

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult

FIRST_BATCHED_VERSION = 4
CLOSED_TO_CLIENTS: Final = INTERNAL_TOPICS
"""The internal topics that clients may not add to a transaction, because markers would be written to these topics at
the end of the transaction. A client adds offsets to a transaction with AddOffsetsToTxn and TxnOffsetCommit instead.
"""
CLOSED_TO_BROKERS: Final = frozenset({TRANSACTION_STATE})
"""The internal topics that brokers may not add to a transaction. `__consumer_offsets` is allowed, because a broker adds
the partition to which a TxnOffsetCommit writes.
"""

PARTITIONS_PER_STEP: Final = 100
CodeOf = Callable[[TopicPartition], ErrorCode]
"""Type of a function that returns the error code of a partition, for a transaction whose partitions have different
error codes.
"""


def handle(request: AddPartitionsToTxnRequest, context: TransactionContext) -> Answer[AddPartitionsToTxnResponse]:
    if context.version >= FIRST_BATCHED_VERSION:
        verifies = any(transaction.verify_only for transaction in request.transactions)
        is_broker = context.may_as_broker(rules.VERIFY_PARTITIONS if verifies else rules.ADD_PARTITIONS_FOR_OTHERS)
        if verifies and not is_broker:
            return AddPartitionsToTxnResponse(error_code=rules.VERIFY_PARTITIONS.refused)
        answers = context.services.slices.run(_serve_each(request, is_broker, context), must_finish=True)
        results = then(answers, partial(_when_committed, is_broker, context))
        return then(results, lambda results: AddPartitionsToTxnResponse(results_by_transaction=results))
    served: Answer[Any] = context.services.slices.run(_serve(_only(request), False, context), must_finish=True)
    return then(
        then(served, lambda answer: answer),  # use `then`, because `served` may be a future
        lambda result: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results),
    )


def response_to(
    request: AddPartitionsToTxnRequest, context: TransactionContext, code: ErrorCode
) -> AddPartitionsToTxnResponse:
    """Return the response to a request of few partitions, all of which get this error code, below version 4."""
    result = run_steps(_result(_only(request), code, context))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


def _only(request: AddPartitionsToTxnRequest) -> Transaction:
    """Return the only transaction of a request below version 4."""
    return Transaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _serve_each(
    request: AddPartitionsToTxnRequest, is_broker: bool, context: TransactionContext
) -> Steps[list[Answer[Result]]]:
    answers = list[Answer[Result]]()
    for transaction in request.transactions:
        answers.append((yield from _serve(transaction, is_broker, context)))
        yield None
    return answers


def _when_committed(
    is_broker: bool, context: TransactionContext, answers: list[Answer[Result]]
) -> Answer[list[Result]]:
    """Return the results of all transactions when they are ready. If a broker sent the request, let the next request of
    its connection begin before that. A broker sends requests for many producers over one connection, so a wait for
    replicas must not delay later requests.
    """
    if is_broker:
        context.effects_are_done()
    return all_of(answers)


def _serve(transaction: Transaction, is_broker: bool, context: TransactionContext) -> Steps[Answer[Result]]:
    """Handle one transaction; the record of the change may wait for replicas."""
    closed = CLOSED_TO_BROKERS if is_broker else CLOSED_TO_CLIENTS
    coordinator, image = context.services.transactions, context.services.image
    transactional_id = transaction.transactional_id
    asking = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)

    def result(code: ErrorCode | CodeOf) -> Answer[Result]:
        return context.services.slices.run(_result(transaction, code, context))

    if not transactional_id:
        return result(ErrorCode.INVALID_REQUEST)
    if not is_broker and not context.may(rules.ADD_PARTITIONS, transactional_id):
        return result(rules.ADD_PARTITIONS.refused)
    partitions: list[TopicPartition] = []
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in transaction.topics:
        known = image.topic(topic.name)
        is_closed = topic.name in closed or (not is_broker and not context.may(rules.ADD_PARTITIONS_TOPIC, topic.name))
        for index in topic.partitions:
            where = TopicPartition(topic.name, index)
            partitions.append(where)
            if is_closed:
                refused[where] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or index not in known.partitions:
                # Accept a partition that has no leader now, because clients would abort the transaction at an error.
                refused[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if len(partitions) % PARTITIONS_PER_STEP == 0:
                yield None
        yield None
    if transaction.verify_only:
        codes = coordinator.verify(transactional_id, asking, partitions)
        return then(codes, lambda codes: result(codes.__getitem__))
    if refused:
        return result(lambda where: refused.get(where, ErrorCode.OPERATION_NOT_ATTEMPTED))
    version = TRANSACTIONS_V2 if context.version >= FIRST_BATCHED_VERSION else TRANSACTIONS_V1
    answer = coordinator.add_partitions(transactional_id, asking, partitions, version)
    return then(answer, result)


def _result(transaction: Transaction, answer: ErrorCode | CodeOf, context: TransactionContext) -> Steps[Result]:
    """Return the result of one transaction for the response. `answer` is one error code for all partitions, or a
    function that returns the error code of a partition."""
    topics = []
    code = code_for(context.api_key, context.version, answer) if isinstance(answer, ErrorCode) else ErrorCode.NONE
    for topic in transaction.topics:
        results = []
        for number, index in enumerate(topic.partitions, 1):
            if not isinstance(answer, ErrorCode):
                code = code_for(context.api_key, context.version, answer(TopicPartition(topic.name, index)))
            results.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        yield None
        topics.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results))
    return Result(transactional_id=transaction.transactional_id, topic_results=topics)
