"""Guards that protect a transaction from its verification to the append of its records (KIP-890).

The coordinator's response to the verification may be late. If a marker is appended before the response arrives, it ends
the verified transaction, and a record after that marker would open a transaction that no coordinator ends (E3). The
verifier therefore creates a guard (an object that a marker invalidates) before the verification, and passes the guard
to the append. A marker of the producer, or a new leader epoch, makes the guard invalid.

With transactions V2, each transaction has its own producer epoch, and its end marker has the epoch of the next
transaction. A marker with the guard's own epoch therefore belongs to the previous transaction, which the coordinator
may complete while the producer continues. The guard stays valid after such a marker.
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
    """A guard for one verification, or for several concurrent verifications with the same producer id and epoch."""

    __slots__ = ("askers", "is_of_former_leader", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.askers = 0
        self.is_of_former_leader = False


class VerificationGuards:
    """The guards of one partition. A guard exists until the last verification that uses it has ended.

    Guards of different producer epochs are separate: a fenced producer may still verify, and must not affect the guard
    of its successor.
    """

    __slots__ = ("_guards", "ends")

    def __init__(self) -> None:
        self._guards: dict[int, list[Guard]] = {}
        """Guards by producer id; a producer id rarely has guards of several epochs."""
        self.ends = 0
        """A counter of the markers and new leader epochs so far. A verification that has no guard object is valid as
        long as this number has not changed since its start.
        """

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def during(self, producer_id: int, producer_epoch: int, ask: Callable[[Guard], Answer[R]]) -> Answer[R]:
        """Call `ask` (which verifies the transaction) with a new or shared guard, and return the result of `ask`. The
        guard exists until that result is complete or cancelled, or until `ask` raises.
        """
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
        """Check that the guard is valid. Raises KafkaError if it is not: INVALID_TXN_STATE if the transaction has
        ended; NOT_LEADER_OR_FOLLOWER if the leader epoch has changed, so that it is unknown whether the transaction has
        ended, and the client must retry.
        """
        if guard.is_of_former_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader epoch changed during the verification")
        if not self.holds(guard):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction ended during its verification (KIP-890)")

    def on_marker(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """Invalidate guards of this producer, after one of its transactions has ended in this partition."""
        self.ends += 1
        if producer_id in self._guards:
            is_v2 = transaction_version >= TRANSACTIONS_V2
            self._keep(producer_id, lambda guard: is_v2 and guard.producer_epoch >= producer_epoch)

    def on_new_leader_epoch(self) -> None:
        """Invalidate all guards, because another broker may have led meanwhile and appended markers."""
        self.ends += 1
        for guards in self._guards.values():
            for guard in guards:
                guard.is_of_former_leader = True
        self._guards.clear()
