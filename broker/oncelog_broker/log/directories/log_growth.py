"""Reads the records that were appended to a log since it was closed, so that a start after a kill opens a log from its
saved state (`closed_log`) and its new records, without its indexes, snapshots and older records.

The caller knows that the state describes the records below the state's end (`directories/closed_logs.py` has the
rules). This module decides the rest:

- The directory has no file of another segment, of a later snapshot, of an aborted transaction or of unfinished work.
- The leader epochs in the file are those of the state, followed by those of the new batches. A log that was truncated
  below the state's end and has other records there now has other leader epochs there.
- All new batches are complete, and none of them ends a transaction. An incomplete end is cut only by recovery
  (`segments/recovery.py`), which also notes that the log was cut.

If one of this is not true, recovery opens the log from its files.
"""

from __future__ import annotations

import os
from typing import Final

from oncelog_broker.log.checkpoints import format_checkpoint
from oncelog_broker.log.closed_log import ClosedLog, Growth
from oncelog_broker.log.directories.partition_metadata import PARTITION_METADATA_FILE
from oncelog_broker.log.header_fields import HeaderFields
from oncelog_broker.log.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from oncelog_broker.log.segments.batch_scan import scan_batches
from oncelog_broker.log.segments.recovery import check_offsets
from oncelog_broker.log.segments.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    PRODUCER_WINDOW_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_prefix,
)
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.records.batch import HEADER, NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, CorruptBatch

MAX_GROWTH: Final = 64 << 10
"""The maximum number of new bytes. The index of the active segment has no entries for the new batches until the log is
appended to, so each earlier read may have to walk all of them.
"""


def read_growth(disk: Disk, directory: str, closed: ClosedLog, size: int) -> Growth | None:
    """Return the records behind the end of `closed`, up to the position `size` of the active log file; None if only
    recovery can open the log. Raises OSError.
    """
    if not _has_only_files_of(closed, disk.list_directory(directory)):
        return None
    try:
        growth = _read_batches(disk, directory, closed, size)
    except CorruptBatch:
        return None
    if growth is None or disk.read_file(os.path.join(directory, LEADER_EPOCH_FILE)) != format_checkpoint(growth.epochs):
        return None
    return growth


def _has_only_files_of(closed: ClosedLog, names: list[str]) -> bool:
    known = {PARTITION_METADATA_FILE, LEADER_EPOCH_FILE}
    snapshots = {closed.log_end_offset}
    for segment in closed.segments:
        prefix = file_prefix(segment.base_offset)
        known |= {prefix + LOG_SUFFIX, prefix + OFFSET_INDEX_SUFFIX, prefix + TIME_INDEX_SUFFIX}
        snapshots.add(segment.base_offset)
    for offset in snapshots:
        known |= {file_prefix(offset) + PRODUCER_SNAPSHOT_SUFFIX, file_prefix(offset) + PRODUCER_WINDOW_SUFFIX}
    return known.issuperset(names) and file_prefix(closed.log_end_offset) + PRODUCER_SNAPSHOT_SUFFIX in names


def _read_batches(disk: Disk, directory: str, closed: ClosedLog, size: int) -> Growth | None:
    active = closed.segments[-1]
    next_offset, max_timestamp, max_timestamp_offset = closed.log_end_offset, NO_TIMESTAMP, active.base_offset
    epochs = LeaderEpochs(disk, "", list(closed.epochs))
    headers: list[HeaderFields] = []
    file = disk.open_briefly(os.path.join(directory, file_prefix(active.base_offset) + LOG_SUFFIX))
    try:
        for _, batch in scan_batches(file, active.size, size):
            check_offsets(batch, active.base_offset, next_offset)
            if batch.is_control:
                return None
            next_offset = batch.next_offset
            if batch.max_timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = batch.max_timestamp, batch.last_offset
            if batch.has_producer_id:
                headers.append(HEADER.unpack_from(batch.buffer, batch.start))
            if batch.partition_leader_epoch > NO_PARTITION_LEADER_EPOCH:
                epochs.assign(batch.partition_leader_epoch, batch.base_offset, persist=False)
    finally:
        file.close()
    return Growth(size, next_offset, max_timestamp, max_timestamp_offset, tuple(headers), epochs.entries)
