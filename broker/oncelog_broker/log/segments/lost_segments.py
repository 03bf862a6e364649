"""Detects closed segments that lost synced records, as far as a startup can detect this.

Gaps are legal: retention deletes the oldest segments, and compaction leaves gaps between offsets, and even empty
segments. A gap alone therefore does not prove lost records. Only the following cases prove lost records:

- The log file was emptied: it is empty, but its index or time index has entries.
- The log file of a log that was never compacted is empty: the file was emptied, because an empty segment is never
  closed.
- The log file was cut: the last index entry points to a position at or after the end of the file, and the batches in
  the file end below the entry's offset.
- The log file was removed: an index or time index with entries exists without a log file.

This module does not detect a file that lost less than its last `index.interval.bytes`, or a segment whose files are all
missing. Damage inside a segment is found when the segment is read, since each batch has a CRC. The loss of unsynced
records is not an error: recovery truncates such a torn end of the log. `synced_up_to` is the recovery point, or the end
of the log after a clean shutdown.

Only the last entry of each index is read, so that the startup stays quick.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence

from oncelog_broker.log.segments.batch_scan import scan_headers
from oncelog_broker.log.segments.index import IndexCorrupt, SegmentIndex
from oncelog_broker.log.segments.offset_index import OffsetIndex
from oncelog_broker.log.segments.segment import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_DIGITS,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_prefix,
)
from oncelog_broker.log.segments.time_index import TimeIndex
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.records.batch import CorruptBatch

logger = logging.getLogger(__name__)


class LogCorrupt(Exception):
    """Records that had been synced are damaged or missing. The log is left unchanged and offline until an operator
    decides.
    """


def log_file_base(name: str) -> int | None:
    """Return the base offset in the name of a `.log` file; None for the name of any other file."""
    digits = name.removesuffix(LOG_SUFFIX)
    if digits == name or len(digits) != OFFSET_DIGITS or not digits.isdecimal():
        return None
    return int(digits)


def check_closed(segment: Segment, *, was_compacted: bool, synced_up_to: int | None = None) -> None:
    """Raises LogCorrupt if it is certain that the closed `segment` lost synced records. All records below
    `synced_up_to` were synced; by default, all records of the segment. Raises OSError.
    """
    if segment.size == 0:
        if was_emptied(segment, was_compacted=was_compacted):
            raise LogCorrupt(
                f"{segment.path} is empty: its records, from offset {segment.base_offset} to before "
                f"{segment.next_offset}, are lost. Restore the file; or remove it with its indexes, to accept the loss"
            )
        return
    try:
        index = segment.offset_index
        claimed = index.last_in_file() if synced_up_to is None else index.lookup(synced_up_to - 1)
    except IndexCorrupt:
        return  # a missing or damaged index does not prove lost records; the index will be rebuilt
    if claimed.position < segment.size or not segment.base_offset <= claimed.offset < segment.next_offset:
        return
    try:
        end = _end_of(segment)
    except CorruptBatch as error:
        raise _cut_short(segment, claimed.offset) from error
    if end <= claimed.offset:
        raise _cut_short(segment, claimed.offset)


def was_emptied(segment: Segment, *, was_compacted: bool) -> bool:
    """Whether the closed `segment`, which has an empty log file, has lost its records."""
    return not was_compacted or _has_entries(segment.offset_index) or _has_entries(segment.time_index)


def check_removed(
    disk: Disk,
    directory: str,
    names: Collection[str],
    segments: Sequence[Segment],
    *,
    log_start_offset: int,
    synced_up_to: float,
) -> list[str]:
    """Search for log files that were removed. Returns the paths of all indexes without a log file, if none of them
    proves a loss.

    An interrupted operation of this broker leaves no index without a log file, because the broker removes or renames
    the log file last. Raises LogCorrupt, CorruptBatch, OSError.
    """
    orphans = _orphans(names)
    if not orphans:
        return []
    renamed = {log_file_base(name[: OFFSET_DIGITS + len(LOG_SUFFIX)]) for name in names}
    for base in sorted(orphans.keys() - renamed):
        after = min((segment.base_offset for segment in segments if segment.base_offset > base), default=None)
        if base >= synced_up_to or (after is not None and after <= log_start_offset):
            continue
        before = [segment for segment in segments if segment.base_offset < base]
        if before and next(before[-1].batches_from(base), None) is not None:
            continue  # no loss: an earlier segment has these records
        path = os.path.join(directory, file_prefix(base))
        for index in (
            OffsetIndex(disk, path + OFFSET_INDEX_SUFFIX, base),
            TimeIndex(disk, path + TIME_INDEX_SUFFIX, base),
        ):
            if _has_entries(index):
                raise LogCorrupt(
                    f"{path}{LOG_SUFFIX} is missing, but not {os.path.basename(index.path)}: the records from offset "
                    f"{base} on are lost. Restore the file; or remove its indexes, to accept the loss"
                )
    return [os.path.join(directory, name) for base in sorted(orphans) for name in orphans[base]]


def _orphans(names: Collection[str]) -> dict[int, list[str]]:
    """Return the names of indexes without a log file, by base offset."""
    found: dict[int, list[str]] = {}
    for name in names:
        prefix, suffix = os.path.splitext(name)
        base = log_file_base(prefix + LOG_SUFFIX)
        if suffix in INDEX_SUFFIXES and base is not None and prefix + LOG_SUFFIX not in names:
            found.setdefault(base, []).append(name)
    return found


def _has_entries(index: SegmentIndex) -> bool:
    try:
        return index.has_entries_in_file()
    except IndexCorrupt:
        return False


def _end_of(segment: Segment) -> int:
    """Return the offset after the last record in the segment's file. Raises CorruptBatch."""
    end = segment.base_offset
    for batch in scan_headers(segment.file, 0, segment.size):
        end = batch.last_offset + 1
    return end


def _cut_short(segment: Segment, offset: int) -> LogCorrupt:
    return LogCorrupt(
        f"{segment.path} ends before offset {offset}, which its index contains: records are lost. Restore the whole "
        "file back; or remove its indexes, to accept the loss"
    )
