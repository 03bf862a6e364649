"""Records the actions of clients. Clients record an action *before* they start it, and complete the entry when the
outcome is known: an action that is never completed has an unknown outcome. Each method may be called from any thread.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable

from oncelog_testing.history.events import (
    ANY_PARTITION,
    NOT_YET,
    Commit,
    Delivery,
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

__tracebackhide__ = True  # hides this module in the traceback of a failed test


class History:
    def __init__(self) -> None:
        # No lock is needed, because appending to a list and counting are single steps of the interpreter.
        self._clock = itertools.count()
        self.transactions: list[Transaction] = []
        self.sends: list[Send] = []
        self.readings: list[Reading] = []
        self.commits: list[Commit] = []
        self.offset_reads: list[OffsetRead] = []
        self.deliveries: list[Delivery] = []
        self.shared: dict[tuple[str, Place], int] = {}
        """Maps each share group and partition that the group has finished to the group's limit of deliveries."""
        self.replicas: list[ReplicaLog] = []
        self.leaders: set[Led] = set()
        self.final: dict[Place, list[tuple[int, bytes]]] = {}
        """Maps each partition to the records that a read_committed consumer reads at the end, as pairs of offset and
        value.
        """
        self.final_at: dict[Place, int] = {}
        """The time at which the final content was recorded."""
        self.processed: dict[tuple[str, Place], int] = {}
        """Maps (group, partition) to the offset up to which the group has processed the partition at the end."""

    def now(self) -> int:
        return next(self._clock)

    # --- producers

    def transaction(self, producer: str) -> Transaction:
        """Record that a transaction begins."""
        transaction = Transaction(producer, len(self.transactions))
        self.transactions.append(transaction)
        return transaction

    def ended(self, transaction: Transaction, end: End) -> None:
        transaction.end, transaction.ended = end, self.now()

    def send(self, producer: str, place: Place | str, value: bytes, transaction: Transaction | None = None) -> Send:
        """Record a send; `place` is a topic if the producer chooses the partition."""
        if isinstance(place, str):
            place = Place(place, ANY_PARTITION)
        send = Send(producer, place, value, transaction)
        self.sends.append(send)
        return send

    def acknowledged(self, send: Send, offset: int = NOT_YET, partition: int | None = None) -> None:
        send.outcome, send.offset = Outcome.ACKNOWLEDGED, offset
        if partition is not None:
            send.place = Place(send.place.topic, partition)

    def derived(self, send: Send, group: str, place: Place, offset: int) -> None:
        """Record that the record of `send` is a group's output for this input; another attempt may produce another
        output for the same input.
        """
        send.made_of = Input(group, place, offset)

    def failed(self, send: Send) -> None:
        """Record that the send certainly failed: see `Outcome.FAILED`."""
        send.outcome = Outcome.FAILED

    # --- consumers

    def reading(self, consumer: str, place: Place, *, is_committed: bool = True) -> Reading:
        """Record that a consumer begins to read a partition, or seeks in it."""
        reading = Reading(consumer, place, is_committed)
        self.readings.append(reading)
        return reading

    def commit(self, group: str, place: Place, offset: int, transaction: Transaction | None = None) -> Commit:
        commit = Commit(group, place, offset, self.now(), transaction)
        self.commits.append(commit)
        return commit

    def reset(self, group: str, place: Place, offset: int) -> Commit:
        """Record that an administrator sets the offset of a group, possibly to a lower offset, or deletes it (-1);
        earlier commits then no longer count. When the response is known, complete the returned entry with its outcome.
        """
        commit = Commit(group, place, offset, self.now(), is_reset=True)
        self.commits.append(commit)
        return commit

    def commit_answered(self, commit: Commit, outcome: Outcome = Outcome.ACKNOWLEDGED) -> None:
        commit.outcome, commit.answered = outcome, self.now()

    def offset_read(self, group: str, place: Place, offset: int, *, asked: int) -> None:
        """`asked`: the value of `now()` before the request. If transactions commit the offsets, the request must ask
        for stable offsets.
        """
        self.offset_reads.append(OffsetRead(group, place, offset, asked, self.now()))

    # --- members of share groups

    def delivered(self, group: str, member: str, place: Place, offset: int, count: int) -> Delivery:
        """Record that a member has got a record; `count` is the delivery count of the response."""
        delivery = Delivery(group, member, place, offset, count, self.now())
        self.deliveries.append(delivery)
        return delivery

    def accepting(self, delivery: Delivery) -> None:
        """Record that the member sends its acceptance of the record."""
        delivery.accepted = self.now()

    def acceptance_answered(self, delivery: Delivery, outcome: Outcome = Outcome.ACKNOWLEDGED) -> None:
        delivery.outcome, delivery.answered = outcome, self.now()

    def finally_shared(self, group: str, place: Place, limit: int) -> None:
        """Record that a share group has finished all records of a partition; `limit` is its limit of deliveries."""
        self.shared[group, place] = limit

    # --- observations of the cluster

    def led(self, place: Place, epoch: int, broker: int) -> None:
        self.leaders.add(Led(place, epoch, broker))

    def replica(self, log: ReplicaLog) -> None:
        self.replicas.append(log)

    def finally_processed(self, group: str, place: Place, end: int) -> None:
        """Record that a group has processed all records below this committed offset."""
        self.processed[group, place] = end

    def finally_holds(self, place: Place, records: Iterable[tuple[int, bytes]]) -> None:
        """Record the final content of a partition, as a read_committed consumer reads it."""
        self.final[place], self.final_at[place] = list(records), self.now()

    # --- queries for the checks

    def sends_by_value(self) -> dict[bytes, Send]:
        """Return the sends by value; raises ValueError if two sends have the same value, because they could not be
        distinguished.
        """
        found: dict[bytes, Send] = {}
        for send in self.sends:
            if found.setdefault(send.value, send) is not send:
                raise ValueError(f"two records were sent with the value {send.value!r}: each needs one of its own")
        return found

    def settle_partitions(self) -> None:
        """For each send without a partition, set the partition in which its record was found. If the record was not
        found, set one of the topic's partitions that were read; if no partition was read, the send keeps ANY_PARTITION.
        """
        unsettled = [send for send in self.sends if send.place.index == ANY_PARTITION]
        if not unsettled:
            return
        found = {(place.topic, value): place for place, records in self.final.items() for _, value in records}
        known = {place.topic: place for place in self.final}
        for send in unsettled:
            topic = send.place.topic
            send.place = found.get((topic, send.value)) or known.get(topic) or send.place

    def sends_by_transaction(self) -> dict[Transaction, list[Send]]:
        found: defaultdict[Transaction, list[Send]] = defaultdict(list)
        for send in self.sends:
            if send.transaction is not None:
                found[send.transaction].append(send)
        return found

    def commits_by_transaction(self) -> dict[Transaction, list[Commit]]:
        found: defaultdict[Transaction, list[Commit]] = defaultdict(list)
        for commit in self.commits:
            if commit.transaction is not None:
                found[commit.transaction].append(commit)
        return found
