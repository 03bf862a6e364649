"""Replays the log of a partition into its state machine, in slices between which other work runs.

The log is read in chunks. Most records of an internal topic are soon replaced by later records with the same key: a
group repeatedly commits offsets of the same partitions, and a transaction logs its key three times. To save time, a
record is not decoded if the same chunk has a later record with the same key. A state machine whose records contain only
changes of older records turns this optimization off (`Machine.records_replace_older`, `coordinator/shard.py`). Two
kinds of records are always replayed, in the order of the log: records of transactions, which take effect only when
their marker is read, and tombstones, which also delete pending offsets of transactions.

Loading fails if a batch has a wrong CRC, because a record with a flipped bit can often still be decoded. If the bit
belongs to the topic name of a transaction's partition, for example, the real partition would never get its marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from oncelog_broker.coordinator.shard import Machine, Shard
from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.records.batch import NO_PRODUCER_ID, CorruptBatch, RecordBatch, batches
from oncelog_protocol.records.columns import read_columns
from oncelog_protocol.records.control import ControlType, read_marker

LOAD_CHUNK_BYTES: Final = 256 * 1024
"""Bytes of a chunk: the amount that one read of the log returns during loading."""
RECORDS_PER_STEP: Final = 32
"""Number of records that are read or replayed in one slice of loading, before other work runs."""


class _Logged(NamedTuple):
    """A record read from the log, not decoded yet."""

    key: bytes
    value: bytes | None
    offset: int
    producer_id: int


class _Ended(NamedTuple):
    """The end marker of a transaction, read from the log."""

    producer_id: int
    committed: bool


class _Chunk:
    """The records and markers of a chunk (one read) of the log, in order. An entry is None if a later record with the
    same key makes the record unnecessary.
    """

    __slots__ = ("_latest", "_passes_over", "entries")

    def __init__(self, *, passes_over: bool) -> None:
        self._passes_over = passes_over
        """Whether a later record with the same key makes a record unnecessary (`Machine.records_replace_older`)."""
        self.entries: list[_Logged | _Ended | None] = []
        self._latest: dict[bytes, int] = {}
        """Key -> the index in `entries` of the latest record with that key outside transactions."""

    def take(self, batch: RecordBatch) -> Steps[None]:
        """Add the records of `batch`. Raises CorruptBatch, also if the CRC of the batch is wrong."""
        if not batch.crc_is_valid():
            raise CorruptBatch(f"the CRC of {batch!r} is wrong")
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self.entries.append(_Ended(batch.producer_id, marker.control_type is ControlType.COMMIT))
            return
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        columns = read_columns(batch)
        rows = zip(columns.offsets, columns.keys, columns.values, strict=True)
        if producer_id != NO_PRODUCER_ID:
            self.entries += [_Logged(key, value, offset, producer_id) for offset, key, value in rows if key is not None]
        else:
            while self._add(islice(rows, RECORDS_PER_STEP)):
                yield None
        if columns.error is not None:
            raise columns.error

    def _add(self, rows: Iterable[tuple[int, bytes | None, bytes | None]]) -> bool:
        """Add the next records of `rows`, which are not part of a transaction. Returns whether `rows` (an iterator) may
        have more records.
        """
        entries, latest, number = self.entries, self._latest, 0
        for number, (offset, key, value) in enumerate(rows, 1):  # noqa: B007 (the last one tells how many there were)
            if key is None:
                continue
            if key in latest:
                entries[latest.pop(key)] = None
            if value is not None and self._passes_over:
                latest[key] = len(entries)
            entries.append(_Logged(key, value, offset, NO_PRODUCER_ID))
        return number == RECORDS_PER_STEP


def replay_log(shard: Shard[Any], offset: int, is_current: Callable[[], bool]) -> Steps[int]:
    """Replay the log into the state machine from `offset` to its end; returns the next offset. Records that are not
    committed yet (not on all in-sync replicas) are also replayed. Replies to clients wait until these records are
    committed. Stops early if `is_current` returns False, because this broker no longer leads the partition. Raises
    KafkaError, CorruptBatch or ValueError if the log cannot be read or decoded."""
    log = shard.partition.log
    while offset < log.log_end_offset and is_current():
        read = log.reader.read(offset, LOAD_CHUNK_BYTES, upper_bound=log.log_end_offset, min_one_batch=True)
        if not len(read):  # compaction has removed all records from this offset to the end of the log
            return log.log_end_offset
        chunk, next_offset = _Chunk(passes_over=shard.machine.records_replace_older), offset
        for number, batch in enumerate(batches(read)):
            yield from chunk.take(batch)
            next_offset = batch.next_offset
            if number % RECORDS_PER_STEP == RECORDS_PER_STEP - 1:
                yield None
        yield from _replay(shard.machine, chunk.entries)
        offset = next_offset
        yield None
    return offset


def _replay(machine: Machine, entries: list[_Logged | _Ended | None]) -> Steps[None]:
    replayed = 0
    for entry in entries:
        if entry is None:
            continue
        if isinstance(entry, _Ended):
            machine.replay_end_transaction(entry.producer_id, entry.committed)
        else:
            record = machine.decode(entry.key, entry.value)
            if record is not None:
                machine.replay(record, entry.offset, entry.producer_id)
        replayed += 1
        if replayed % RECORDS_PER_STEP == 0:
            yield None
