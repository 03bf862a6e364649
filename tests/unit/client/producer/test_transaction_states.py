"""Which transitions are permitted for all pairs of states, against a table derived from Kafka's isTransitionValid
(S45).
"""

from __future__ import annotations

import pytest

from oncelog.errors import InvalidTransactionState
from oncelog.producer.transaction_states import PREVIOUS, TransactionState, check

ORDER = ["UNINITIALIZED", "INITIALIZING", "READY", "IN_TRANSACTION", "PREPARED_TRANSACTION", "COMMITTING", "ABORTING"]
ORDER += ["ABORTABLE_ERROR", "FATAL_ERROR"]
# an x permits the transition from the state of the row to the state of the column, in the order above
TABLE = {
    "UNINITIALIZED": ".x......x",
    "INITIALIZING": "..x.x..xx",
    "READY": "...x....x",
    "IN_TRANSACTION": "....xxxxx",
    "PREPARED_TRANSACTION": ".....xxxx",
    "COMMITTING": ".xx....xx",
    "ABORTING": ".xx.....x",
    "ABORTABLE_ERROR": "......xxx",
    "FATAL_ERROR": "........x",
}


def test_s45_the_states_are_kafkas() -> None:
    assert [state.name for state in TransactionState] == ORDER
    assert set(PREVIOUS) == set(TransactionState)


@pytest.mark.parametrize("after", list(TransactionState))
@pytest.mark.parametrize("before", list(TransactionState))
def test_s45_each_pair_of_states_is_allowed_or_refused(before: TransactionState, after: TransactionState) -> None:
    if TABLE[before.name][ORDER.index(after.name)] == "x":
        check(before, after)
        return
    with pytest.raises(InvalidTransactionState, match=f"is {before.name} cannot become {after.name}"):
        check(before, after)
