"""Determines the outcome of batches. Pure.

Below the last stable offset every transaction has ended, and the leader lists the aborted transactions. Above the last
stable offset, a batch belongs to an open transaction, or lies behind the start of an open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from oncelog.admin import LogPart
from oncelog.consumer.isolation import AbortedTransactions
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.control import read_marker


class Outcome(Enum):
    """The outcome of a batch; the value is the text shown."""

    PLAIN = "no transaction"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    HELD_BACK = "held back"
    TRANSACTIONAL = "in a transaction"
    """The batch is new and transactional, and it is not known yet whether its transaction commits or aborts."""
    COMMIT = "commit marker"
    ABORT = "abort marker"
    CONTROL = "control record"

    @property
    def is_control(self) -> bool:
        return self in (Outcome.COMMIT, Outcome.ABORT, Outcome.CONTROL)

    @property
    def is_readable(self) -> bool:
        """Whether read_committed consumers see the batch."""
        return self in (Outcome.PLAIN, Outcome.COMMITTED)


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """A batch with its outcome."""

    batch: RecordBatch
    fate: Outcome


def judged_stable(part: LogPart) -> list[JudgedBatch]:
    """Return the batches below the last stable offset with their outcomes."""
    aborted = AbortedTransactions(part.aborted)
    return [JudgedBatch(batch, _stable_fate(batch, aborted)) for batch in part.batches]


def _stable_fate(batch: RecordBatch, aborted: AbortedTransactions) -> Outcome:
    try:
        next_is_aborted = aborted.next_is_aborted(batch)
    except CorruptBatch:
        next_is_aborted = False
    if batch.is_control:
        return control_fate(batch)
    if next_is_aborted:
        return Outcome.ABORTED
    return Outcome.COMMITTED if batch.is_transactional else Outcome.PLAIN


def judged_unstable(batches: Iterable[RecordBatch], open_from: Mapping[int, int]) -> list[JudgedBatch]:
    """Return the batches above the last stable offset with their outcomes. `open_from`: the first offset of each
    producer's open transaction in this partition, by producer id.
    """
    return [JudgedBatch(batch, _unstable_fate(batch, open_from)) for batch in batches]


def _unstable_fate(batch: RecordBatch, open_from: Mapping[int, int]) -> Outcome:
    if batch.is_control:
        return control_fate(batch)
    start = open_from.get(batch.producer_id)
    if batch.is_transactional and start is not None and batch.last_offset >= start:
        return Outcome.OPEN
    return Outcome.HELD_BACK


def judged_fresh(batches: Iterable[RecordBatch]) -> list[JudgedBatch]:
    """Return newly arrived batches with their outcomes."""
    return [JudgedBatch(batch, _fresh_fate(batch)) for batch in batches]


def _fresh_fate(batch: RecordBatch) -> Outcome:
    if batch.is_control:
        return control_fate(batch)
    return Outcome.TRANSACTIONAL if batch.is_transactional else Outcome.PLAIN


def control_fate(batch: RecordBatch) -> Outcome:
    try:
        marker = read_marker(batch)
    except CorruptBatch:
        marker = None
    if marker is None:
        return Outcome.CONTROL
    return Outcome.COMMIT if marker.is_commit else Outcome.ABORT
