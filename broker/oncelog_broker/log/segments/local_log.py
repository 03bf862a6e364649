"""All segments of one log: appends at the end, rolls, reads, deletes the oldest segments, and truncates the end of the
log.

Kafka's counterpart is LocalLog. Policy, checkpoints and leader epochs are not in this class, but in `LogContent` and
`LogState`. Methods raise OSError; methods that read also raise CorruptBatch.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.segments.batch_scan import location_of
from oncelog_broker.log.segments.recovery import SegmentLoader, activate
from oncelog_broker.log.segments.roll import MAX_RELATIVE_OFFSET, RollParams, RollReason, roll_reason
from oncelog_broker.log.segments.segment import PRODUCER_SNAPSHOT_SUFFIX, PRODUCER_WINDOW_SUFFIX, Segment
from oncelog_broker.log.segments.segment_reader import SegmentReader
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import File
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch

logger = logging.getLogger(__name__)


class LocalLog:
    """The segments of one log by base offset; there is at least one, and the last segment is active.

    Invariant: `log_end_offset` is the active segment's `next_offset`, and every batch below the log end is complete in
    its file.
    """

    __slots__ = (
        "_bases",
        "_clock",
        "_config",
        "_loader",
        "_marked",
        "_max_offset_index_bytes",
        "_max_time_index_bytes",
        "_name",
        "_reader",
        "_roll_params",
        "_row",
        "active",
        "directory_dirty",
        "log_end_offset",
        "on_marked",
        "on_roll",
    )

    def __init__(
        self, loader: SegmentLoader, segments: list[Segment], *, name: str, config: LogConfig, clock: Clock
    ) -> None:
        """`segments` are the segments from the loader, in order; the last segment is active."""
        self._loader = loader
        self._name = name
        self._clock = clock
        self._row = segments
        self._bases = [segment.base_offset for segment in segments]
        self._marked: list[tuple[float, list[str]]] = []
        """Deleted files: (monotonic seconds when the files may be removed, paths of these files), oldest first."""
        self._reader = SegmentReader()
        self.active = segments[-1]
        self.log_end_offset = self.active.next_offset
        self.directory_dirty = True
        """Whether file names were created or removed since the last sync of the directory."""
        self.on_roll: Callable[[int], None] = lambda offset: None
        """A callback for rolls: called with the base offset of the new segment, after all earlier batches were appended
        and before the new segment is created.
        """
        self.on_marked: Callable[[], None] = lambda: None
        """A callback: called when files of a deleted segment wait to be freed."""
        self.update_config(config)

    @property
    def segments(self) -> list[Segment]:
        """The segments, ordered by base offset. Callers must not change the list."""
        return self._row

    @property
    def first(self) -> Segment:
        return self._row[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._row)

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment whose range contains `offset`, and all segments after it."""
        return self._row[self._number_of(offset) :]

    def update_config(self, config: LogConfig) -> None:
        self._config = config
        self.active.index_interval_bytes = config.index_interval_bytes
        self._roll_params = RollParams.of(config, self.active.base_offset, self._name)
        self._max_offset_index_bytes = self._roll_params.max_offset_index_bytes
        self._max_time_index_bytes = self._roll_params.max_time_index_bytes

    # --- methods that append batches ----------------------------------------------------------------------------------

    def append(self, batch: memoryview, last_offset: int, max_timestamp: int, now_ms: int) -> None:
        """Append one batch that has its offsets; if the batch does not fit the active segment, roll first."""
        size, active, params = len(batch), self.active, self._roll_params
        offset_entries, time_entries = active.offset_index.entries, active.time_index.entries
        if not (  # a quick check: if it does not show that the batch fits, call `_roll_reason`
            active.size + size <= params.max_size
            and active.first_timestamp >= 0
            and 0 <= max_timestamp <= active.first_timestamp + params.max_age_ms
            and last_offset <= params.max_offset
            and offset_entries is not None
            and len(offset_entries) < self._max_offset_index_bytes
            and time_entries is not None
            and len(time_entries) < self._max_time_index_bytes
        ) and self._must_roll(size, last_offset, max_timestamp, now_ms):
            self.roll()
        if not self.active.is_made:
            self._make_file()
        self.active.append(batch, last_offset, max_timestamp)
        self.log_end_offset = last_offset + 1

    def _must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        self.wake()
        return self._roll_reason(size, last_offset, max_timestamp, now_ms) is not None

    def wake(self) -> None:
        """Load the indexes of the active segment, if it is dormant: after `SegmentLoader.reopen`, nothing but appends
        and rolls need them in memory. Raises OSError.
        """
        active = self.active
        if active.offset_index.is_active:
            return
        end = active.next_offset
        try:
            if active.file.size != active.size:
                raise CorruptBatch(f"the file has {active.file.size} bytes, not {active.size}")
            activate(active)
            if active.next_offset != end:
                raise CorruptBatch(f"the last batch ends at offset {active.next_offset}, not at {end}")
        except BaseException as error:
            active.make_dormant(end)  # so that the next append does not use incomplete indexes
            if isinstance(error, CorruptBatch):
                raise OSError(errno.EIO, f"the end of the log is damaged: {error}", active.path) from error
            raise

    def complete_indexes(self) -> None:
        """Add the entry for the largest timestamp to the time index of the active segment. A dormant segment has this
        entry, because it was closed, unless it has grown since. Raises OSError.
        """
        if self.active.has_grown:
            self.wake()
        if self.active.offset_index.is_active:
            self.active.index_max_timestamp()

    def append_all(
        self,
        records: memoryview,
        whole: list[RecordBatch],
        now_ms: int,
        appended: Callable[[list[RecordBatch], int], None],
    ) -> None:
        """Append the batches `whole`, which are adjacent in the buffer `records`, with one write for each segment that
        they fill.

        After each write, `appended` is called with the batches written and the base offset of their segment. If a write
        fails, the batches in earlier segments remain appended.
        """
        self.wake()
        run: list[RecordBatch] = []
        for batch in whole:
            pending = batch.start - run[0].start if run else 0
            if self._roll_reason(batch.size, batch.last_offset, batch.max_timestamp, now_ms, pending) is not None:
                self._append_run(records, run)
                appended(run, self.active.base_offset)
                run = []
                self.roll(self._start_for(batch))
            run.append(batch)
        self._append_run(records, run)
        appended(run, self.active.base_offset)

    def _append_run(self, records: memoryview, run: list[RecordBatch]) -> None:
        if run:
            if not self.active.is_made:
                self._make_file()
            start, end = run[0].start, run[-1].start + run[-1].size
            self.active.append_all(records[start:end], [location_of(batch, start) for batch in run])
            self.log_end_offset = run[-1].next_offset

    def _make_file(self) -> None:
        self.active.make()
        self.directory_dirty = True

    def _start_for(self, batch: RecordBatch) -> int:
        """Return the base offset of a new segment that begins with `batch`. The new base offset is the log end offset.
        Exception: if compaction at the leader has left a gap before the batch that is too large for an index entry, the
        new base offset is the base offset of the batch.
        """
        end = self.log_end_offset
        return end if batch.last_offset - end <= MAX_RELATIVE_OFFSET else batch.base_offset

    def roll(self, start: int | None = None) -> None:
        """Close the active segment and create a new one, which begins at the log end offset, or at the higher offset
        `start`. Does nothing if the active segment is empty and already begins at that offset. If this method raises,
        the log is unchanged.
        """
        closed, start = self.active, self.log_end_offset if start is None else start
        if closed.size == 0 and closed.base_offset == start:
            return
        self.wake()
        closed.write_indexes()
        if start > self.log_end_offset:
            self._sync_end()  # sync, so that recovery does not take lost records for a gap
        segment = self._loader.create(start, self._clock.now_ms())
        if closed.size > 0:
            closed.seal()
        self.on_roll(start)
        if closed.size > 0:
            self._row.append(segment)
            self._bases.append(start)
            self._adopt_active(segment)
        else:  # replace an empty segment: closed, it would look like lost records
            self._row[-1], self._bases[-1] = segment, start
            self._reader.forget_positions()
            self._adopt_active(segment)
            self._mark_deleted(closed, keep=(PRODUCER_SNAPSHOT_SUFFIX, PRODUCER_WINDOW_SUFFIX))

    def _sync_end(self) -> None:
        for segment in self.from_offset(self.log_end_offset - 1):
            if segment.size > 0:
                segment.file.sync()

    def _roll_reason(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int, pending: int = 0
    ) -> RollReason | None:
        """Return why a batch with these values does not fit the active segment; None if the batch fits. `pending` is
        the number of bytes that will be appended before the batch.
        """
        active = self.active
        return roll_reason(
            self._roll_params,
            segment_size=active.size + pending,
            offset_entries=len(active.offset_index),
            time_entries=len(active.time_index),
            age_ms=active.age_ms(max_timestamp, now_ms),
            batch_size=size,
            last_offset=last_offset,
        )

    def _adopt_active(self, segment: Segment) -> None:
        self.active = segment
        self.log_end_offset = segment.next_offset
        self.directory_dirty = True
        self.update_config(self._config)

    # --- methods that read batches, and methods that return files to sync ---------------------------------------------

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, min_one_batch: bool, may_copy: bool = True
    ) -> tuple[memoryview, int]:
        """Return complete batches of one segment, beginning with the batch that contains `offset`, which must be inside
        the log. The result also has the offset after the last batch read.
        """
        return self._reader.read(
            self.from_offset, offset, max_bytes, upper_bound, min_one_batch=min_one_batch, may_copy=may_copy
        )

    def files_to_sync(self, start: int, end: int) -> tuple[list[File], list[str]]:
        """Return (log files with bytes between the offsets, paths of index files), for the caller to sync."""
        logs: list[File] = []
        indexes: list[str] = []
        for segment in self._segments_to_sync(start, end):
            if segment.is_made:
                logs.append(segment.file)
                indexes += segment.paths_to_sync()
        return logs, indexes

    def logs_to_sync(self, start: int) -> list[File]:
        """Return the log files with bytes at or above the offset `start`."""
        return [segment.file for segment in self.from_offset(start) if segment.is_made]

    def write_indexes(self, start: int, end: int) -> None:
        """Write the missing entries to the index files of the segments between the offsets."""
        for segment in self._segments_to_sync(start, end):
            segment.persist_indexes()

    def _segments_to_sync(self, start: int, end: int) -> list[Segment]:
        # Begin with the segment before `start`: if a segment was rolled exactly at `start`, the last index entries of
        # the previous segment may not have been synced.
        return [segment for segment in self.from_offset(start - 1) if segment.base_offset <= end]

    # --- methods that delete, truncate or replace segments ------------------------------------------------------------

    def remove_first(self, count: int) -> list[int]:
        """Delete the oldest segments; returns their base offsets. At least one segment must remain."""
        assert count < len(self._row), "a log has at least one segment"
        self._reader.forget_positions()
        self.directory_dirty = True  # set before the change, because other threads read this flag
        gone, self._row = self._row[:count], self._row[count:]
        self._bases = self._bases[count:]
        for segment in gone:
            self._mark_deleted(segment)
        return [segment.base_offset for segment in gone]

    def end_before(self, offset: int) -> int:
        """Return the log end offset that the log would have after `truncate_to(offset)`."""
        return self._row[self._number_of(offset)].end_before(offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains `offset`, and all batches after it, permanently. The newest segment is removed
        first, so that a crash during the truncation leaves no gap.
        """
        self._reader.forget_positions()
        number = self._number_of(offset)
        for segment in reversed(self._row[number + 1 :]):
            self._mark_deleted(segment)
        del self._row[number + 1 :], self._bases[number + 1 :]
        last = self._row[number]
        if not last.offset_index.is_active:
            activate(last)
        last.truncate_to(offset)
        last.file.sync()
        self._loader.sync_directory()
        self._adopt_active(last)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; `offset` becomes the offset of the next record."""
        self._reader.forget_positions()
        for segment in reversed(self._row):
            self._mark_deleted(segment)
        segment = self._loader.create(offset, self._clock.now_ms())
        self._loader.sync_directory()
        self._row, self._bases = [segment], [offset]
        self._adopt_active(segment)

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether all these segments are still in the log, are adjacent, and are closed."""
        number = self._number_of(segments[0].base_offset)
        same = self._row[number : number + len(segments)] == list(segments)
        return same and self.active is not segments[-1]

    def replace(self, old: Sequence[Segment], cleaned: Segment, *, suffix: str) -> None:
        """Replace the segments `old` by the segment `cleaned`. The file names of `cleaned` still have the suffix
        `suffix` at the call; `holds(old)` must be True.
        """
        self._reader.forget_positions()
        number = self._number_of(old[0].base_offset)
        for segment in old:
            # Keep the producer snapshot at the base offset of `cleaned`, because that snapshot is still valid.
            stays = segment.base_offset == cleaned.base_offset
            self._mark_deleted(segment, keep=(PRODUCER_SNAPSHOT_SUFFIX, PRODUCER_WINDOW_SUFFIX) if stays else ())
        cleaned.change_suffix(suffix, "")
        cleaned.next_offset = old[-1].next_offset
        self._row[number : number + len(old)] = [cleaned]
        self._bases[number : number + len(old)] = [cleaned.base_offset]

    def take_marked(self, now: float) -> list[str]:
        """Return the paths of files that were deleted at least `file.delete.delay.ms` ago, for the caller to remove.
        `now` is in monotonic seconds.
        """
        paths: list[str] = []
        while self._marked and self._marked[0][0] <= now:
            paths += self._marked.pop(0)[1]
        return paths

    @property
    def has_marked(self) -> bool:
        """Whether files of deleted segments wait to be freed."""
        return bool(self._marked)

    def close(self) -> None:
        """Close the files without writing anything."""
        for segment in self._row:
            segment.close()

    def _number_of(self, offset: int) -> int:
        """Return the position, in the list of segments, of the segment whose range contains `offset`; 0 if `offset` is
        before the first segment.
        """
        return max(bisect_right(self._bases, offset) - 1, 0)

    def _mark_deleted(self, segment: Segment, *, keep: Collection[str] = ()) -> None:
        logger.info("%s: deleting %d bytes", segment.path, segment.size)
        free_at = self._clock.monotonic() + self._config.file_delete_delay_ms / 1000
        self._marked.append((free_at, segment.mark_deleted(keep=keep)))
        self.directory_dirty = True
        self.on_marked()
