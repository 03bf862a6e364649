"""Guards from the verification of a transaction to the append of its records (KIP-890). Pure.

The coordinator's answer may be late. A marker appended in between ends the verified transaction, and a record after it
would open a transaction that no coordinator ends (E3). So the verifier takes a guard first and presents it with the
append; a marker of the producer, or a new leader epoch, invalidates the guard.

Under transactions V2 each transaction has its own producer epoch, and its end marker carries the epoch of the next one.
So a marker with the guard's epoch ended the previous transaction, which the coordinator may complete while the producer
continues; it leaves the guard valid.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import TypeVar

from oncelog_broker.runtime.answers import Answer
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2

R = TypeVar("R")


class Guard:
    """One verification, or several concurrent ones of the same producer id and epoch."""

    __slots__ = ("askers", "is_of_former_leader", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.askers = 0
        self.is_of_former_leader = False


class VerificationGuards:
    """The guards of one partition. A guard lives until the last verification that uses it has ended.

    Epochs are separate: a fenced producer may still verify, and must not affect its successor's guard.
    """

    __slots__ = ("_guards", "ends")

    def __init__(self) -> None:
        self._guards: dict[int, list[Guard]] = {}
        """Guards by producer id; a producer id rarely has guards of more than one epoch."""
        self.ends = 0
        """The number of markers and new leader epochs so far. While it stays the same, a verification without a guard
        stays valid."""

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def during(self, producer_id: int, producer_epoch: int, ask: Callable[[Guard], Answer[R]]) -> Answer[R]:
        """Return what `ask` returns for a new or shared guard. The guard lives until that answer is done or cancelled,
        or `ask` raises."""
        guard = self._take(producer_id, producer_epoch)
        answer: Answer[R] | None = None
        try:
            answer = ask(guard)
        finally:
            if isinstance(answer, Future):
                answer.add_done_callback(lambda _: self._let_go(guard))
            else:
                self._let_go(guard)
        return answer

    def _take(self, producer_id: int, producer_epoch: int) -> Guard:
        guards = self._guards.setdefault(producer_id, [])
        guard = next((each for each in guards if each.producer_epoch == producer_epoch), None)
        if guard is None:
            guard = Guard(producer_id, producer_epoch)
            guards.append(guard)
        guard.askers += 1
        return guard

    def _let_go(self, guard: Guard) -> None:
        guard.askers -= 1
        if not guard.askers:
            self._keep(guard.producer_id, lambda each: each is not guard)

    def _keep(self, producer_id: int, is_kept: Callable[[Guard], bool]) -> None:
        kept = [guard for guard in self._guards.pop(producer_id, ()) if is_kept(guard)]
        if kept:
            self._guards[producer_id] = kept

    def holds(self, guard: Guard) -> bool:
        """Whether the guard is still valid."""
        return guard in self._guards.get(guard.producer_id, ())

    def check(self, guard: Guard) -> None:
        """Raises KafkaError for an invalid guard: INVALID_TXN_STATE, the transaction has ended; NOT_LEADER_OR_FOLLOWER,
        unknown because the leader epoch changed: retry."""
        if guard.is_of_former_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader epoch changed during the verification")
        if not self.holds(guard):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction ended during its verification (KIP-890)")

    def on_marker(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """Invalidate guards of this producer: one of its transactions has ended here."""
        self.ends += 1
        if producer_id in self._guards:
            is_v2 = transaction_version >= TRANSACTIONS_V2
            self._keep(producer_id, lambda guard: is_v2 and guard.producer_epoch >= producer_epoch)

    def on_new_leader_epoch(self) -> None:
        """Invalidate all guards: another broker may have led in between and appended markers."""
        self.ends += 1
        for guards in self._guards.values():
            for guard in guards:
                guard.is_of_former_leader = True
        self._guards.clear()
