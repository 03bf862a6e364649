"""Writes the segment that replaces several others; after a crash, either the old segments or the new segment exists.

1. Files with the suffix .cleaned are written and synced. If the broker crashes during this step, the next startup
removes the .cleaned files.
2. The .cleaned files are renamed to .swap, and the directory is synced. If the broker crashes after the rename to
.swap, the next startup completes the remaining steps.
3. The old files are renamed to .deleted (`LogTrimmer.replace_segments`).
4. The .swap files get their final names.
5. The .deleted files are freed after file.delete.delay.ms.

At startup, `recovery.finish_interrupted_work` completes an interrupted replacement. Kafka's counterpart is
LocalLog.replaceSegments.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.producers.transaction_index import format_aborted
from oncelog_broker.log.segments.batch_scan import BatchLocation, parse_location
from oncelog_broker.log.segments.recovery import CLEANED_SUFFIX, SWAP_SUFFIX
from oncelog_broker.log.segments.segment import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_prefix,
)
from oncelog_broker.runtime.disk import Disk, sync_path
from oncelog_protocol.records.batch import NO_TIMESTAMP, Buffer

logger = logging.getLogger(__name__)

WRITE_BYTES: Final = 128 * 1024
"""Number of bytes that are collected in memory before each write to the file."""


class CleanedSegment:
    """A compacted segment that is being written. `write`, `finish` and `discard` wait for the disk; only one of these
    calls may run at a time, in any thread.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        now_ms: int,
        is_wanted: Callable[[], bool],
    ) -> None:
        """`is_wanted` returns whether the log in `directory` is still in use; any thread may call it."""
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._now_ms = now_ms
        self._is_wanted = is_wanted
        self._segment: Segment | None = None
        self._pending: list[Buffer] = []
        self._locations: list[BatchLocation] = []
        self._pending_bytes = 0
        self.size = 0
        """The total number of bytes of the added batches."""
        self.aborted: Sequence[EndedTransaction] = ()
        """The aborted transactions for the index of the new segment, ordered by their markers. The caller must set this
        field before `finish`.
        """
        self._is_handed_over = False

    @property
    def segment(self) -> Segment:
        assert self._segment is not None, "nothing was written yet"
        return self._segment

    def add(self, batch: Buffer, records_count: int) -> None:
        """Add a batch to be written. The memory of `batch` must not change until the batch is written."""
        end = self._pending_bytes + len(batch)
        location = parse_location(memoryview(batch), 0, self._pending_bytes, end)
        if records_count == 0:
            # The timestamp of a dropped record is left out of the time index, because a search for that timestamp would
            # find an offset without a record.
            location = location._replace(max_timestamp=NO_TIMESTAMP)
        self._pending.append(batch)
        self._locations.append(location)
        self._pending_bytes = end
        self.size += len(batch)

    @property
    def should_write(self) -> bool:
        return self._pending_bytes >= WRITE_BYTES

    def write(self) -> None:
        """Write the added batches to the file. Raises OSError."""
        if self._segment is None:
            self._remove_files(CLEANED_SUFFIX)  # remove the bytes of a failed attempt from the file
            self._remove_files(SWAP_SUFFIX)
            self._segment = Segment.create(
                self._disk,
                self._directory,
                self._base_offset,
                index_interval_bytes=self._index_interval_bytes,
                now_ms=self._now_ms,
                suffix=CLEANED_SUFFIX,
            )
        if self._pending:
            self._segment.append_all(b"".join(self._pending), self._locations)
            self._pending, self._locations, self._pending_bytes = [], [], 0

    def finish(self) -> bool:
        """Write and sync the new segment. If the broker crashes after this call, the next startup completes the
        replacement. Raises
        OSError.

        Returns False if the segment is no longer wanted, and leaves its files for the next startup to remove. A segment
        is unwanted when its topic was deleted. If the topic was re-created meanwhile, the files may be in the directory
        of the new topic. The check of `is_wanted` comes last, because the topic
        could be re-created after an earlier check.
        """
        self.write()
        segment = self.segment
        segment.seal()
        segment.file.sync()
        for path in segment.paths_to_sync():
            sync_path(self._disk, path)
        if self.aborted:
            self._write_transaction_index()
        if not self._is_wanted():
            return False
        segment.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
        self._disk.sync_directory(self._directory)
        return True

    def _write_transaction_index(self) -> None:
        file = self._disk.open_briefly(self._path(TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX), create=True)
        try:
            file.append(format_aborted(self.aborted))
            file.sync()
        finally:
            file.close()

    def hand_over(self) -> None:
        """Record that the files belong to the log from now on. After this call, `discard` does not remove the new
        files, because the log may have begun to delete the old files.
        """
        self._is_handed_over = True

    def discard(self) -> None:
        """Remove the files of this segment, even if the segment is complete, unless the files belong to the log. Files
        that cannot be removed now are removed by the next attempt or the next startup.
        """
        if self._segment is not None:
            self._segment.close()
        if self._is_handed_over:
            return
        try:
            self._remove_files(CLEANED_SUFFIX)
            self._remove_files(SWAP_SUFFIX)
        except OSError as error:
            logger.warning("%s: could not be removed: %s", self._path(""), error)

    def _remove_files(self, suffix: str) -> None:
        # Remove the log file last: if a crash left an index without its log file, the next startup would use that index
        # for the old log.
        for kind in (*INDEX_SUFFIXES, LOG_SUFFIX):
            self._disk.remove(self._path(kind + suffix))

    def _path(self, suffix: str) -> str:
        return os.path.join(self._directory, file_prefix(self._base_offset) + suffix)
