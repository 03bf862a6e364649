"""Computes the next states of a usual transaction: its owner adds partitions, ends it once, and all markers are
written. Pure.

The functions return None for every other request and state; the methods of the state machine handle these. The fast
lanes of `server/lanes` use the functions instead of these methods, and log the states without an `Effects` object.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog_broker.coordinator.transaction.metadata import EXHAUSTED_EPOCH, TopicPartition, TransactionMetadata
from oncelog_broker.coordinator.transaction.states import IDLE, TransactionState
from oncelog_protocol.producer_id import ProducerIdAndEpoch

Before = TransactionMetadata | None
"""The state of the transactional id before the step; None if the id is unknown."""
NowMs = Callable[[], int]
"""Type of a function that returns the wall time in ms."""


def added(
    before: Before,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    client_transaction_version: int,
    now_ms: NowMs,
) -> TransactionMetadata | None:
    """Return the state after the owner has begun a transaction with these partitions, or added them to its open
    transaction, which does not have all of them yet (S36)."""
    if before is None or not before.is_of(producer_id, producer_epoch):
        return None
    if before.state in IDLE or (before.state is TransactionState.ONGOING and not partitions <= before.partitions):
        return before.with_partitions(partitions, now_ms(), client_transaction_version)
    return None


def has_open(before: Before, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]) -> bool:
    """Whether the owner's open transaction has all these partitions."""
    return (
        before is not None
        and before.state is TransactionState.ONGOING
        and partitions <= before.partitions
        and before.is_of(producer_id, producer_epoch)
    )


def decided(
    before: Before,
    producer_id: int,
    producer_epoch: int,
    commits: bool,
    client_transaction_version: int,
    now_ms: NowMs,
) -> TransactionMetadata | None:
    """Return the state after the owner has ended its open transaction (S38)."""
    if (
        before is None
        or before.state is not TransactionState.ONGOING
        or not before.is_of(producer_id, producer_epoch)
        or producer_epoch >= EXHAUSTED_EPOCH
    ):
        return None
    return before.prepared(commits, now_ms(), client_transaction_version)


def completed(before: Before, producer: ProducerIdAndEpoch, now_ms: NowMs) -> TransactionMetadata | None:
    """Return the state after all markers of the transaction are written, which have this producer id and epoch."""
    if before is None or not before.state.is_prepared or not before.is_of(*producer):
        return None
    return before.completed(now_ms())
