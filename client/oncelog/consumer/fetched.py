"""One Fetch response for one partition.

Batches stay encoded until their records are taken: a poll decodes only the records that it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from oncelog.cluster import NO_LEADER_EPOCH
from oncelog.consumer.isolation import AbortedTransactions
from oncelog.consumer.records import (
    BatchHeader,
    ColumnBatch,
    ConsumerRecord,
    UndecodedBatch,
    columns_of,
    decode_batch,
    decode_columns,
    header_of,
    undecoded,
)
from oncelog.errors import CorruptRecords
from oncelog.group_offsets import MAX_OFFSET
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch, whole_batches_size
from oncelog_protocol.records.columns import MAX_DECOMPRESSED_BYTES

T = TypeVar("T")


def _as_columns(batch: RecordBatch, _topic: str, _partition: int, from_offset: int, limit: int) -> ColumnBatch | None:
    return decode_columns(batch, from_offset, limit)


def _as_undecoded(
    batch: RecordBatch, _topic: str, _partition: int, from_offset: int, limit: int
) -> UndecodedBatch | None:
    return undecoded(batch, from_offset, limit)


def _as_header(batch: RecordBatch, _topic: str, _partition: int, _from_offset: int, _limit: int) -> BatchHeader:
    return header_of(batch)


class FetchedPartition:
    """The batches of one partition in a Fetch response; they are decoded from front to back.

    Invariants: `next_offset` is a lower bound of the next record's offset. The items of `_records` from `_index` on are
    decoded but not taken; the bytes from `_position` on are not decoded. `end_offset` is the offset of the next Fetch,
    and `end_epoch` the leader epoch of the batch before it.
    """

    __slots__ = (
        "_aborted",
        "_check_crcs",
        "_data",
        "_epoch",
        "_epoch_before",
        "_index",
        "_max_decompressed_bytes",
        "_position",
        "_records",
        "end_epoch",
        "end_offset",
        "next_offset",
        "partition",
        "size",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        fetch_offset: int,
        data: memoryview,
        *,
        check_crcs: bool,
        aborted: AbortedTransactions | None = None,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        """`data` may end with a partial batch, which is ignored.

        Raises CorruptRecords if `data` does not start with a complete batch, if a batch is not of format v2, or if the
        last batch ends before `fetch_offset` or at the highest offset.
        """
        self.topic = topic
        self.partition = partition
        self.next_offset = fetch_offset
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self._aborted = aborted
        self._position = 0
        self._records: list[ConsumerRecord] = []
        self._index = 0
        self._epoch = self._epoch_before = NO_LEADER_EPOCH
        self.size = whole_batches_size(data)
        self._data = data[: self.size]
        if not self.size:
            raise self._corrupt(fetch_offset, f"{len(data)} bytes contain no complete batch")
        try:
            last = self._last_batch()
            self.end_offset, self.end_epoch = last.next_offset, last.partition_leader_epoch
        except CorruptBatch as error:
            raise self._corrupt(fetch_offset, str(error)) from error
        if not fetch_offset < self.end_offset <= MAX_OFFSET:
            raise self._corrupt(fetch_offset, f"its last offset is {self.end_offset - 1}")

    @property
    def is_exhausted(self) -> bool:
        """Whether all data have been taken or skipped."""
        return self._position >= self.size and self._index >= len(self._records)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch before `next_offset`, even if that batch is a marker. Without the epoch of
        markers, the position after a marker would have an older epoch, and a check of the log (KIP-320) would report
        that this epoch ends below the position. The value is -1 before the first batch.
        """
        return self._epoch if self._index or not self._records else self._epoch_before

    @property
    def epoch_before_last(self) -> int:
        """The leader epoch of the batch before the record that `take_one` returned last; -1 if unknown."""
        return self._epoch if self._index > 1 else self._epoch_before

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Return at most `limit` records, in order; an empty list at the end.

        Raises CorruptRecords at an unreadable batch, once the earlier records have been taken.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < limit:
            if self._index >= len(self._records):
                try:
                    if not self._decode_next():
                        break
                except CorruptRecords:
                    if taken:
                        break
                    raise
            index, wanted = self._index, limit - len(taken)
            if index == 0 and not taken and len(self._records) <= wanted:
                taken, self._records = self._records, []
            else:
                part = self._records[index : index + wanted]
                self._index = index + len(part)
                taken += part
            self._advance(taken[-1])
        return taken

    def take_one(self) -> ConsumerRecord | None:
        """Return the next record; None at the end of the data."""
        index = self._index
        if index >= len(self._records):
            if not self._decode_next():
                return None
            index = 0
        record = self._records[index]
        self._index = index + 1
        self.next_offset = record.offset + 1
        return record

    def take_columns(self) -> list[ColumnBatch]:
        """Take all remaining records, batch by batch. Raises the errors of `take`."""
        taken: list[ColumnBatch] = []
        if self._index < len(self._records):  # first return the rest of a batch that `take` has decoded
            rest, self._records, self._index = self._records[self._index :], [], 0
            taken.append(columns_of(rest))
            self._advance(rest[-1])
        while (columns := self._next_of(_as_columns, has_some=bool(taken))) is not None:
            taken.append(columns)
            self.next_offset = columns.offsets[-1] + 1
        return taken

    def take_undecoded(self) -> list[UndecodedBatch]:
        """Take all remaining batches that may have visible records. Raises the errors of `take`."""
        taken: list[UndecodedBatch] = []
        while (batch := self._next_of(_as_undecoded, has_some=bool(taken))) is not None:
            taken.append(batch)
            self.next_offset = batch.end
        return taken

    def take_headers(self) -> list[BatchHeader]:
        """Return the headers of all remaining batches, including those that `take` skips. Raises the errors of
        `take`."""
        taken: list[BatchHeader] = []
        while (header := self._next_of(_as_header, has_some=bool(taken), passes_over=False)) is not None:
            taken.append(header)
            self.next_offset = header.last_offset + 1
        return taken

    def _next_of(
        self,
        decode: Callable[[RecordBatch, str, int, int, int], T | None],
        *,
        has_some: bool,
        passes_over: bool = True,
    ) -> T | None:
        """Call `_next`; at an unreadable batch, raise the error only if no earlier batch was taken (`has_some` is
        False), otherwise return None.
        """
        try:
            return self._next(decode, passes_over=passes_over)
        except CorruptRecords:
            if has_some:
                return None
            raise

    def _advance(self, last: ConsumerRecord) -> None:
        self.next_offset = last.offset + 1

    def _decode_next(self) -> bool:
        """Decode the next batch with visible records; return False at the end, with `next_offset` after all batches."""
        self._records, self._index = [], 0
        records = self._next(decode_batch)
        if records is None:
            return False
        self._records = records
        return True

    def _next(
        self, decode: Callable[[RecordBatch, str, int, int, int], T | None], *, passes_over: bool = True
    ) -> T | None:
        """Return the result of `decode` for the next batch with visible records; None at the end. With
        `passes_over`, markers and aborted batches are skipped. Raises CorruptRecords."""
        while self._position < self.size:
            shown: T | None = None
            try:
                batch = RecordBatch(self._data, self._position)
                if self._check_crcs and not batch.crc_is_valid():
                    raise CorruptBatch("the CRC does not match")
                if batch.next_offset > self.end_offset:
                    raise CorruptBatch(f"offset {batch.last_offset} comes before offset {self.end_offset - 1}")
                if not (passes_over and self._is_hidden(batch)):
                    shown = decode(batch, self.topic, self.partition, self.next_offset, self._max_decompressed_bytes)
            except CorruptBatch as error:
                raise self._corrupt(self.next_offset, str(error)) from error
            self._position += batch.size
            self._epoch_before, self._epoch = self._epoch, batch.partition_leader_epoch
            if shown:
                return shown
            self.next_offset = max(self.next_offset, batch.next_offset)
        self.next_offset = self.end_offset
        return None

    def _is_hidden(self, batch: RecordBatch) -> bool:
        if self._aborted is not None and self._aborted.next_is_aborted(batch):
            return True
        return batch.is_control

    def _last_batch(self) -> RecordBatch:
        position = 0
        while True:
            batch = RecordBatch(self._data, position)
            position += batch.size
            if position >= self.size:
                return batch

    def _corrupt(self, offset: int, why: str) -> CorruptRecords:
        return CorruptRecords(
            ErrorCode.CORRUPT_MESSAGE,
            f"{self.topic}-{self.partition}: the batch fetched from offset {offset} is unreadable: {why};"
            " seek behind it to leave it out",
        )
