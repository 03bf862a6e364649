"""ListTransactions filters by state, producer, age and pattern, and returns only transactions that the principal may
describe.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import START_MS, MachineRuntime, answered, asked

from oncelog_broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.transactions import list_transactions
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.list_transactions import ListTransactionsRequest


def transaction(name: str, producer_id: int, state: TransactionState, age_ms: int) -> TransactionMetadata:
    found: Any = SimpleNamespace(
        transactional_id=name, producer_id=producer_id, state=state, start_timestamp=START_MS - age_ms
    )
    return found


KNOWN = (
    transaction("billing-1", 1, TransactionState.ONGOING, 5000),
    transaction("billing-2", 2, TransactionState.EMPTY, 9000),
    transaction("stock", 3, TransactionState.PREPARE_COMMIT, 100),
)


async def ask(*, is_loading: bool = False, refused: Any = (), **fields: Any) -> Any:
    runtime = MachineRuntime(SimpleNamespace(transactions={each.transactional_id: each for each in KNOWN}))
    runtime.is_loading = is_loading
    context = asked(
        ApiKey.LIST_TRANSACTIONS,
        2,
        refused=refused,
        clock=ManualClock(START_MS),
        transactions=SimpleNamespace(runtime=runtime),
    )
    fields = {"state_filters": [], "producer_id_filters": []} | fields
    answer = await answered(list_transactions.handle, ListTransactionsRequest(**fields), context)
    await context.services.tasks.close()
    return answer


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, {"billing-1", "billing-2", "stock"}),
        ({"state_filters": ["Ongoing", "PrepareCommit"]}, {"billing-1", "stock"}),
        ({"producer_id_filters": [2, 3]}, {"billing-2", "stock"}),
        ({"duration_filter": 1000}, {"billing-1"}),  # a transaction that has not begun has no age
        ({"duration_filter": 5000}, set()),
        ({"transactional_id_pattern": "billing-.*"}, {"billing-1", "billing-2"}),
        ({"transactional_id_pattern": "billing"}, set()),  # the pattern must match the entire id
        ({"transactional_id_pattern": "billing-.*", "state_filters": ["Ongoing"]}, {"billing-1"}),
    ],
)
async def test_transactions_are_filtered(filters: dict[str, Any], found: set[str]) -> None:
    answer = await ask(**filters)
    assert answer.error_code == ErrorCode.NONE
    assert {state.transactional_id for state in answer.transaction_states} == found


async def test_unknown_states_are_named_and_match_nothing() -> None:
    answer = await ask(state_filters=["Ongoing", "Sleeping", "Sleeping"])
    assert answer.unknown_state_filters == ["Sleeping"]
    assert [state.transaction_state for state in answer.transaction_states] == ["Ongoing"]
    assert (await ask(state_filters=["Sleeping"])).transaction_states == []


async def test_unauthorized_transactions_are_left_out() -> None:
    answer = await ask(refused={(rules.LIST_TRANSACTIONS, "billing-1")})
    assert {state.transactional_id for state in answer.transaction_states} == {"billing-2", "stock"}


async def test_errors_of_the_whole_list_are_returned() -> None:
    assert (await ask(is_loading=True)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await ask(transactional_id_pattern="(")).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
