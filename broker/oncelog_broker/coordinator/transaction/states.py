"""The states of a transactional id and the table of legal transitions (S33).

                  +---- InitProducerId ----+
                  v                        |
               Empty --- partitions ---> Ongoing <--- partitions ---+
                 |                       |     |                    |
                 |                    commit  abort                 |
                 |                       |     |  \\                 |
                 |                       |     |   fence or timeout |
                 |                       |     |     v              |
                 |                       |     |  PrepareEpochFence |
                 |                       v     v     |              |
                 |            PrepareCommit  PrepareAbort           |
                 |                       |     |                    |
                 |                    markers written               |
                 |                       v     v                    |
                 |            CompleteCommit  CompleteAbort --------+--- InitProducerId ---> Empty
                 |                       |     |
                 +----- expired ------> Dead <-+

Transactions V2 allow an abort without an open transaction (KIP-890): then PrepareAbort follows Empty, CompleteCommit or
CompleteAbort. PrepareEpochFence is never logged; PrepareAbort with the next epoch is logged instead (S33). Dead is a
tombstone in the log. After an InitProducerId that keeps the open transaction, the state stays Ongoing (KIP-939, S120).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The state of a transactional id. `value` is the number in the log, `shown` the name in responses."""

    shown: str

    def __new__(cls, value: int, shown: str) -> TransactionState:
        member = int.__new__(cls, value)
        member._value_ = value
        member.shown = shown
        return member

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    @property
    def is_prepared(self) -> bool:
        """Whether the commit or abort is decided and some markers may not be written yet."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


_S = TransactionState
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""The states in which no transaction is open, so that a new transaction may begin."""

LEGAL_PREVIOUS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""State of a transactional id -> the states from which it may change to this state."""


class IllegalTransition(AssertionError):
    """The state machine attempted a transition that is not in the table of legal transitions, which is a bug."""


def check_transition(transactional_id: str, before: TransactionState, after: TransactionState) -> None:
    """Raises IllegalTransition if the state `after` must not follow the state `before`."""
    if before not in LEGAL_PREVIOUS[after]:
        raise IllegalTransition(f"transactional id {transactional_id}: {after.shown} must not follow {before.shown}")
