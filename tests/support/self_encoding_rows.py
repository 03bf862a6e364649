"""Records that encode themselves without Arrow, as `oncelog.producer.packable_rows.PackableRows` describes."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.producer.columns import Columns, Row
from oncelog_protocol.records.builder import encode_record
from oncelog_protocol.records.packing import Packed


class Rows:
    """Rows whose values equal their keys; each row is encoded alone, and a piece has two rows."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values
        self.asked = 0

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

    def row(self, index: int, now_ms: int) -> Row:
        return now_ms, self.values[index], self.values[index], ()

    def pieces(self) -> Iterator[Columns]:
        for first in range(0, len(self.values), 2):
            piece = self.values[first : first + 2]
            yield Columns(piece, piece, None, None)
