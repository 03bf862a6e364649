"""A model of a log: the list of all batches that were ever written to the log, and the facts that follow from the list
(S7, S50, S53).

No batch is ever removed from the list, because retention, DeleteRecords and compaction must change neither the producer
state nor which records are committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.producers.entry import batches as remembered_batches
from oncelog_broker.log.producers.entry import describe
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.control import ControlType, read_marker
from oncelog_protocol.records.record import read_records

WINDOW = 5
NO_SEQUENCE = -1


class Written(NamedTuple):
    """A batch in a log; a batch with an `outcome` is a marker."""

    base: int
    pairs: tuple[tuple[bytes, bytes | None], ...]
    pid: int = -1
    epoch: int = -1
    sequence: int = NO_SEQUENCE
    transactional: bool = False
    outcome: ControlType | None = None
    coordinator_epoch: int = -1

    @property
    def end(self) -> int:
        return self.base + (1 if self.outcome is not None else len(self.pairs))


class Shown(NamedTuple):
    """A record that a read_committed consumer must get: offset, key and value."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass
class Known:
    """The state of one producer that the log must have."""

    epoch: int = -1
    coordinator_epoch: int = -1
    first_offset: int | None = None
    """The first offset of the producer's open transaction; None if no transaction is open."""
    window: list[Written] = field(default_factory=list)
    """The last five batches of the current epoch, the newest last."""

    @property
    def next_sequence(self) -> int:
        last = self.window[-1] if self.window else None
        return 0 if last is None else last.sequence + len(last.pairs)

    def follow(self, batch: Written) -> None:
        if batch.epoch != self.epoch:
            self.epoch, self.window = batch.epoch, []
        if batch.outcome is not None:
            self.first_offset, self.coordinator_epoch = None, batch.coordinator_epoch
            return
        self.window = [*self.window, batch][-WINDOW:]
        if batch.transactional and self.first_offset is None:
            self.first_offset = batch.base

    def facts(self) -> tuple[object, ...]:
        window = [(b.sequence + len(b.pairs) - 1, b.end - 1, len(b.pairs) - 1) for b in reversed(self.window)]
        first_offset = -1 if self.first_offset is None else self.first_offset
        return self.epoch, self.coordinator_epoch, first_offset, window


def producers_after(history: Iterable[Written]) -> dict[int, Known]:
    """Return the state of each producer that the log must have after these batches."""
    known: dict[int, Known] = {}
    for batch in history:
        if batch.pid >= 0:
            known.setdefault(batch.pid, Known()).follow(batch)
    return known


def facts_of(known: dict[int, Known]) -> dict[int, tuple[object, ...]]:
    """Return by producer id: (epoch, coordinator epoch, first offset of the open transaction or -1, last five batches).
    The newest batch is first; each is (last sequence, last offset, offset delta).
    """
    return {pid: producer.facts() for pid, producer in known.items()}


def facts_of_log(log: PartitionLog) -> dict[int, tuple[object, ...]]:
    """Return by producer id the facts that the log's own producer state has: epochs, open transaction, last five
    batches.
    """
    found: dict[int, tuple[object, ...]] = {}
    for entry in log.producers.state.image():
        state = describe(entry)
        window = [tuple(batch[:3]) for batch in remembered_batches(entry)]
        found[state.producer_id] = state.epoch, state.coordinator_epoch, state.transaction_first_offset, window
    return found


def last_stable_offset(history: Iterable[Written], start: int, end: int) -> int:
    """Return the offset up to which a read_committed consumer may read, according to the model."""
    opened = [known.first_offset for known in producers_after(history).values() if known.first_offset is not None]
    return max(min(opened, default=end), start)


def committed_records(history: Iterable[Written], start: int, end: int) -> list[Shown]:
    """Return the records in [start, end) that a read_committed consumer must get, according to the model."""
    found: list[Shown] = []
    undecided: dict[int, list[Shown]] = {}
    for batch in history:
        if batch.outcome is not None:
            decided = undecided.pop(batch.pid, [])
            found += decided if batch.outcome is ControlType.COMMIT else []
            continue
        records = [Shown(batch.base + number, *pair) for number, pair in enumerate(batch.pairs)]
        if batch.transactional:
            undecided.setdefault(batch.pid, []).extend(records)
        else:
            found += records
    return sorted(record for record in found if start <= record.offset < end)


def consumed(log: PartitionLog, end: int, max_bytes: int) -> list[Shown]:
    """Return the records below `end` that a read_committed consumer gets from the log (S53)."""
    offset, found = log.log_start_offset, list[Shown]()
    while offset < end:
        view, aborted = log.reader.read_committed(offset, max_bytes, upper_bound=end, min_one_batch=True)
        if not len(view):
            break
        coming = sorted(aborted, key=lambda transaction: transaction.first_offset)
        skipped: set[int] = set()
        for batch in batches(bytes(view)):
            while coming and coming[0].first_offset <= batch.last_offset:
                skipped.add(coming.pop(0).producer_id)
            if batch.is_control:
                marker = read_marker(batch)
                if marker is not None and not marker.is_commit:
                    skipped.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in skipped):
                records = read_records(batch)
                found += [Shown(r.offset, r.key, r.value) for r in records if r.offset >= log.log_start_offset]
            offset = batch.next_offset
    return found


def table_of(records: Iterable[Shown]) -> dict[bytes | None, bytes]:
    """Return the last value of each key; a record without a value deletes its key."""
    table: dict[bytes | None, bytes] = {}
    for _, key, value in records:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table
