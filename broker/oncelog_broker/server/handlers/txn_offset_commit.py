"""TxnOffsetCommit (28), v0-5: offsets of a group that count only if the transaction commits (S37).

Behaviour: refused unless the partition of `__consumer_offsets` is in the open transaction (E5): by AddOffsetsToTxn, or
from v5 on by this very request. The consumer's generation and member fence zombies (KIP-447, S46).
Versions: v3 generation and member, v4 TRANSACTION_ABORTABLE, v5 transactions V2.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.transaction.verification import check_in_transaction
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.transactional_errors import code_for
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch

TopicResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic

FIRST_TRANSACTIONS_V2_VERSION: Final = 5
ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}
"""What an error of the log is called here."""


def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> Answer[TxnOffsetCommitResponse]:
    def failed(error: KafkaError) -> TxnOffsetCommitResponse:
        code = code_for(context.api_key, context.version, ERRORS.get(error.code, error.code))
        return TxnOffsetCommitResponse(topics=[_refused(topic, code) for topic in request.topics])

    try:
        return _commit(request, context, failed)
    except KafkaError as error:
        return failed(error)


def _commit(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    failed: Callable[[KafkaError], TxnOffsetCommitResponse],
) -> Answer[TxnOffsetCommitResponse]:
    """Write the offsets, if their partition is in the open transaction; a marker that comes between the question and
    the write ends what was found open (E3). Raises KafkaError."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    services = context.services
    partition = services.groups.runtime.shard(request.group_id).partition
    guard = partition.guards.take(request.producer_id, request.producer_epoch)

    def write(refused: KafkaError | None) -> Answer[TxnOffsetCommitResponse]:
        if refused is not None:
            return failed(refused)
        try:
            partition.guards.check(guard)
            return _write(request, context, failed)
        except KafkaError as error:
            return failed(error)

    verified = check_in_transaction(
        services.transactions,
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [partition],
        services.deadlines,
        registers=context.version >= FIRST_TRANSACTIONS_V2_VERSION,
    )
    answer = then(verified, write)
    if isinstance(verified, Future):
        verified.add_done_callback(lambda _: partition.guards.let_go(guard))
    else:
        partition.guards.let_go(guard)
    return answer


def _not_written() -> NoReturn:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@fail_point("offsets-written", dropped=_not_written)
def _write(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    failed: Callable[[KafkaError], TxnOffsetCommitResponse],
) -> Answer[TxnOffsetCommitResponse]:
    exists = context.services.image.has_partition
    return context.services.groups.runtime.write(
        request.group_id, lambda machine, waiter: machine.commit_in_transaction(request, exists, waiter), failed
    )


def _refused(topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, code: ErrorCode) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        partitions=[
            TopicResponse.TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )
