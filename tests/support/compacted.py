"""Shared by the tests of compaction: creates logs of keyed batches and markers, and models which records a compaction
must keep.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.support.storage import NOW

from oncelog_broker.log.compaction.compaction import Compaction
from oncelog_broker.log.config import COMPACT, LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.runtime.disk import Disk, RealDisk
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.records.batch import RecordBatch, batches
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch
from oncelog_protocol.records.record import Record, read_records

COMPACTED = LogConfig(
    segment_bytes=100_000, index_interval_bytes=200, cleanup_policy=frozenset({COMPACT}), delete_retention_ms=10_000
)
"""The settings of a compacted log whose segments are large enough to roll only when a test rolls them."""
PLENTY = 1 << 20
DAY_MS = 86_400_000

KeyValue = tuple[bytes | None, bytes | None]


class Entry(NamedTuple):
    """A record of a log, with its offset and whether its batch is a control batch."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    is_control: bool


def put(
    log: PartitionLog,
    *pairs: KeyValue,
    compression: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    timestamp: int = NOW,
) -> int:
    """Append a batch, even one that a broker would refuse from a client; return its base offset."""
    records = [Record(n, timestamp + n, key, value, []) for n, (key, value) in enumerate(pairs)]
    producer_id, epoch, sequence = producer
    batch = build_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return log.append_as_leader(batch, leader_epoch=0, origin=AppendOrigin.COORDINATOR)[0]


def end_transaction(log: PartitionLog, producer_id: int, kind: ControlType, *, epoch: int = 0) -> int:
    """Append a transaction marker; return its offset."""
    batch = marker_batch(EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=epoch, timestamp=NOW)
    return log.append_as_leader(batch, leader_epoch=0, origin=AppendOrigin.COORDINATOR)[0]


def clean(
    log: PartitionLog,
    *,
    first_dirty: int = 0,
    end: int | None = None,
    now_ms: int = NOW,
    memory: int = PLENTY,
    disk: Disk | None = None,
    producer_id_expiration_ms: int = DAY_MS,
    all_replicas_have_it: bool = True,
) -> int | None:
    """Compact all closed segments that end at or before `end`. Returns the first offset that remains dirty."""
    compaction = compaction_of(
        log,
        first_dirty=first_dirty,
        end=end,
        now_ms=now_ms,
        memory=memory,
        disk=disk,
        producer_id_expiration_ms=producer_id_expiration_ms,
        all_replicas_have_it=all_replicas_have_it,
    )
    return run_steps(compaction.steps())


def compaction_of(
    log: PartitionLog,
    *,
    first_dirty: int = 0,
    end: int | None = None,
    now_ms: int = NOW,
    memory: int = PLENTY,
    disk: Disk | None = None,
    producer_id_expiration_ms: int = DAY_MS,
    all_replicas_have_it: bool = True,
) -> Compaction:
    """Return the compaction object that `clean` would run, without running it."""
    return Compaction(
        log,
        disk=disk or RealDisk(),
        first_dirty=first_dirty,
        end=log.segment_base_offsets[-1] if end is None else end,
        now_ms=now_ms,
        offset_map_bytes=memory,
        producer_id_expiration_ms=producer_id_expiration_ms,
        all_replicas_have_it=all_replicas_have_it,
    )


def all_batches(log: PartitionLog, start: int | None = None) -> list[RecordBatch]:
    """Return all batches from the offset `start` on, read as a consumer would read them."""
    offset = log.log_start_offset if start is None else start
    found: list[RecordBatch] = []
    while view := log.reader.read(offset, 700, upper_bound=log.log_end_offset, min_one_batch=True):
        for batch in batches(bytes(view)):
            assert batch.crc_is_valid()
            assert not found or batch.base_offset >= found[-1].next_offset
            found.append(batch)
            offset = batch.next_offset
    return found


def entries(log: PartitionLog, start: int | None = None) -> list[Entry]:
    """Return all records from the offset `start` on."""
    return [
        Entry(record.offset, record.key, record.value, record.timestamp, batch.is_control)
        for batch in all_batches(log, start)
        for record in read_records(batch)
        if start is None or record.offset >= start
    ]


def last_values(found: Iterable[Entry]) -> dict[bytes, bytes]:
    """Return the last value of each key, which is the table that the log describes."""
    table: dict[bytes, bytes] = {}
    for entry in found:
        if entry.is_control or entry.key is None:
            continue
        if entry.value is None:
            table.pop(entry.key, None)
        else:
            table[entry.key] = entry.value
    return table


def compacted(
    before: Iterable[Entry], *, first_dirty: int, end: int, aborted: frozenset[int] = frozenset()
) -> list[Entry]:
    """Return those records of `before` that the log's first compaction must keep.

    `aborted` are the offsets of the records of aborted transactions.
    """
    before = list(before)
    last = {
        entry.key: entry.offset
        for entry in before
        if first_dirty <= entry.offset < end and not entry.is_control and entry.offset not in aborted
    }
    return [
        entry
        for entry in before
        if entry.offset >= end
        or entry.is_control
        or (entry.key is not None and entry.offset not in aborted and last.get(entry.key, -1) <= entry.offset)
    ]
