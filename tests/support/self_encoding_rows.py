"""Records that encode themselves without Arrow, as `oncelog.producer.packable_rows.PackableRows` describes."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.producer.columns import Columns, Row
from oncelog_protocol.records.batch import HEADER_SIZE
from oncelog_protocol.records.builder import encode_record
from oncelog_protocol.records.packing import Packed


class Rows:
    """Rows whose values equal their keys; each row is encoded alone, and a piece has two rows.

    With `rows_in_a_batch`, the rows encode themselves as whole batches of that many rows.
    """

    def __init__(self, values: list[bytes], rows_in_a_batch: int | None = None) -> None:
        self.values = values
        self.asked = 0
        self._rows_in_a_batch = rows_in_a_batch

    def __len__(self) -> int:
        return len(self.values)

    def pack(self, first: int, now_ms: int, first_offset: int, base_timestamp_ms: int, room: int) -> Packed:
        self.asked += 1
        data = bytearray()
        count = 0
        for offset, value in enumerate(self.values[first:], first_offset):
            record = encode_record(offset, now_ms - base_timestamp_ms, value, value)
            if len(data) + len(record) > room:
                break
            data += record
            count += 1
        return Packed(data, [now_ms] * count, now_ms)

    def batches(self, now_ms: int, size_limit: int) -> Iterator[Packed] | None:
        size = self._rows_in_a_batch
        if size is None:
            return None
        pieces = [self.values[first : first + size] for first in range(0, len(self.values), size)]
        return (_whole(piece, now_ms) for piece in pieces)

    def row(self, index: int, now_ms: int) -> Row:
        return now_ms, self.values[index], self.values[index], ()

    def pieces(self) -> Iterator[Columns]:
        for first in range(0, len(self.values), 2):
            piece = self.values[first : first + 2]
            yield Columns(piece, piece, None, None)


def _whole(values: list[bytes], now_ms: int) -> Packed:
    records = [encode_record(offset, 0, value, value) for offset, value in enumerate(values)]
    return Packed(bytearray(HEADER_SIZE) + b"".join(records), [now_ms] * len(values), now_ms)
