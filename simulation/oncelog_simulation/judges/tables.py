"""Checks the compacted topic: a consumer, and the log of each replica, must have the last value of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch, batches
from oncelog_protocol.records.record import read_records
from oncelog_simulation.disk import unnoticed
from oncelog_simulation.workloads.notes import Notes

if TYPE_CHECKING:
    from oncelog_broker.log.partition_log import PartitionLog
    from oncelog_broker.replication.partition import Partition

READ_BYTES: Final = 1 << 20
"""Limit in bytes on one read of a log."""
Row = tuple[int, bytes, bytes]
"""Offset, key and value of a record; the value of a tombstone is empty."""


def table_violations(notes: Notes, table: Sequence[Row]) -> list[str]:
    """Return the violations: keys with another value than the last committed one or one whose commit is unknown, and
    tombstones that were removed too early.
    """
    found = {key: value for _, key, value in table}
    wrong = []
    for may_hold in notes.tables.values():
        for key, values in may_hold.items():
            held = found.get(key) or None
            if held not in values:
                told = sorted(each or b"nothing" for each in values)
                wrong.append(f"TABLE: key {key!r} holds {held!r}, of {told} that it may hold")
    wrong += [f"TABLE: the tombstone of key {key!r} is gone" for key in sorted(notes.deleted - found.keys())]
    return wrong


def table_of(partition: Partition) -> list[Row]:
    """Return the committed records in a replica's log."""
    log, rows = partition.log, list[Row]()
    aborted = [(each.producer_id, each.first_offset, each.last_offset) for each in log.producers.aborted.all()]
    for batch in _batches(log):
        is_aborted = any(
            batch.is_transactional and batch.producer_id == producer_id and first <= batch.base_offset <= last
            for producer_id, first, last in aborted
        )
        if not (batch.is_control or is_aborted):
            rows += [(each.offset, bytes(each.key or b""), bytes(each.value or b"")) for each in read_records(batch)]
    return rows


def _batches(log: PartitionLog) -> list[RecordBatch]:
    found, offset = list[RecordBatch](), log.log_start_offset
    while offset < log.log_end_offset:
        try:
            with unnoticed():
                view = log.reader.read(offset, READ_BYTES, upper_bound=log.log_end_offset, min_one_batch=True)
            read = list(batches(bytes(view)))
        except (KafkaError, CorruptBatch, OSError):
            return found
        if not read:
            return found
        found += [batch for batch in read if batch.next_offset > offset]
        offset = read[-1].next_offset
    return found
