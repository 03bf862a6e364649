"""Shared by the tests of producers and transactions: batches with sequence numbers, markers, and logs of both."""

from __future__ import annotations

from typing import Any

from tests.support.storage import make_batch

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.producers.entry import describe
from oncelog_broker.log.producers.state import ProducerState
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, read_marker
from oncelog_protocol.records.record import read_records

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def produce(log: PartitionLog, pid: int, sequence: int, count: int = 1, **options: Any) -> int:
    """Append a batch of a producer with `count` records; return its base offset."""
    version = options.pop("version", 0)
    batch = sequenced(pid, sequence, count, **options)
    return log.append_as_leader(batch, leader_epoch=0, transaction_version=version)[0]


def sequenced(
    pid: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, **options: Any
) -> bytearray:
    values = [b"%d/%d" % (pid, sequence + n) for n in range(count)]
    return make_batch(
        *values,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        **options,
    )


def mark(
    log: PartitionLog, pid: int, kind: ControlType, *, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
) -> int:
    """Append a transaction marker; return its offset."""
    marker = EndTransactionMarker(kind, coordinator_epoch)
    return log.append_marker(marker, producer_id=pid, producer_epoch=epoch, leader_epoch=0, transaction_version=version)


def committed(log: PartitionLog, start: int = 0, max_bytes: int = 1000) -> list[bytes | None]:
    """Return the values that a read_committed consumer of `log` sees when all records are replicated (S53)."""
    stable, offset, values = log.reader.last_stable_offset(log.log_end_offset), start, list[bytes | None]()
    while offset < stable:
        view, aborted = log.reader.read_committed(offset, max_bytes, upper_bound=stable, min_one_batch=True)
        assert len(view), f"nothing at {offset}, below {stable}"
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
                values += [record.value for record in read_records(batch) if record.offset >= start]
            offset = batch.next_offset
    return values


def producer_state(log: PartitionLog) -> tuple[Any, ...]:
    """Return all producer state that a restart must restore."""
    state = log.producers.state
    return sorted(state.image()), open_transactions(state), all_aborted(log)


def open_transactions(state: ProducerState) -> list[tuple[int, int]]:
    """Return (first offset, producer id) of each open transaction, the oldest first."""
    entries = (describe(entry) for entry in state.image())
    return sorted((e.transaction_first_offset, e.producer_id) for e in entries if e.transaction_first_offset >= 0)


def all_aborted(log: PartitionLog) -> list[tuple[int, ...]]:
    return [tuple(found) for found in log.producers.aborted.collect(0, 2**62)]
