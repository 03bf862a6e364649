"""TxnOffsetCommit (28), v0-5: write offsets of a group that become valid only if the transaction commits (S37).

Behaviour: the request is refused unless the group's partition of `__consumer_offsets` is in the open transaction (E5):
AddOffsetsToTxn adds the partition, and from v5 on this request adds the partition. The consumer's generation and member
id fence zombies (KIP-447, S46). Versions: v3 adds generation and member id, v4 TRANSACTION_ABORTABLE, v5 transactions
V2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.transaction.verification import check_in_transaction
from oncelog_broker.replication.verification_guards import Guard
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.request_chunks import is_long, joined, parts
from oncelog_broker.server.request.transactional_errors import code_for
from oncelog_broker.server.transactions.services import TransactionContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch

TopicRequest = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
TopicResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionResponse = TopicResponse.TxnOffsetCommitResponsePartition

FIRST_TRANSACTIONS_V2_VERSION: Final = 5
ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}
"""Maps an error code of the log to the error code that TxnOffsetCommit returns."""


def handle(request: TxnOffsetCommitRequest, context: TransactionContext) -> Answer[TxnOffsetCommitResponse]:
    try:
        _check(request, context)
        if context.services.authorizer is None:
            return _commit(request, context)
    except KafkaError as error:
        return _refuse(request, context, error)
    divided = context.in_slices(context.divided_in_steps(rules.TXN_OFFSET_COMMIT, request.topics))
    return then(divided, lambda divided: _commit_some(request, *divided, context))


def _check(request: TxnOffsetCommitRequest, context: TransactionContext) -> None:
    """Check the request. Raises KafkaError if the entire request is refused."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    context.require(rules.TXN_OFFSET_COMMIT_ID, request.transactional_id)
    context.require(rules.TXN_OFFSET_COMMIT_GROUP, request.group_id)


def _commit_some(
    request: TxnOffsetCommitRequest, topics: list[TopicRequest], denied: list[TopicRequest], context: TransactionContext
) -> Answer[TxnOffsetCommitResponse]:
    """Write the offsets of `topics`, and refuse the offsets of the other topics."""
    refused = _refuse(replace(request, topics=denied), context, KafkaError(rules.TXN_OFFSET_COMMIT.refused))
    if not topics:
        return refused
    allowed = replace(request, topics=topics)
    try:
        written = _commit(allowed, context)
    except KafkaError as error:
        written = _refuse(allowed, context, error)
    return then(
        all_of([written, refused]), lambda each: TxnOffsetCommitResponse(topics=each[0].topics + each[1].topics)
    )


def _commit(request: TxnOffsetCommitRequest, context: TransactionContext) -> Answer[TxnOffsetCommitResponse]:
    """Write the offsets, if the group's partition is in the open transaction. Raises KafkaError."""
    services = context.services
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    transactional_id = request.transactional_id
    partition = services.groups.runtime.shard(request.group_id).partition

    def ask(guard: Guard) -> Answer[TxnOffsetCommitResponse]:
        verified = check_in_transaction(
            services.transactions,
            transactional_id,
            producer,
            [partition],
            services.deadlines,
            registers=context.version >= FIRST_TRANSACTIONS_V2_VERSION,
        )
        return then(verified, partial(write, guard))

    def write(guard: Guard, refused: KafkaError | None) -> Answer[TxnOffsetCommitResponse]:
        if refused is not None:
            return _refuse(request, context, refused)

        def write_part(part: TxnOffsetCommitRequest) -> Answer[TxnOffsetCommitResponse]:
            # Refuse the write if a marker was written after the verification, because the marker has ended the
            # transaction (E3).
            try:
                partition.guards.check(guard)
                return _write(part, context)
            except KafkaError as error:
                return _refused(part, context, error)

        return _in_parts(request, context, write_part)

    return partition.guards.during(*producer, ask)


def _in_parts(
    request: TxnOffsetCommitRequest,
    context: TransactionContext,
    answer: Callable[[TxnOffsetCommitRequest], Answer[TxnOffsetCommitResponse]],
) -> Answer[TxnOffsetCommitResponse]:
    """Call the function `answer` with the request and return its result; a long request is divided into parts, and
    `answer` is called for each part in a slice of its own. When the client disconnects, the remaining parts are
    skipped. This loses nothing: offsets become valid only if the transaction commits, and a client without a response
    does not commit.
    """
    if not is_long(request.topics):
        return answer(request)

    def each() -> Steps[list[Answer[TxnOffsetCommitResponse]]]:
        answers = []
        for topics in parts(request.topics):
            answers.append(answer(replace(request, topics=topics)))
            yield None
        return answers

    answers = then(context.in_slices(each()), all_of)
    topics = then(answers, lambda each: context.in_slices(joined(part.topics for part in each)))
    return then(topics, lambda topics: TxnOffsetCommitResponse(topics=topics))


def _not_written() -> NoReturn:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@fail_point("offsets-written", dropped=_not_written)
def _write(request: TxnOffsetCommitRequest, context: TransactionContext) -> Answer[TxnOffsetCommitResponse]:
    exists = context.services.image.has_partition
    return context.services.groups.runtime.write(
        request.group_id,
        lambda machine, waiter: machine.commit_in_transaction(request, exists, waiter),
        partial(_refused, request, context),
    )


def _refuse(
    request: TxnOffsetCommitRequest, context: TransactionContext, error: KafkaError
) -> Answer[TxnOffsetCommitResponse]:
    return _in_parts(request, context, lambda part: _refused(part, context, error))


def _refused(
    request: TxnOffsetCommitRequest, context: TransactionContext, error: KafkaError
) -> TxnOffsetCommitResponse:
    code = code_for(context.api_key, context.version, ERRORS.get(error.code, error.code))
    return TxnOffsetCommitResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
