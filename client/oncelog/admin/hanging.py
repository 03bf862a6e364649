"""Combines the state of transactions at coordinators and in partitions, to find hanging transactions. Pure.

A transaction is *open* in a partition from its first record there until its marker. Its coordinator writes the marker
to each partition that it lists for the transaction. So an open transaction *hangs* if no coordinator knows it, or its
coordinator does not list this partition: nothing will end it, and read_committed readers of the partition are stuck at
its first record until an operator ends it (E32, KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from oncelog.cluster import NO_LEADER_EPOCH, TopicPartition

ONGOING: Final = "Ongoing"
PREPARE_ABORT: Final = "PrepareAbort"
PREPARED: Final = ("PrepareCommit", PREPARE_ABORT)
"""The outcome is decided, and markers are on their way."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of transactions that are never aborted for their age: two-phase commit (KIP-939)."""
LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
"""How long above the longest timeout a transaction is open before Kafka's PartitionsWithLateTransactions counts it."""


class PartitionEnds(NamedTuple):
    """The start of a partition, and its end for read_committed and other readers."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id; `coordinator_id` is the broker that listed it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """The coordinator's state of a transactional id.

    `state` is Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort; `start_time_ms` is None
    without an open transaction. `partitions` have no marker of the open transaction yet. `client_id` and `client_host`
    are the producer's, None if unknown: Apache Kafka never reports them, our broker does after the producer's first
    request to it.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: frozenset[TopicPartition]
    coordinator_id: int
    client_id: str | None = None
    client_host: str | None = None

    @property
    def has_timeout(self) -> bool:
        """Whether its coordinator aborts an open transaction after `timeout_ms`. If not, only its owner, the next
        producer with this transactional id, or an operator ends it (KIP-939)."""
        return self.timeout_ms != NO_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of a producer id in a partition. Missing values are -1, or None without an open transaction.

    `last_timestamp` (ms) is the timestamp of its newest records, which producers may set freely; `coordinator_epoch`
    the epoch of the last marker.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """The brokers' transaction.max.timeout.ms, and how often they check for timed out transactions
    (transaction.abort.timed.out.transaction.cleanup.interval.ms)."""

    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000


class Hang(Enum):
    """Why an open transaction will not end by itself."""

    UNKNOWN = "unknown"
    """No coordinator knows its producer id."""
    NOT_HELD = "not held"
    """Its coordinator has ended that transaction, or never learned that the transaction writes to this partition."""
    OVERDUE = "overdue"
    """Its coordinator holds it, for longer than any timeout allows."""
    FENCED = "fenced"
    """Its coordinator has decided the outcome, and this log refuses the marker: an earlier marker had a higher
    coordinator epoch than exists (S40)."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in `partition`; `held` is its transactional id, None if no coordinator knows it.

    `coordinator_epoch` is the present coordinator's, -1 if unknown.
    """

    partition: TopicPartition
    producer: ProducerState
    start_offset: int
    held: DescribedTransaction | None
    coordinator_epoch: int = NO_LEADER_EPOCH

    @property
    def is_held(self) -> bool:
        """Whether its coordinator is going to write a marker to this partition."""
        return self.held is not None and self.partition in self.held.partitions

    def hang(self, now_ms: int, limits: TransactionLimits) -> Hang | None:
        """Why it hangs; None if its coordinator is going to end it.

        The epoch does not matter: a marker of a later epoch of this producer id ends it too.
        """
        if self.held is None:
            return Hang.UNKNOWN
        if not self.is_held:
            return Hang.NOT_HELD
        if self.is_fenced:
            return Hang.FENCED
        start_ms = self.held.start_time_ms if self.held.has_timeout else None
        if start_ms is not None and now_ms - start_ms > limits.max_timeout_ms + limits.abort_interval_ms:
            return Hang.OVERDUE
        return None

    @property
    def is_fenced(self) -> bool:
        """Whether this partition's log refuses the marker that the coordinator has decided on, because the log has a
        marker of a later coordinator epoch, which never existed."""
        is_decided = self.held is not None and self.held.state in PREPARED
        return is_decided and NO_LEADER_EPOCH < self.coordinator_epoch < self.producer.coordinator_epoch

    @property
    def may_be_aborted_here(self) -> bool:
        """Whether an abort marker in this partition alone tears nothing: its coordinator writes none, and has not
        decided to commit."""
        if self.held is None or not self.is_held:
            return True
        return self.is_fenced and self.held.state == PREPARE_ABORT

    def is_late(self, now_ms: int, limits: TransactionLimits) -> bool:
        """Whether Kafka's metric PartitionsWithLateTransactions counts this partition for it."""
        age_ms = now_ms - self.producer.last_timestamp
        return self.producer.last_timestamp > 0 and age_ms > limits.max_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def ends_by_ms(self, limits: TransactionLimits) -> int | None:
        """When its coordinator aborts it at the latest, if its producer does not end it before. None: not known, or it
        has no timeout."""
        held = self.held
        if held is None or not self.is_held or held.state != ONGOING or held.start_time_ms is None:
            return None
        if not held.has_timeout:
            return None
        return held.start_time_ms + held.timeout_ms + limits.abort_interval_ms

    @property
    def identity(self) -> tuple[TopicPartition, int, int, int]:
        """Identifies the transaction between two queries."""
        return self.partition, self.start_offset, self.producer.producer_id, self.producer.producer_epoch


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction that nothing will end; `is_late` as in Kafka's PartitionsWithLateTransactions."""

    transaction: OpenTransaction
    hang: Hang
    is_late: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the last stable offset of a partition is where it is.

    `pinned_by` is the transaction that starts there, and `hang` why it hangs, or None. None if no transaction holds
    back readers, and while a marker is only in the leader's log. `first_timestamp_ms` is the timestamp of its first
    record in this partition. `later` are the other open transactions, by start: they hold readers back after it.
    """

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    pinned_by: OpenTransaction | None
    hang: Hang | None
    ends_by_ms: int | None
    first_timestamp_ms: int | None
    later: tuple[OpenTransaction, ...]
    limits: TransactionLimits

    @property
    def is_held_back(self) -> bool:
        return self.last_stable_offset < self.high_watermark

    @property
    def held_back(self) -> int:
        """The offsets that read_committed readers cannot see yet: records, and markers among them."""
        return max(0, self.high_watermark - self.last_stable_offset)


def explanation(
    partition: TopicPartition,
    ends: PartitionEnds,
    open_here: Iterable[OpenTransaction],
    now_ms: int,
    limits: TransactionLimits,
    first_timestamp_ms: int | None = None,
) -> Explanation:
    """The explanation for `partition`, from its open transactions and its end offsets, which are read a little
    later."""
    by_start = sorted(open_here, key=_start_offset)
    pinned_by = None
    # DeleteRecords may have taken the first records of a transaction away.
    if by_start and max(by_start[0].start_offset, ends.log_start_offset) == ends.last_stable_offset:
        pinned_by = by_start.pop(0)
    return Explanation(
        partition,
        ends.last_stable_offset,
        ends.high_watermark,
        pinned_by,
        None if pinned_by is None else pinned_by.hang(now_ms, limits),
        None if pinned_by is None else pinned_by.ends_by_ms(limits),
        None if pinned_by is None else first_timestamp_ms,
        tuple(transaction for transaction in by_start if transaction.start_offset >= ends.last_stable_offset),
        limits,
    )


def _start_offset(transaction: OpenTransaction) -> int:
    return transaction.start_offset
