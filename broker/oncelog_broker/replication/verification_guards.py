"""What holds between the question whether a producer is in a transaction, and the append (KIP-890). Pure.

The coordinator may answer late. A marker that is appended in between has ended the transaction that was asked about,
and a record behind it would open one that nobody ends (E3). So who asks takes a guard first and shows it when he
appends; a marker of the producer, or a new leader epoch, makes it worthless.

Under transactions V2 each transaction has an epoch of its own, and the marker that ends one has the epoch of the next.
So a marker of the guard's epoch has ended the transaction before, which the coordinator may just be completing while
the producer goes on: that changes nothing.
"""

from __future__ import annotations

from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2


class Guard:
    """One question, or several at a time about the same producer and epoch."""

    __slots__ = ("askers", "is_of_former_leader", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.askers = 0
        self.is_of_former_leader = False


class VerificationGuards:
    """The guards of one partition. Each is let go by everybody who took it, so none stays for long."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def take(self, producer_id: int, producer_epoch: int) -> Guard:
        """The guard for a question that is about to be asked; to be given to `let_go`."""
        guard = self._guards.get(producer_id)
        if guard is None or guard.producer_epoch != producer_epoch:
            guard = self._guards[producer_id] = Guard(producer_id, producer_epoch)
        guard.askers += 1
        return guard

    def let_go(self, guard: Guard) -> None:
        """The question is done with."""
        guard.askers -= 1
        if not guard.askers and self.holds(guard):
            del self._guards[guard.producer_id]

    def holds(self, guard: Guard) -> bool:
        """Whether nothing has made the guard worthless."""
        return self._guards.get(guard.producer_id) is guard

    def check(self, guard: Guard) -> None:
        """Raises KafkaError where the guard is worthless: INVALID_TXN_STATE, the transaction was ended meanwhile;
        NOT_LEADER_OR_FOLLOWER, nobody knows whether it was, and it helps to come again."""
        if guard.is_of_former_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leader epoch began while it was asked")
        if not self.holds(guard):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction ended while it was asked about (KIP-890)")

    def on_marker(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """A transaction of this producer has ended here."""
        guard = self._guards.get(producer_id)
        if guard is not None and (transaction_version < TRANSACTIONS_V2 or producer_epoch > guard.producer_epoch):
            del self._guards[producer_id]

    def on_new_leader_epoch(self) -> None:
        """Others may have led in between, and appended markers."""
        for guard in self._guards.values():
            guard.is_of_former_leader = True
        self._guards.clear()
