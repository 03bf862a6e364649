"""ListTransactions (66), v0-2: the transactional ids that this broker coordinates (KIP-664).

Versions: v1 adds a filter by the age of the transaction (KIP-994), v2 a pattern in RE2's syntax that must match the
entire id (KIP-1152).
"""

from __future__ import annotations

from oncelog_broker.coordinator.patterns import IdPattern, InvalidPattern
from oncelog_broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog_broker.coordinator.transaction.states import IDLE, TransactionState
from oncelog_broker.runtime.answers import Answer, settled
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.duplicate_names import once
from oncelog_broker.server.transactions.services import TransactionContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

NAMES = {state.shown: state for state in TransactionState}


def handle(request: ListTransactionsRequest, context: TransactionContext) -> Answer[ListTransactionsResponse]:
    if context.services.transactions.runtime.is_loading:
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if request.transactional_id_pattern:
        return context.in_a_task(_matching(request.transactional_id_pattern, request, context))
    return context.in_slices(_list(request, context))


def _list(request: ListTransactionsRequest, context: TransactionContext) -> Steps[ListTransactionsResponse]:
    """Return the transactions that pass all filters except the pattern."""
    states = {NAMES[name] for name in request.state_filters if name in NAMES}
    unknown = [name for name in once(request.state_filters) if name not in NAMES]
    producer_ids = frozenset(request.producer_id_filters)
    now_ms = context.services.clock.now_ms()

    def is_wanted(metadata: TransactionMetadata) -> bool:
        if request.state_filters and metadata.state not in states:
            return False
        if producer_ids and metadata.producer_id not in producer_ids:
            return False
        return request.duration_filter < 0 or (
            metadata.state not in IDLE and now_ms - metadata.start_timestamp > request.duration_filter
        )

    found = []
    for machine in list(context.services.transactions.runtime.machines()):
        for metadata in list(machine.transactions.values()):
            if is_wanted(metadata) and context.may(rules.LIST_TRANSACTIONS, metadata.transactional_id):
                found.append(
                    ListTransactionsResponse.TransactionState(
                        transactional_id=metadata.transactional_id,
                        producer_id=metadata.producer_id,
                        transaction_state=metadata.state.shown,
                    )
                )
            yield None
    return ListTransactionsResponse(error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=found)


async def _matching(
    text: str, request: ListTransactionsRequest, context: TransactionContext
) -> ListTransactionsResponse:
    """Return the transactions that pass all filters and whose ids match the pattern."""
    try:
        pattern = await IdPattern.read(text)
    except InvalidPattern:
        return _failed(ErrorCode.INVALID_REGULAR_EXPRESSION)
    response = await settled(context.in_slices(_list(request, context)))
    listed = response.transaction_states
    matching = await pattern.matching([state.transactional_id for state in listed], context.services.clock)
    response.transaction_states = [state for state in listed if state.transactional_id in matching]
    return response


def _failed(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=[], transaction_states=[])
