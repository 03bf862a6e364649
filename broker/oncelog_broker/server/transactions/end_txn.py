"""EndTxn (26), v0-5: commit or abort a transaction (S38).

Behaviour: the response is sent when the decision is in the coordinator's log; the markers are written afterwards. If a
client repeats an EndTxn request, the response is the same as the first response. Versions: v2 adds PRODUCER_FENCED, v4
TRANSACTION_ABORTABLE, v5 transactions V2: the response has the next producer epoch (T7).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.transactional_errors import code_for
from oncelog_broker.server.transactions.services import TransactionContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2
from oncelog_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch

FIRST_TRANSACTIONS_V2_VERSION: Final = 5


def handle(request: EndTxnRequest, context: TransactionContext) -> Answer[EndTxnResponse]:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not context.may(rules.END_TXN, request.transactional_id):
        return EndTxnResponse(error_code=rules.END_TXN.refused)
    version = TRANSACTIONS_V2 if context.version >= FIRST_TRANSACTIONS_V2_VERSION else TRANSACTIONS_V1
    asking = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    answer = context.services.transactions.end_txn(request.transactional_id, asking, request.committed, version)
    return then(answer, partial(response_to, request.transactional_id, context))


def response_to(
    transactional_id: str, context: TransactionContext, answer: ProducerIdAndEpoch | KafkaError
) -> EndTxnResponse:
    """Return the response with the result of the coordinator."""
    if isinstance(answer, KafkaError):
        return EndTxnResponse(error_code=code_for(context.api_key, context.version, answer.code))
    context.services.transactions.last_clients.note(transactional_id, context.client)
    return EndTxnResponse(error_code=ErrorCode.NONE, producer_id=answer.producer_id, producer_epoch=answer.epoch)
