"""Dumps producer snapshots and transaction indexes, with a row for each entry, as Kafka's DumpLogSegments does
(S57).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from oncelog_broker.dump.rows import Fault, Item, Row, Value
from oncelog_broker.log.producers.snapshot import SnapshotCorrupt, parse_snapshot
from oncelog_broker.log.producers.transaction_index import ENTRY_VERSION, parse_aborted
from oncelog_broker.log.segments.index import IndexCorrupt

MAX_BYTES: Final = 256 * 1024 * 1024
"""Maximum size in bytes of a file, because the file is read into memory; this is enough for millions of entries."""


def dump_snapshot(file: BinaryIO) -> Iterator[Item]:
    try:
        entries = parse_snapshot(file.read(MAX_BYTES))
    except SnapshotCorrupt as error:
        yield Fault(str(error))
        return
    for entry in entries:
        first_offset = entry.transaction_first_offset
        fields: dict[str, Value] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": first_offset if first_offset >= 0 else None,
            "lastTimestamp": entry.timestamp,
        }
        if entry.last_offset >= 0:
            fields |= {
                "firstSequence": entry.first_sequence,
                "lastSequence": entry.last_sequence,
                "lastOffset": entry.last_offset,
                "offsetDelta": entry.offset_delta,
                "timestamp": entry.timestamp,
            }
        yield Row("producer", fields)


def dump_transaction_index(file: BinaryIO) -> Iterator[Item]:
    try:
        entries = parse_aborted(file.read(MAX_BYTES))
    except IndexCorrupt as error:
        yield Fault(str(error))
        return
    for entry in entries:
        yield Row(
            "aborted transaction",
            {
                "version": ENTRY_VERSION,
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            },
        )
