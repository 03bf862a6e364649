"""Dumps a `.log` file: a row for each batch and, if requested, for each record. Only one batch is in memory at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from oncelog_broker.dump.decoders import Decoder, decoded
from oncelog_broker.dump.rows import Fault, Item, Message, Notice, Row, Value
from oncelog_broker.log.segments.batch_scan import BatchLocation, parse_location
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.records.batch import HEADER_SIZE, NO_SEQUENCE, CorruptBatch, RecordBatch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.control import parse_marker
from oncelog_protocol.records.record import Record, read_records
from oncelog_protocol.records.sequence import increment_sequence

MAX_BATCH_BYTES: Final = 100 * 1024 * 1024
"""Maximum length of a batch, equal to the largest request that a broker accepts (socket.request.max.bytes); a batch
header with a larger length is corrupt.
"""
RECORD_PREFIX: Final = "| "


def locations(file: BinaryIO, size: int) -> Iterator[BatchLocation]:
    """Yield the locations of the batches in the first `size` bytes, read from the batch headers. Raises CorruptBatch at
    the first incomplete batch.
    """
    position = 0
    while position < size:
        file.seek(position)
        window = memoryview(file.read(min(HEADER_SIZE, size - position)))
        location = parse_location(window, 0, position, size)
        yield location
        position += location.size


def dump_log(
    file: BinaryIO,
    size: int,
    *,
    base_offset: int | None,
    is_deep: bool = False,
    with_contents: bool = False,
    decoder: Decoder | None = None,
    max_bytes: int | None = None,
) -> Iterator[Item]:
    """Yield the rows of a log file of `size` bytes. The dump ends after a batch with an invalid length.

    `base_offset` is the offset in the file's name; None if the file's name contains no offset. Keys and values are
    decoded with `decoder`; with None, keys and values are shown undecoded. Batches that end after the first `max_bytes`
    bytes are left out.
    """
    if base_offset is not None:
        yield Message(f"Log starting offset: {base_offset}")
    position, last_offset = 0, -1 if base_offset is None else base_offset - 1
    try:
        for location in locations(file, size):
            if max_bytes is not None and location.end > max_bytes:
                return
            if location.size > MAX_BATCH_BYTES:
                raise CorruptBatch(f"a batch of {location.size} bytes: no broker accepts one above {MAX_BATCH_BYTES}")
            file.seek(location.position)
            batch = RecordBatch(file.read(location.size))
            yield from _dump_batch(
                batch, position, last_offset, is_deep=is_deep, with_contents=with_contents, decoder=decoder
            )
            position, last_offset = location.end, location.last_offset
    except CorruptBatch as error:
        if max_bytes is None or position < max_bytes:
            yield Fault(f"Found {size - position} invalid bytes at the end of the file: {error}", position)


def _dump_batch(
    batch: RecordBatch,
    position: int,
    last_offset: int,
    *,
    is_deep: bool,
    with_contents: bool,
    decoder: Decoder | None,
) -> Iterator[Item]:
    """Yield the rows of one batch, whose offsets must be larger than `last_offset`. Faults are yielded, not raised."""
    is_valid = batch.crc_is_valid()
    yield _batch_row(batch, position, is_valid=is_valid)
    if batch.base_offset <= last_offset:
        yield Fault(f"offset {batch.base_offset} follows {last_offset}", position)
    if not is_valid:
        yield Fault(f"the CRC of the batch is wrong: {batch.size} bytes from offset {batch.base_offset} on", position)
        return
    if not is_deep:
        return
    previous = last_offset
    try:
        for record in read_records(batch):
            if record.offset > previous + 1 and previous >= 0:
                yield Notice(f"offset {previous} is followed by {record.offset}")
            previous = record.offset
            row = _record_row(batch, record)
            if with_contents and not batch.is_control:
                try:
                    row.fields.update(_contents(record) if decoder is None else decoded(decoder, record))
                except MalformedMessage as error:
                    yield Fault(f"offset {record.offset} cannot be decoded: {error}", position)
            yield row
    except CorruptBatch as error:
        yield Fault(str(error), position)


def _batch_row(batch: RecordBatch, position: int, *, is_valid: bool) -> Row:
    return Row(
        "batch",
        {
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "count": batch.records_count,
            "baseSequence": batch.base_sequence,
            "lastSequence": _sequence(batch, batch.last_offset),
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "partitionLeaderEpoch": batch.partition_leader_epoch,
            "isTransactional": batch.is_transactional,
            "isControl": batch.is_control,
            "deleteHorizonMs": batch.delete_horizon_ms,
            "position": position,
            _timestamp_type(batch): batch.max_timestamp,
            "size": batch.size,
            "magic": 2,
            "compresscodec": _codec(batch.compression),
            "crc": batch.crc,
            "isvalid": is_valid,
        },
    )


def _record_row(batch: RecordBatch, record: Record) -> Row:
    """Return the row of one record. Raises CorruptBatch for a malformed control record."""
    fields: dict[str, Value] = {
        "offset": record.offset,
        _timestamp_type(batch): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": _sequence(batch, record.offset),
        "headerKeys": [name for name, _ in record.headers],
    }
    if batch.is_control:
        marker = parse_marker(record)
        if marker is not None:
            fields["endTxnMarker"] = marker.control_type.name
            fields["coordinatorEpoch"] = marker.coordinator_epoch
    return Row("record", fields, RECORD_PREFIX)


def _contents(record: Record) -> dict[str, Value]:
    shown: dict[str, Value] = {"key": record.key, "payload": record.value}
    return {name: value for name, value in shown.items() if value is not None}


def _timestamp_type(batch: RecordBatch) -> str:
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def _sequence(batch: RecordBatch, offset: int) -> int:
    """Return the sequence number of the record at `offset`; -1 if the batch has no sequence numbers."""
    if batch.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return increment_sequence(batch.base_sequence, offset - batch.base_offset)


def _codec(number: int) -> str:
    try:
        return Compression(number).name.lower()
    except ValueError:
        return f"unknown({number})"
