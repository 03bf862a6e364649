"""Parses the expressions of `--from` and `--to`, which say where reading starts and stops. Pure.

    earliest          the first offset that the partition holds
    latest            the end: the offset that the next record will get
    17                this offset
    -5                the last 5 offsets before the end
    @1767225600000    the first record at or after this time, in ms since the epoch
    2026-01-01T10:00  the first record at or after this ISO date or date and time (UTC unless it names a zone)
    5m                the first record of the last five minutes (ms, s, m, h, d, w)

A plain number is always an offset, never a time, however large it is, because partitions with 10^12 records exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

MAX_OFFSET: Final = 2**63 - 1

UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_RELATIVE: Final = re.compile(r"(\d{1,12})(ms|s|m|h|d|w)", re.ASCII)
_NUMBER: Final = re.compile(r"[-@]?\d{1,19}", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORMS: Final = "earliest, latest, OFFSET, -N (the last N), @MILLISECONDS, an ISO date and time, or an age such as 5m"


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first offset that the partition holds."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end offset of the partition, which its next record will get."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """The offset `count` below the end of the partition. If there are gaps (markers, compaction), fewer than `count`
    records lie between this offset and the end.
    """

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record whose timestamp (ms since the epoch) is at or after this time."""

    timestamp_ms: int


Position = Earliest | Latest | AtOffset | BeforeEnd | AtTime


def parse_position(text: str, now_ms: int) -> Position:
    """Return the position that `text` describes; an age such as 5m is subtracted from `now_ms`. Raises ValueError,
    whose message lists the valid forms.
    """
    text = text.strip()
    if text == "earliest":
        return Earliest()
    if text == "latest":
        return Latest()
    if _NUMBER.fullmatch(text):
        number = int(text.lstrip("-@"))
        if number > MAX_OFFSET:
            raise ValueError(f"{text} is out of range")
        if text.startswith("@"):
            return AtTime(number)
        return BeforeEnd(number) if text.startswith("-") else AtOffset(number)
    if match := _RELATIVE.fullmatch(text):
        return AtTime(max(0, now_ms - int(match[1]) * UNITS_MS[match[2]]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is none of: {_FORMS}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return AtTime((moment - _EPOCH) // timedelta(milliseconds=1))


def resolve(position: Position, *, beginning: int, end: int, found: int | None = None) -> int:
    """Return the offset in [beginning, end] for `position`.

    For an AtTime, `found` is the broker's response: the offset of the first record at or after the time. If `found` is
    None, no such record exists, and the end is returned. An AtOffset outside the range is moved to the nearest bound.
    """
    match position:
        case Earliest():
            return beginning
        case Latest():
            return end
        case AtOffset(offset):
            wanted = offset
        case BeforeEnd(count):
            wanted = end - count
        case AtTime():
            wanted = end if found is None else found
    return min(max(wanted, beginning), end)


def out_of_range(position: Position, *, beginning: int, end: int) -> str | None:
    """Return a message if an AtOffset is outside the partition's range; None if it is inside."""
    if not isinstance(position, AtOffset) or beginning <= position.offset <= end:
        return None
    if position.offset < beginning:
        return f"offset {position.offset} is deleted, the first offset is {beginning}"
    return f"offset {position.offset} is after the end, {end} (a time in ms is written @{position.offset})"


def format_timestamp(timestamp_ms: int) -> str:
    """Format a timestamp as `2026-01-01T00:00:00.000Z`, or as the plain number if it has no date (-1 means none)."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return str(timestamp_ms) if timestamp_ms < 0 else moment.isoformat(timespec="milliseconds")[:-6] + "Z"
