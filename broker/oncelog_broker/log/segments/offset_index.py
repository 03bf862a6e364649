"""The offset index of a segment (`.index`): maps offsets to positions in the log file. The index is sparse, with one
entry per `index.interval.bytes`.

An entry has 8 bytes: the offset relative to the segment's base offset (int32) and the position (int32), both
big-endian. In files of this broker, an entry means that the batch at `position` ends with `offset`. In files from
Kafka, an entry may cover several batches: the first batch is at `position`, and the last batch ends with `offset`. A
search for an offset starts at the entry
with the greatest offset that is not above the wanted offset. Kafka's counterpart is OffsetIndex.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final

from oncelog_broker.log.segments.index import IndexCorrupt, SegmentIndex
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.records.batch import Buffer

ENTRY: Final = Struct(">ii")
ENTRY_SIZE: Final = ENTRY.size
OFFSET: Final = 0
"""Index of the offset field in an unpacked entry; the offset is relative to the base offset."""
POSITION: Final = 1
"""Index of the position field in an unpacked entry; the position is that in the log file."""


class OffsetPosition(NamedTuple):
    """An entry of the offset index, with an absolute offset."""

    offset: int
    position: int


class OffsetIndex(SegmentIndex):
    """Invariant: both fields strictly increase, and no entry has position 0, because the start of the file needs no
    entry.
    """

    ENTRY: ClassVar[Struct] = ENTRY

    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        """Append an entry; `offset` is the last offset of the batch at `position`."""
        assert self.entries is not None, "a closed segment takes no entries"
        self.entries += ENTRY.pack(offset - self.base_offset, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the entry with the greatest offset not above `offset`; the start of the file if there is no such
        entry. Raises IndexCorrupt.
        """
        data = self._data()
        return self._entry(data, _count_up_to(data, OFFSET, offset - self.base_offset) - 1)

    def lookup_position(self, position: int) -> OffsetPosition:
        """Return the last entry whose position is not above `position`; the start of the file if there is no such
        entry.
        """
        data = self._data()
        return self._entry(data, _count_up_to(data, POSITION, position) - 1)

    def last(self) -> OffsetPosition:
        return self._entry(self._data(), len(self) - 1)

    def last_in_file(self) -> OffsetPosition:
        """Return the last entry, read from the end of the file, without keeping the entries in memory. Raises
        IndexCorrupt.
        """
        try:
            file = self._disk.open_briefly(self.path)
        except FileNotFoundError:
            raise IndexCorrupt(f"{self.path} is missing") from None
        try:
            end = bytes(file.read(max(file.size - ENTRY_SIZE, 0), ENTRY_SIZE))
            is_whole = file.size % ENTRY_SIZE == 0
        finally:
            file.close()
        if not is_whole or end == bytes(ENTRY_SIZE):  # the file was preallocated, so find where the entries end
            data = self._load()
            end = bytes(data[-ENTRY_SIZE:])
        if not end:
            return OffsetPosition(self.base_offset, 0)
        relative, position = ENTRY.unpack(end)
        return OffsetPosition(self.base_offset + relative, position)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries with offsets at or above `offset`."""
        self._cut(_count_up_to(self._data(), OFFSET, offset - self.base_offset - 1))

    def check(self, log_size: int) -> None:
        previous_offset, previous_position = -1, 0
        for relative, position in ENTRY.iter_unpack(self._data()):
            if relative <= previous_offset or position <= previous_position or position >= log_size:
                raise IndexCorrupt(
                    f"{self.path}: entry ({relative}, {position}) after ({previous_offset}, {previous_position}), "
                    f"log of {log_size} bytes"
                )
            previous_offset, previous_position = relative, position

    def _entry(self, data: Buffer, number: int) -> OffsetPosition:
        if number < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = ENTRY.unpack_from(data, number * ENTRY_SIZE)
        return OffsetPosition(self.base_offset + relative, position)


def _count_up_to(data: Buffer, field: int, value: int) -> int:
    """Return how many entries have a `field` not above `value`. The bisection is written as a plain loop for speed:
    `bisect` with a key would call a Python function a dozen times in each of the lookups of a Fetch.
    """
    unpack = ENTRY.unpack_from
    low, high = 0, len(data) // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        if unpack(data, middle * ENTRY_SIZE)[field] <= value:
            low = middle + 1
        else:
            high = middle
    return low
