"""Finds lost and duplicate records of idempotent producers, by the sequence numbers in a log. Pure.

A producer numbers its records for each partition: 0, 1, 2 ..., and begins again at 0 with every epoch; brokers store
these numbers. In the order of offsets, the next batch of one producer in a partition is one of these cases:

- *right*: the batch continues the previous batch, or begins a later epoch at 0.
- *gap*: the batch begins at a higher sequence than expected, so records are missing.
- *twice*: the batch begins at a lower sequence than expected, so records are duplicates.
- *zombie*: the epoch of the batch is over, because a marker or a batch with a later epoch came before.

A topic may be larger than memory, so the audit first joins batches to chains, and afterwards checks only the chains.
`Chains` joins consecutive batches of a range of offsets as long as they have no fault; the class itself reports no
faults, because it does not see the batches before its range. `judged` then checks the chains of all ranges; a log with
few faults has few chains.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from oncelog_protocol.records.sequence import increment_sequence

NO_PRODUCER: Final = -1
SEQUENCES: Final = 2**31
NO_SEQUENCE: Final = -1
"""Used as the sequence of a chain that begins with a transaction marker, because a marker has an epoch but no sequence.
"""


class Kind(Enum):
    """The kinds of faults."""

    GAP = "gap"
    TWICE = "twice"
    ZOMBIE = "zombie"
    HOLE = "hole"
    """No batch covers these offsets, although the log is not compacted."""


class Header(NamedTuple):
    """The fields of a batch that the audit needs. `sequence` is the sequence of the batch's first record; a control
    batch has none.
    """

    first_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    sequence: int
    is_control: bool

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1


class Chain(NamedTuple):
    """Consecutive batches of one producer, each of which continues the previous one.

    `first_end` is the last sequence of the chain's first epoch, and `last_sequence` is the last sequence of its last
    epoch; either is NO_SEQUENCE while its epoch has only a marker. The chain with the producer id `NO_PRODUCER` joins
    all batches of the log, of any producer, only by their offsets; its `numbered` counts the records that have a
    sequence.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    first_epoch: int
    first_sequence: int
    first_end: int
    last_epoch: int
    last_sequence: int
    records: int
    numbered: int


class Finding(NamedTuple):
    """A fault; `records` counts the records, from `offset` on, that are missing, duplicated or written by a zombie."""

    kind: Kind
    producer_id: int
    epoch: int
    offset: int
    records: int


class Chains:
    """Joins the batches of one range of offsets. A chain is a run of consecutive batches of one producer. While the
    range is being read, the caller uses `taken` to remove chains to which no batch can be added any more, so that few
    chains are in memory.
    """

    def __init__(self) -> None:
        self._open: dict[int, Chain] = {}
        self.finished: list[Chain] = []

    def add(self, header: Header) -> None:
        """Add the header of the next batch of the log."""
        self._join(_of_log(header))
        if header.producer_id != NO_PRODUCER:
            self._join(_of_producer(header))

    def taken(self) -> list[Chain]:
        """Return the finished chains and remove them from this object."""
        taken, self.finished = self.finished, []
        return taken

    def close(self) -> list[Chain]:
        """Return all remaining chains after the range has been read."""
        left = [*self.taken(), *self._open.values()]
        self._open.clear()
        return left

    def _join(self, chain: Chain) -> None:
        before = self._open.get(chain.producer_id)
        joined = None if before is None else _joined(before, chain)
        if joined is None and before is not None:
            self.finished.append(before)
        self._open[chain.producer_id] = joined or chain


def judged(chains: Iterable[Chain], *, is_whole: bool, is_compacted: bool) -> list[Finding]:
    """Return the faults in the chains of one producer in one partition; `chains` must be in the order of offsets.

    With `is_whole` the log still has its first record, so a producer's first sequence must be 0. With `is_compacted`
    the log is compacted, and missing batches are no fault.
    """
    found: list[Finding] = []
    last: Chain | None = None
    for chain in chains:
        if last is None or (not is_whole and _is_first_number(last, chain)):
            last = _before_all(chain) if is_whole else _before(chain)
        found += _between(last, chain)
        last = _farther(last, chain)
    missing = (Kind.GAP, Kind.HOLE)
    return [each for each in found if not (is_compacted and each.kind in missing)]


def _before_all(chain: Chain) -> Chain:
    """Return an empty chain that ends before offset 0, to which the first batch of a log is compared if the log still
    has its first record.
    """
    return Chain(chain.producer_id, -1, -1, -1, NO_SEQUENCE, NO_SEQUENCE, -1, NO_SEQUENCE, 0, 0)


