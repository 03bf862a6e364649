"""The time index of a segment (`.timeindex`): maps timestamps to offsets, sparsely.

An entry has 12 bytes: a timestamp in ms (int64) and an offset relative to the base offset (int32), both big-endian. An
entry (timestamp, offset) means two things: `timestamp` is the largest timestamp of the batch that ends with `offset`,
and no record of the segment up to `offset` has a larger timestamp. The last entry of a closed segment has the segment's
largest timestamp. Kafka's counterpart is TimeIndex.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import ClassVar, Final

from oncelog_broker.log.segments.index import IndexCorrupt, SegmentIndex
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.records.batch import NO_TIMESTAMP

ENTRY: Final = Struct(">qi")
ENTRY_SIZE: Final = ENTRY.size


class TimestampOffset(NamedTuple):
    """An entry of the time index, with an absolute offset."""

    timestamp: int
    offset: int


class TimeIndex(SegmentIndex):
    """Invariant: timestamps strictly increase, and offsets do not decrease."""

    ENTRY: ClassVar[Struct] = ENTRY

    __slots__ = ("_last_timestamp",)

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._last_timestamp = NO_TIMESTAMP

    def reset(self) -> None:
        super().reset()
        self._last_timestamp = NO_TIMESTAMP

    def activate(self) -> None:
        super().activate()
        self._last_timestamp = self.last().timestamp

    def append(self, timestamp: int, offset: int) -> None:
        """Append an entry; does nothing unless `timestamp` is larger than the timestamp of the last entry."""
        if timestamp > self._last_timestamp:
            assert self.entries is not None, "a closed segment takes no entries"
            self.entries += ENTRY.pack(timestamp, offset - self.base_offset)
            self._last_timestamp = timestamp

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the entry with the greatest timestamp not above `timestamp`; (-1, base offset) if there is no such
        entry. Raises IndexCorrupt.
        """
        data = self._data()
        count = len(data) // ENTRY_SIZE
        found = bisect_right(range(count), timestamp, key=lambda n: int(ENTRY.unpack_from(data, n * ENTRY_SIZE)[0]))
        return self._entry(found - 1)

    def last_before(self, offset: int) -> TimestampOffset:
        """Return the last entry for a record below `offset`; (-1, base offset) if there is no such entry. Raises
        IndexCorrupt.
        """
        data = self._data()
        count = len(data) // ENTRY_SIZE
        relative = offset - self.base_offset - 1
        found = bisect_right(range(count), relative, key=lambda n: int(ENTRY.unpack_from(data, n * ENTRY_SIZE)[1]))
        return self._entry(found - 1)

    def last(self) -> TimestampOffset:
        return self._entry(len(self) - 1)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries with offsets at or above `offset`."""
        data = self._data()
        relative = offset - self.base_offset - 1
        count = len(data) // ENTRY_SIZE
        self._cut(bisect_right(range(count), relative, key=lambda n: int(ENTRY.unpack_from(data, n * ENTRY_SIZE)[1])))
        self._last_timestamp = self.last().timestamp

    def check(self, log_size: int) -> None:
        previous_timestamp, previous_offset = NO_TIMESTAMP, 0
        for timestamp, relative in ENTRY.iter_unpack(self._data()):
            if timestamp <= previous_timestamp or relative < previous_offset:
                raise IndexCorrupt(
                    f"{self.path}: entry ({timestamp}, {relative}) after ({previous_timestamp}, {previous_offset})"
                )
            previous_timestamp, previous_offset = timestamp, relative

    def _entry(self, number: int) -> TimestampOffset:
        if number < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = ENTRY.unpack_from(self._data(), number * ENTRY_SIZE)
        return TimestampOffset(timestamp, self.base_offset + relative)
