"""InitProducerId (22), v0-6: a producer id for an idempotent producer (S5), or for the next owner of a transactional id
(S34).

Without a transactional id any broker responds with an id from its block and epoch 0, and keeps no state. With a
transactional id, its coordinator fences the previous producer and aborts that producer's open transaction; the response
is CONCURRENT_TRANSACTIONS until the abort is done. Versions: from v3 on the request may contain the current producer id
and epoch, but not only one of them (KIP-360, T21); v4 adds PRODUCER_FENCED; v6 allows transactions without a timeout,
and can keep the previous producer's open transaction instead of aborting it (KIP-939, S120). v6 is advertised only if
`transaction.two.phase.commit.enable` is true.
"""

from __future__ import annotations

from functools import partial

from oncelog_broker.coordinator.transaction.machine import Granted
from oncelog_broker.metadata.membership.producer_ids import ProducerIdsExhausted
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.transactional_errors import code_for
from oncelog_broker.server.transactions.services import TransactionContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog_protocol.producer_id import NO_IDENTITY, ProducerIdAndEpoch


def handle(request: InitProducerIdRequest, context: TransactionContext) -> Answer[InitProducerIdResponse]:
    if request.transactional_id == "" or (request.producer_id == -1) != (request.producer_epoch == -1):
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        if not (context.may(rules.INIT_PRODUCER_ID) or context.may(rules.INIT_FOR_ANY_TOPIC, None)):
            return _failed(rules.INIT_FOR_ANY_TOPIC.refused)
        return context.in_a_task(_new_producer(context))
    if not context.may(rules.INIT_TRANSACTION, request.transactional_id):
        return _failed(rules.INIT_TRANSACTION.refused)
    if request.enable2_pc and not context.may(rules.INIT_TWO_PHASE_COMMIT, request.transactional_id):
        return _failed(rules.INIT_TWO_PHASE_COMMIT.refused)
    shown = None if request.producer_id == -1 else ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    answer = context.services.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        shown,
        two_phase=request.enable2_pc,
        keeps_open=request.keep_prepared_txn,
    )
    return then(answer, partial(_response, request.transactional_id, context))


def _response(
    transactional_id: str, context: TransactionContext, answer: Granted | KafkaError
) -> InitProducerIdResponse:
    if isinstance(answer, KafkaError):
        return _failed(code_for(context.api_key, context.version, answer.code))
    context.services.transactions.last_clients.note(transactional_id, context.client)
    kept = answer.kept_open or NO_IDENTITY
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.epoch,
        ongoing_txn_producer_id=kept.producer_id,
        ongoing_txn_producer_epoch=kept.epoch,
    )


async def _new_producer(context: TransactionContext) -> InitProducerIdResponse:
    try:
        producer_id = await context.services.producer_ids.generate()
    except KafkaError as error:
        return _failed(error.code)
    except ProducerIdsExhausted:
        return _failed(ErrorCode.UNKNOWN_SERVER_ERROR)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