def _before(chain: Chain) -> Chain:
    """Return the chain that `chain` is assumed to continue if the first records of the log were deleted: the audit
    assumes that the deleted batches had no faults.
    """
    sequence = NO_SEQUENCE if chain.first_sequence in (0, NO_SEQUENCE) else chain.first_sequence - 1
    epoch, offset = chain.first_epoch, chain.first_offset - 1
    return Chain(chain.producer_id, offset, offset, epoch, sequence, sequence, epoch, sequence, 0, 0)


def _is_first_number(last: Chain, chain: Chain) -> bool:
    """Return whether `chain` has the first sequence of an epoch of which `last` has only markers."""
    return last.last_epoch == chain.first_epoch and last.last_sequence == NO_SEQUENCE != chain.first_sequence


def _between(last: Chain, chain: Chain) -> list[Finding]:
    """Return the faults where `chain` follows `last`, the chain with the highest epoch and sequence so far."""
    what = chain.producer_id, chain.first_epoch, chain.first_offset
    if chain.producer_id == NO_PRODUCER:
        missing = chain.first_offset - last.last_offset - 1
        return [Finding(Kind.HOLE, *what, missing)] if missing > 0 else []
    size = 0 if chain.first_end == NO_SEQUENCE else _distance(chain.first_sequence, chain.first_end) + 1
    if chain.first_epoch < last.last_epoch:
        return [Finding(Kind.ZOMBIE, *what, size)]
    if chain.first_sequence == NO_SEQUENCE:
        return []
    goes_on = chain.first_epoch == last.last_epoch and last.last_sequence != NO_SEQUENCE
    expected = increment_sequence(last.last_sequence, 1) if goes_on else 0
    ahead = _distance(expected, chain.first_sequence)
    if ahead == 0:
        return []
    if not goes_on or ahead < SEQUENCES // 2:
        return [Finding(Kind.GAP, *what, ahead)]
    return [Finding(Kind.TWICE, *what, min(size, SEQUENCES - ahead))]


def _farther(last: Chain, chain: Chain) -> Chain:
    """Return the chain with the later epoch and sequence, because a duplicate batch must not lower the next expected
    sequence.
    """
    if chain.producer_id == NO_PRODUCER:
        return chain if chain.last_offset > last.last_offset else last
    if chain.last_epoch != last.last_epoch:
        return chain if chain.last_epoch > last.last_epoch else last
    if NO_SEQUENCE in (last.last_sequence, chain.last_sequence):
        return chain if last.last_sequence == NO_SEQUENCE else last
    return chain if _distance(last.last_sequence, chain.last_sequence) < SEQUENCES // 2 else last


def _joined(before: Chain, after: Chain) -> Chain | None:
    """Join the chain `before` and the single batch `after` to one chain; return None if the batch does not continue the
    chain.
    """
    if before.producer_id == NO_PRODUCER:
        if after.first_offset != before.last_offset + 1:
            return None
    elif after.first_sequence == NO_SEQUENCE:
        if after.first_epoch < before.last_epoch:
            return None
        if after.first_epoch == before.last_epoch:
            return before._replace(last_offset=after.last_offset)
        return before._replace(last_offset=after.last_offset, last_epoch=after.last_epoch, last_sequence=NO_SEQUENCE)
    elif after.first_epoch == before.last_epoch and before.last_sequence != NO_SEQUENCE:
        if after.first_sequence != increment_sequence(before.last_sequence, 1):
            return None
    elif after.first_epoch < before.last_epoch or after.first_sequence != 0:
        return None
    grows = before.first_epoch == after.first_epoch and before.first_epoch == before.last_epoch
    if grows and before.first_sequence == NO_SEQUENCE and after.first_sequence != NO_SEQUENCE:
        before = before._replace(first_sequence=after.first_sequence)
    return before._replace(
        last_offset=after.last_offset,
        first_end=after.last_sequence if grows else before.first_end,
        last_epoch=after.last_epoch,
        last_sequence=after.last_sequence,
        records=before.records + after.records,
        numbered=before.numbered + after.numbered,
    )


def _of_log(header: Header) -> Chain:
    records = 0 if header.is_control else header.size
    numbered = 0 if header.producer_id == NO_PRODUCER else records
    return Chain(NO_PRODUCER, header.first_offset, header.last_offset, 0, 0, 0, 0, 0, records, numbered)


def _of_producer(header: Header) -> Chain:
    first, last, records = NO_SEQUENCE, NO_SEQUENCE, 0
    if not header.is_control:
        first, records = header.sequence, header.size
        last = increment_sequence(first, header.size - 1)
    bounds = header.first_offset, header.last_offset
    return Chain(header.producer_id, *bounds, header.epoch, first, last, header.epoch, last, records, records)


def _distance(start: int, end: int) -> int:
    """Return the number of increments from the sequence `start` to the sequence `end`; the sequence after 2147483647 is
    0.
    """
    return (end - start) % SEQUENCES
