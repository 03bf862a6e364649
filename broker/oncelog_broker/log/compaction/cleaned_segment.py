"""Writes the segment that replaces others, so that after a crash either the old segments or the new one exist.

    1  .cleaned files are written and synced                   a start removes them
    2  they are renamed to .swap, the directory is synced      a start finishes what follows
    3  the old files are renamed to .deleted                   (`LogTrimmer.replace_segments`)
    4  the .swap files get their final names
    5  the .deleted files are freed after file.delete.delay.ms

Source: Kafka's LocalLog.replaceSegments; `recovery.finish_interrupted_work` is the other half.
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
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.records.batch import NO_TIMESTAMP, Buffer

logger = logging.getLogger(__name__)

WRITE_BYTES: Final = 128 * 1024
"""Bytes collected before each write."""


class CleanedSegment:
    """A compacted segment that is being written. `write`, `finish` and `discard` wait for the disk; call one at a time,
    in any thread."""

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
        """`is_wanted`, which any thread may ask, says whether the log is still the one in `directory`."""
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
        """Bytes of all batches added."""
        self.aborted: Sequence[EndedTransaction] = ()
        """The aborted transactions for its index, in the order of markers. To be set before `finish`."""
        self._is_handed_over = False

    @property
    def segment(self) -> Segment:
        assert self._segment is not None, "nothing was written yet"
        return self._segment

    def add(self, batch: Buffer, records_count: int) -> None:
        """Add a batch to be written. The memory behind it must not change until then."""
        end = self._pending_bytes + len(batch)
        location = parse_location(memoryview(batch), 0, self._pending_bytes, end)
        if records_count == 0:
            # A timestamp without a record would lead a search by time to nothing.
            location = location._replace(max_timestamp=NO_TIMESTAMP)
        self._pending.append(batch)
        self._locations.append(location)
        self._pending_bytes = end
        self.size += len(batch)

    @property
    def should_write(self) -> bool:
        return self._pending_bytes >= WRITE_BYTES

    def write(self) -> None:
        """Write the batches that were added. Raises OSError."""
        if self._segment is None:
            self._remove_files(CLEANED_SUFFIX)  # remove the bytes of a failed attempt
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
        """Write and sync everything, so that a start after a crash completes the replacement. Raises OSError.

        Returns False, and a start removes the files, if the segment is no longer wanted: the topic may have been
        deleted and re-created before the files were created, so that they are in the directory of the new topic. This
        check comes last: earlier, the topic could still be re-created after it.
        """
        self.write()
        segment = self.segment
        segment.seal()
        segment.file.sync()
        for file in segment.files_to_sync():
            try:
                file.sync()
            finally:
                file.close()
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
        """The files now belong to the log, which may have begun to delete the old ones: `discard` does not touch
        them."""
        self._is_handed_over = True

    def discard(self) -> None:
        """Remove the files, in whatever state, unless they belong to the log. Files that cannot be removed now are
        removed at the next attempt, or start."""
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
        # The log file last: after a crash, an index alone would be taken for one of the old log.
        for kind in (*INDEX_SUFFIXES, LOG_SUFFIX):
            self._disk.remove(self._path(kind + suffix))

    def _path(self, suffix: str) -> str:
        return os.path.join(self._directory, file_prefix(self._base_offset) + suffix)
