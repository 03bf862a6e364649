"""Where clients note what they do. They note it *before* they ask and complete it when they know more: what is never
completed is unknown. Each method may be called from any thread."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable

from tests.support.history.events import (
    NOT_YET,
    Commit,
    End,
    Input,
    Led,
    OffsetRead,
    Outcome,
    Place,
    Reading,
    ReplicaLog,
    Send,
    Transaction,
)


class History:
    def __init__(self) -> None:
        # Appending to a list and counting are single steps of the interpreter: no lock is needed.
        self._clock = itertools.count()
        self.transactions: list[Transaction] = []
        self.sends: list[Send] = []
        self.readings: list[Reading] = []
        self.commits: list[Commit] = []
        self.offset_reads: list[OffsetRead] = []
        self.replicas: list[ReplicaLog] = []
        self.leaders: set[Led] = set()
        self.final: dict[Place, list[tuple[int, bytes]]] = {}
        """Offset and value of what a read_committed consumer finds when all is over."""

        self.processed: dict[tuple[str, Place], int] = {}
        """By group: up to where it has processed a partition, when all is over."""

    def now(self) -> int:
        return next(self._clock)

    # --- producers

    def transaction(self, producer: str) -> Transaction:
        """It begins."""
        transaction = Transaction(producer, len(self.transactions))
        self.transactions.append(transaction)
        return transaction

    def ended(self, transaction: Transaction, end: End) -> None:
        transaction.end, transaction.ended = end, self.now()

    def send(self, producer: str, place: Place, value: bytes, transaction: Transaction | None = None) -> Send:
        send = Send(producer, place, value, transaction)
        self.sends.append(send)
        return send

    def acknowledged(self, send: Send, offset: int = NOT_YET) -> None:
        send.outcome, send.offset = Outcome.ACKNOWLEDGED, offset

    def derived(self, send: Send, group: str, place: Place, offset: int) -> None:
        """It is what a group makes of this input; another attempt may make another output of it."""
        send.made_of = Input(group, place, offset)

    def failed(self, send: Send) -> None:
        """For certain: see `Outcome.FAILED`."""
        send.outcome = Outcome.FAILED

    # --- consumers

    def reading(self, consumer: str, place: Place, *, is_committed: bool = True) -> Reading:
        """A consumer begins to read a partition, or is sent elsewhere in it."""
        reading = Reading(consumer, place, is_committed)
        self.readings.append(reading)
        return reading

    def commit(self, group: str, place: Place, offset: int, transaction: Transaction | None = None) -> Commit:
        commit = Commit(group, place, offset, self.now(), transaction)
        self.commits.append(commit)
        return commit

    def commit_answered(self, commit: Commit, outcome: Outcome = Outcome.ACKNOWLEDGED) -> None:
        commit.outcome, commit.answered = outcome, self.now()

    def offset_read(self, group: str, place: Place, offset: int, *, asked: int) -> None:
        """`asked`: `now()` before the question."""
        self.offset_reads.append(OffsetRead(group, place, offset, asked, self.now()))

    # --- the cluster

    def led(self, place: Place, epoch: int, broker: int) -> None:
        self.leaders.add(Led(place, epoch, broker))

    def replica(self, log: ReplicaLog) -> None:
        self.replicas.append(log)

    def finally_processed(self, group: str, place: Place, end: int) -> None:
        """A group has processed all that is below this offset, as it has committed."""
        self.processed[group, place] = end

    def finally_holds(self, place: Place, records: Iterable[tuple[int, bytes]]) -> None:
        """What a read_committed consumer finds in a partition when all is over."""
        self.final[place] = list(records)

    # --- what checks ask for

    def sends_by_value(self) -> dict[bytes, Send]:
        found = {send.value: send for send in self.sends}
        assert len(found) == len(self.sends), "two records were sent with one value: the test is wrong"
        return found

    def sends_by_transaction(self) -> dict[Transaction, list[Send]]:
        found: defaultdict[Transaction, list[Send]] = defaultdict(list)
        for send in self.sends:
            if send.transaction is not None:
                found[send.transaction].append(send)
        return found
