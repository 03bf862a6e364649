"""Checks each record of a producer's batch, in slices of work, before a leader appends the batch; `validation` checks
only the batch as a unit.

The records are checked in three cases. The first case is `record.validation=full` (Kafka's LogValidator always makes
this check). The second case is a compacted topic, which accepts no record without a key (T20). The third case is a
batch with a wrong timestamp: the check finds the records that the error message lists. The check does not block the
event loop: another thread decompresses the records, and the check pauses every few hundred records. MAX_RECORDS_NAMED
limits the length of the response.

An error lists the invalid records (KIP-467), so that a client can report these records as failed and send the other
records again.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from oncelog_broker.log.header_fields import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    RECORDS_COUNT,
    HeaderFields,
)
from oncelog_broker.log.unpacking import unpacked
from oncelog_broker.log.validation import (
    ValidationLimits,
    check_batch,
    check_client_batch,
    why_wrong_timestamp,
)
from oncelog_broker.runtime.steps import Steps, run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.records.batch import (
    COMPRESSION_MASK,
    CRC_AT,
    HEADER,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    CorruptBatch,
    RecordBatch,
    batch_crc,
)
from oncelog_protocol.records.compression import RecordsTooLarge
from oncelog_protocol.records.record_scan import RecordFacts, scan_facts

MAX_RECORDS_NAMED: Final = 1000
"""The maximum number of invalid records that a response lists; if there are more, the response lists the first invalid
records.
"""
NAMED_IN_PLACE: Final = 1000
"""In uncompressed batches of up to this many records, the append itself searches for the records with a wrong
timestamp.
"""
TIMESTAMP_FIELD: Final = Struct(">q")
CRC_FIELD: Final = Struct(">I")


class RecordError(NamedTuple):
    """One invalid record: its index in the batch, and the error message."""

    place: int
    message: str


class RecordsRefused(KafkaError):
    """A batch was refused because of the invalid `records` (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, records: list[RecordError]) -> None:
        super().__init__(code, message)
        self.records = records


def refuse_timestamps(batch: memoryview, header: HeaderFields, limits: ValidationLimits, now_ms: int) -> None:
    """Refuse a batch if the timestamps in its header are out of bounds; a timestamp of -1 means that there is no
    timestamp. Raises KafkaError INVALID_TIMESTAMP, or RecordsRefused with the invalid records if finding them is cheap.
    """
    if header[BASE_TIMESTAMP] == NO_TIMESTAMP and header[MAX_TIMESTAMP] - now_ms <= limits.timestamp_after_max_ms:
        return
    if header[RECORDS_COUNT] <= NAMED_IN_PLACE and not header[ATTRIBUTES] & COMPRESSION_MASK:
        run_steps(records_check(batch, limits, now_ms))
    raise KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamps {header[BASE_TIMESTAMP]} to {header[MAX_TIMESTAMP]}: they may lie "
        f"{limits.timestamp_before_max_ms} ms before and {limits.timestamp_after_max_ms} ms after the clock",
    )


def records_check(batch: memoryview, limits: ValidationLimits, now_ms: int) -> Steps[None]:
    """Check all records of `batch`, if settings or the topic's compaction require it (`PartitionLog.walks_records`).

    `batch` must be writable: if the maximum timestamp in its header differs from the maximum of its records, the header
    is corrected, as in Kafka. The steps (a generator) raise KafkaError, including RecordsRefused.
    """
    header = HEADER.unpack_from(batch)
    check_batch(batch, header, limits)
    check_client_batch(batch, header, walks_frames=False)
    whole = RecordBatch(batch)
    found = _Findings(whole, limits, now_ms)
    try:
        data = yield from unpacked(whole, limits.max_decompressed_size)
        for facts in scan_facts(whole, data):
            found.add(facts)
            yield None
    except RecordsTooLarge as error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{error} (message.max.decompressed.bytes)") from None
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    found.refuse()
    if found.largest_timestamp != whole.max_timestamp:
        TIMESTAMP_FIELD.pack_into(batch, MAX_TIMESTAMP_AT, found.largest_timestamp)
        CRC_FIELD.pack_into(batch, CRC_AT, batch_crc(batch))


class _Findings:
    """The invalid records and the largest timestamp that the check of a batch has found so far."""

    def __init__(self, batch: RecordBatch, limits: ValidationLimits, now_ms: int) -> None:
        self._base_timestamp = batch.base_timestamp
        self._limits = limits
        self._now_ms = now_ms
        self.largest_timestamp = -1
        self._keyless: list[RecordError] = []
        self._mistimed: list[RecordError] = []

    def add(self, facts: RecordFacts) -> None:
        timestamps = facts.timestamp_deltas
        self.largest_timestamp = max(self.largest_timestamp, self._base_timestamp + max(timestamps))
        if self._limits.requires_keys:
            self._keyless += [
                RecordError(index, "a compacted topic does not accept a record without a key")
                for index in facts.keyless[: MAX_RECORDS_NAMED - len(self._keyless)]
            ]
        if self._limits.stamps_append_time:
            return
        for timestamp in (min(timestamps), max(timestamps)):
            if why_wrong_timestamp(self._base_timestamp + timestamp, self._limits, self._now_ms):
                self._find_mistimed(facts)
                return

    def _find_mistimed(self, facts: RecordFacts) -> None:
        for index, delta in zip(facts.offset_deltas, facts.timestamp_deltas, strict=True):
            wrong = why_wrong_timestamp(self._base_timestamp + delta, self._limits, self._now_ms)
            if wrong is not None and len(self._mistimed) < MAX_RECORDS_NAMED:
                self._mistimed.append(RecordError(index, wrong))

    def refuse(self) -> None:
        """Raises RecordsRefused if a record is invalid; if the records have different errors, the batch gets the error
        code that Kafka would choose.
        """
        found = sorted({error.place: error for error in self._mistimed + self._keyless}.values())
        if not found:
            return
        code = ErrorCode.INVALID_TIMESTAMP if self._mistimed else ErrorCode.INVALID_RECORD
        first = found[0]
        raise RecordsRefused(code, f"{len(found)} records refused, the first is {first.place}: {first.message}", found)
