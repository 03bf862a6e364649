"""The states of a transactional producer, and their transitions (S45). Pure.

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING or ABORTING -> READY
                                                      or PREPARED_TRANSACTION -> COMMITTING or ABORTING -> READY
                       or PREPARED_TRANSACTION, if an open transaction was found and kept

An error after which a new transaction may begin leads to ABORTABLE_ERROR; the only way out of that state is an abort.
FATAL_ERROR is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from oncelog.errors import InvalidTransactionState


class TransactionState(Enum):
    """The state names are Kafka's (TransactionManager.State)."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


_S = TransactionState

PREVIOUS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.UNINITIALIZED: frozenset(),
    # INITIALIZING follows COMMITTING or ABORTING after some errors, because the next epoch must be requested before the
    # transaction is over (KIP-360).
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.COMMITTING, _S.ABORTING}),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING, _S.ABORTING}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    # No more records are written to the transaction; this producer, or any process that has its PreparedTransaction,
    # ends the transaction. INITIALIZING leads
    # here if the transaction of a previous producer was kept (KIP-939).
    _S.PREPARED_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.INITIALIZING}),
    _S.COMMITTING: frozenset({_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION}),
    _S.ABORTING: frozenset({_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: frozenset(
        {_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION, _S.COMMITTING, _S.ABORTABLE_ERROR, _S.INITIALIZING}
    ),
    _S.FATAL_ERROR: frozenset(_S),
}
"""State -> the states that may precede it."""


def check(before: TransactionState, after: TransactionState) -> None:
    """Raise InvalidTransactionState if the state `after` may not follow the state `before`."""
    if before not in PREVIOUS[after]:
        raise InvalidTransactionState(f"a producer that is {before.name} cannot become {after.name}")
