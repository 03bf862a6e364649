"""What holds between the question whether a producer is in a transaction, and the append (KIP-890). Pure.

The coordinator may answer late. A marker that is appended in between has ended the transaction that was asked about,
and a record behind it would open one that nobody ends (E3). So who asks takes a guard first and shows it when he
appends; a marker of the producer, or a new leader epoch, makes it worthless.

Under transactions V2 each transaction has an epoch of its own, and the marker that ends one has the epoch of the next.
So a marker of the guard's epoch has ended the transaction before, which the coordinator may just be completing while
the producer goes on: that changes nothing.
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
    """One question, or several at a time about the same producer and epoch."""

    __slots__ = ("askers", "is_of_former_leader", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.askers = 0
        self.is_of_former_leader = False


class VerificationGuards:
    """The guards of one partition. Each goes with the last question that it was taken for.

    One epoch's questions are nothing to another's: a producer that was taken over may still ask, and must not undo what
    its successor does.
    """

    __slots__ = ("_guards", "ends")

    def __init__(self) -> None:
        self._guards: dict[int, list[Guard]] = {}
        """By producer id; of several epochs hardly ever."""
        self.ends = 0
        """How many markers have come, and new leader epochs. While it stays the same, what was verified without a guard
        is still so."""

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def during(self, producer_id: int, producer_epoch: int, ask: Callable[[Guard], Answer[R]]) -> Answer[R]:
        """What `ask` answers, to whom the guard is given for so long: until the answer is there or nobody waits for it
        any more, or asking has raised."""
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
        """Whether nothing has made the guard worthless."""
        return guard in self._guards.get(guard.producer_id, ())

    def check(self, guard: Guard) -> None:
        """Raises KafkaError where the guard is worthless: INVALID_TXN_STATE, the transaction was ended meanwhile;
        NOT_LEADER_OR_FOLLOWER, nobody knows whether it was, and it helps to come again."""
        if guard.is_of_former_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leader epoch began while it was asked")
        if not self.holds(guard):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction ended while it was asked about (KIP-890)")

    def on_marker(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """A transaction of this producer has ended here."""
        self.ends += 1
        if producer_id in self._guards:
            is_v2 = transaction_version >= TRANSACTIONS_V2
            self._keep(producer_id, lambda guard: is_v2 and guard.producer_epoch >= producer_epoch)

    def on_new_leader_epoch(self) -> None:
        """Others may have led in between, and appended markers."""
        self.ends += 1
        for guards in self._guards.values():
            for guard in guards:
                guard.is_of_former_leader = True
        self._guards.clear()
