"""Combines the state of transactions at coordinators and in partitions, to find hanging transactions. Pure.

A transaction is *open* in a partition from its first record there until its marker. The coordinator of a transaction
writes a marker to each partition that the coordinator lists for the transaction. An open transaction *hangs* if no
coordinator
knows the transaction, or if its coordinator does not list this partition. Nothing ends a hanging transaction, so
read_committed readers of the partition are stuck at the transaction's first record until an operator ends the
transaction (E32, KIP-664).
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
"""States in which the coordinator has decided the outcome and is sending the markers."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout value of two-phase-commit transactions; coordinators never abort these transactions for their age
(KIP-939).
"""
LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
"""Kafka's PartitionsWithLateTransactions counts a transaction that has been open for the longest timeout plus this many
milliseconds.
"""


class PartitionEnds(NamedTuple):
    """The start offset of a partition, and its end offsets for read_committed and for other readers."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id in a listing; `coordinator_id` is the broker that listed the id, which is its coordinator."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """The coordinator's state of a transactional id.

    `state` is Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort; `start_time_ms` is None
    without an open transaction. `partitions` are the partitions in the open transaction that do not have its marker
    yet.
    `client_id` and `client_host` are those of the producer, None if unknown. Apache Kafka never reports the client's id
    and host;
    an oncelog broker reports them after the producer's first request to it.
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
        """Whether the coordinator aborts this transaction after `timeout_ms`. A transaction without a timeout is ended
        only by its owner, by the next producer with this transactional id, or by an operator (KIP-939).
        """
        return self.timeout_ms != NO_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of a producer id in the log of a partition. Unknown values are -1; fields of an open transaction are
    None if no transaction is open.

    `last_timestamp` (ms) is the timestamp of the producer's newest records, which producers may choose freely;
    `coordinator_epoch` is the coordinator epoch of the last marker.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """The brokers' setting transaction.max.timeout.ms, and the interval at which brokers check for timed-out
    transactions (transaction.abort.timed.out.transaction.cleanup.interval.ms).
    """

    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000


class Hang(Enum):
    """The reason why an open transaction will not end without an operator."""

    UNKNOWN = "unknown"
    """No coordinator knows the producer id of the transaction."""
    NOT_HELD = "not held"
    """The coordinator has already ended the transaction, or never learned that the transaction has written to this
    partition.
    """
    OVERDUE = "overdue"
    """The coordinator still lists the transaction, but the transaction has been open for longer than any timeout
    allows.
    """
    FENCED = "fenced"
    """The coordinator has decided the outcome, but the partition's log refuses the marker. An operator's tool wrote an
    earlier marker there with a higher coordinator epoch than the coordinator has (S40).
    """


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in `partition`. `held` is the state of its transactional id at the coordinator, None if no
    coordinator knows the transaction.

    `coordinator_epoch` is the epoch of the present coordinator, -1 if unknown.
    """

    partition: TopicPartition
    producer: ProducerState
    start_offset: int
    held: DescribedTransaction | None
    coordinator_epoch: int = NO_LEADER_EPOCH

    @property
    def is_held(self) -> bool:
        """Whether the coordinator is going to write a marker to this partition."""
        return self.held is not None and self.partition in self.held.partitions

    def hang(self, now_ms: int, limits: TransactionLimits) -> Hang | None:
        """Return the reason why the transaction hangs; None if its coordinator is going to end the transaction.

        The producer epoch is not compared, because a marker with a later epoch of this producer id ends the transaction
        too.
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
        """Whether this partition's log refuses the marker that the coordinator has decided on. The log refuses the
        marker if an earlier marker in the log has a coordinator epoch above that of the present coordinator.
        """
        is_decided = self.held is not None and self.held.state in PREPARED
        return is_decided and NO_LEADER_EPOCH < self.coordinator_epoch < self.producer.coordinator_epoch

    @property
    def may_be_aborted_here(self) -> bool:
        """Whether it is safe to write an abort marker to this partition alone: the transaction must not be committed in
        other partitions. Aborting is safe if the coordinator writes no marker to this partition and has not decided to
        commit.
        """
        if self.held is None or not self.is_held:
            return True
        return self.is_fenced and self.held.state == PREPARE_ABORT

    def is_late(self, now_ms: int, limits: TransactionLimits) -> bool:
        """Return whether Kafka's metric PartitionsWithLateTransactions counts this partition because of this
        transaction.
        """
        age_ms = now_ms - self.producer.last_timestamp
        return self.producer.last_timestamp > 0 and age_ms > limits.max_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def ends_by_ms(self, limits: TransactionLimits) -> int | None:
        """Return the time (ms) by which the coordinator aborts the transaction, unless its producer ends it earlier.
        None means that the time is unknown or that the transaction has no timeout.
        """
        held = self.held
        if held is None or not self.is_held or held.state != ONGOING or held.start_time_ms is None:
            return None
        if not held.has_timeout:
            return None
        return held.start_time_ms + held.timeout_ms + limits.abort_interval_ms

    @property
    def identity(self) -> tuple[TopicPartition, int, int, int]:
        """The key that identifies this transaction in the results of two queries."""
        return self.partition, self.start_offset, self.producer.producer_id, self.producer.producer_epoch


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction that no coordinator will end. `is_late` says whether Kafka's PartitionsWithLateTransactions
    counts
    the transaction.
    """

    transaction: OpenTransaction
    hang: Hang
    is_late: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explains the position of a partition's last stable offset (LSO) by the open transactions of the partition.

    `pinned_by` is the transaction that starts at the last stable offset; `hang` is the reason why that transaction
    hangs, None if it does not hang. `pinned_by` is None if no transaction holds back readers, and also while the marker
    of the last open transaction is not replicated yet. `first_timestamp_ms` is the timestamp of the first record of
    `pinned_by` in this
    partition. `later` are the other open transactions, sorted by start offset; they hold back readers after `pinned_by`
    has ended.
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
        """Number of offsets, including markers, that read_committed readers cannot see yet."""
        return max(0, self.high_watermark - self.last_stable_offset)


def explanation(
    partition: TopicPartition,
    ends: PartitionEnds,
    open_here: Iterable[OpenTransaction],
    now_ms: int,
    limits: TransactionLimits,
    first_timestamp_ms: int | None = None,
) -> Explanation:
    """Explain the last stable offset of `partition` from its open transactions and its end offsets; the end offsets are
    read a little later than the transactions.
    """
    by_start = sorted(open_here, key=_start_offset)
    pinned_by = None
    # DeleteRecords may have deleted the first records of a transaction, so its start may lie below the log's start.
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
