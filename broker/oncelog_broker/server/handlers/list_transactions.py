"""ListTransactions (66), v0-2: the transactional ids that this broker coordinates (KIP-664).

Versions: v1 a filter by how long the transaction is open (KIP-994), v2 a pattern of the id (KIP-1152), in Python's
syntax of regular expressions in place of RE2's.
"""

from __future__ import annotations

import re

from oncelog_broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog_broker.coordinator.transaction.states import IDLE, TransactionState
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.context import RequestContext
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

NAMES = {state.shown: state for state in TransactionState}
MAX_PATTERN_CHARS = 256
"""Python's expressions may take long for a long pattern."""


def handle(request: ListTransactionsRequest, context: RequestContext) -> Answer[ListTransactionsResponse]:
    return context.in_slices(_list(request, context))


def _list(request: ListTransactionsRequest, context: RequestContext) -> Steps[ListTransactionsResponse]:
    runtime = context.services.transactions.runtime
    if runtime.is_loading:
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pattern_text = request.transactional_id_pattern or ""
    try:
        pattern = re.compile(pattern_text) if len(pattern_text) <= MAX_PATTERN_CHARS else None
    except re.error:
        pattern = None
    if pattern is None:
        return _failed(ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = {NAMES[name] for name in request.state_filters if name in NAMES}
    unknown = [name for name in request.state_filters if name not in NAMES]
    now_ms = context.services.clock.now_ms()

    def is_wanted(metadata: TransactionMetadata) -> bool:
        if request.state_filters and metadata.state not in states:
            return False
        if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
            return False
        if request.duration_filter >= 0 and (
            metadata.state in IDLE or now_ms - metadata.start_timestamp <= request.duration_filter
        ):
            return False
        return not pattern_text or pattern.fullmatch(metadata.transactional_id) is not None

    found = []
    for machine in list(runtime.machines()):
        for metadata in list(machine.transactions.values()):
            yield None
            if is_wanted(metadata):
                found.append(
                    ListTransactionsResponse.TransactionState(
                        transactional_id=metadata.transactional_id,
                        producer_id=metadata.producer_id,
                        transaction_state=metadata.state.shown,
                    )
                )
    return ListTransactionsResponse(error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=found)


def _failed(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=[], transaction_states=[])
