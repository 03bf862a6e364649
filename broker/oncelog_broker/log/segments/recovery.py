"""Log recovery: opens the segments of a log after a clean shutdown or a crash.

After a clean shutdown no batch is verified. After a crash, everything at or above the recovery point is suspect:
complete batches are read and verified, and indexes and leader epochs are rebuilt from these batches. An invalid batch
at or above the recovery point is the torn end of an unsynced write: the log is truncated before it. An invalid batch
*below* the recovery point had been synced, so it is corruption, and truncating the log would lose acknowledged records:
`LogCorrupt` is raised and nothing on the disk is changed. `LogCorrupt` is also raised for closed segments that lost
records; `lost_segments` lists the losses that are detected.

Above the recovery point, each segment begins where the previous segment ends. Only compaction creates gaps, and
compaction first waits for a flush, which moves the recovery point. A gap above the recovery point therefore means that
the end of a segment did not reach the disk, although the next segment did. Recovery then truncates the log before the
gap. The rule that such a gap means lost records has two exceptions. The first exception is a log that Kafka has
written, because Kafka may have compacted the log above its recovery point. The second exception is a follower, which
copies the gaps of its leader. If index entries can express the offsets after the gap, the gap is inside one segment. At
a larger gap, the follower syncs the log before it creates the next segment, so that the segment before the gap cannot
lose its end.

A truncation is synced immediately, because otherwise a power cut could bring removed batches back after new batches
were appended.

Kafka's counterpart is LogLoader.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Final

from oncelog_broker.log.checkpoints import CheckpointCorrupt
from oncelog_broker.log.closed_log import ClosedLog, Growth
from oncelog_broker.log.leader_epochs import LeaderEpochs
from oncelog_broker.log.segments.batch_scan import scan_batches, scan_headers
from oncelog_broker.log.segments.index import IndexCorrupt
from oncelog_broker.log.segments.lost_segments import (
    LogCorrupt,
    check_closed,
    check_removed,
    log_file_base,
    was_emptied,
)
from oncelog_broker.log.segments.roll import MAX_RELATIVE_OFFSET
from oncelog_broker.log.segments.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
)
from oncelog_broker.runtime.disk import TEMPORARY_SUFFIX, Disk
from oncelog_protocol.light_classes import dataclass
from oncelog_protocol.records.batch import NO_PARTITION_LEADER_EPOCH, CorruptBatch, RecordBatch

logger = logging.getLogger(__name__)

CUT_FILE: Final = "oncelog.cut-log"
"""A file in the data directory that names a log from whose end recovery has removed incomplete or damaged records. The
file exists until this broker has registered as unsure of its logs.
"""
CLEANED_SUFFIX: Final = ".cleaned"
"""Suffix of the files of a compacted segment that is still being written."""
SWAP_SUFFIX: Final = ".swap"
"""Suffix of the files of a compacted segment that is complete and about to replace the old segments."""
DISCARDED_SUFFIX: Final = ".discarded"
"""Suffix of a segment that recovery removed because it follows a torn segment. No code reads such a segment; it is kept
for the operator.
"""
UNFINISHED_SUFFIXES: Final = (DELETED_SUFFIX, DISCARDED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)
"""Suffixes of files that an interrupted deletion, compaction, recovery or write has left."""


@dataclass(frozen=True, slots=True)
class LastKnown:
    """What the checkpoints and the clean-shutdown mark of a data directory tell about one log."""

    recovery_point: int
    log_start_offset: int
    clean_shutdown: bool
    compacted_up_to: int | None
    """The cleaner checkpoint; None if no compaction was ever started."""
    high_watermark: int
    """The high watermark with which the replica will start: markers at or above this offset may not be replicated."""

    @property
    def was_compacted(self) -> bool:
        """Whether the log may have empty segments, because the log was compacted."""
        return self.compacted_up_to is not None

    @property
    def holes_are_losses(self) -> bool:
        """Whether each gap above the recovery point means lost records, because this log cannot have been compacted
        above its recovery point.
        """
        return self.compacted_up_to is None or self.compacted_up_to <= self.recovery_point

    @property
    def synced_up_to(self) -> float:
        return math.inf if self.clean_shutdown else self.recovery_point


@dataclass(frozen=True, slots=True)
class SegmentLoader:
    """Opens the segments of one log. Every method may raise OSError."""

    disk: Disk
    directory: str
    index_interval_bytes: int
    now_ms: int
    cut: list[str] = field(default_factory=list)
    """The paths of the segments whose ends `load` has removed because they were incomplete or damaged."""

    def load(self, known: LastKnown, epochs: LeaderEpochs) -> list[Segment]:
        """Return the log's segments in order; the list has at least one segment, and the last segment is active. Raises
        LogCorrupt.

        Adds the leader epochs of the verified batches to `epochs`, without writing the file of leader epochs.
        """
        names = finish_interrupted_work(self.disk, self.directory)
        segments = self._open_all(names)
        try:
            return self._recovered(segments, names, known, epochs)
        except BaseException:
            for segment in segments:
                segment.close()
            raise

    def reopen(self, closed: ClosedLog, growth: Growth | None = None) -> list[Segment]:
        """Return the segments of a cleanly closed log without accessing its files. `growth`: the records that were
        appended since. The last segment is dormant: its indexes are read at the first append (`LocalLog.wake`).
        """
        segments = []
        ends = [*(each.base_offset for each in closed.segments[1:]), closed.log_end_offset]
        for each, next_offset in zip(closed.segments, ends, strict=True):
            if each.is_made:
                segment = self._segment(each.base_offset)
                segment.size, segment.next_offset = each.size, next_offset
            else:
                segment = self.create(each.base_offset, self.now_ms, is_made_later=True)
            segments.append(segment)
        if growth is not None:
            segments[-1].grow(growth)
        return segments

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self.disk,
            self.directory,
            base_offset,
            index_interval_bytes=self.index_interval_bytes,
            now_ms=self.now_ms,
        )

    def _recovered(
        self, segments: list[Segment], names: Sequence[str], known: LastKnown, epochs: LeaderEpochs
    ) -> list[Segment]:
        recovery_point = known.recovery_point
        if not segments and recovery_point > known.log_start_offset:
            raise self._records_gone(known.log_start_offset, recovery_point)
        try:
            self._remove_orphaned_indexes(segments, names, known)
            if not segments:
                return [self.create_first(known.log_start_offset)]
            segments = self._activate_last(segments, names, known, epochs)
        except CorruptBatch as error:
            raise LogCorrupt(f"{self.directory}: {error}, below the recovery point {recovery_point}") from error
        if segments[-1].next_offset < recovery_point and recovery_point > known.log_start_offset:
            raise self._records_gone(segments[-1].next_offset, recovery_point)
        return segments

    def _records_gone(self, end: int, recovery_point: int) -> LogCorrupt:
        return LogCorrupt(
            f"{self.directory}: the log ends at offset {end}, but was synced up to the recovery point "
            f"{recovery_point}: records are lost. If the partition has other replicas, have one of them lead first "
            "(oncelog leaders elect): if this one leads, the others are truncated to its end. Then, or if this is "
            "the only replica, accept the loss: stop the broker, remove the partition's line from "
            "recovery-point-offset-checkpoint (its second line counts them), and start it"
        )

    def create_first(self, base_offset: int) -> Segment:
        """Create the only segment of a new log.

        The log file is created with the first record, so that a new partition needs two files instead of three. If the
        log does not start at 0, the log file is created now, because its name may
        be the only record of the log start.
        """
        return self.create(base_offset, self.now_ms, is_made_later=base_offset == 0)

    def create(self, base_offset: int, now_ms: int, *, is_made_later: bool = False) -> Segment:
        return Segment.create(
            self.disk,
            self.directory,
            base_offset,
            index_interval_bytes=self.index_interval_bytes,
            now_ms=now_ms,
            is_made_later=is_made_later,
        )

    def sync_directory(self) -> None:
        self.disk.sync_directory(self.directory)

    def _open_all(self, names: Sequence[str]) -> list[Segment]:
        bases = sorted(base for name in names if (base := log_file_base(name)) is not None)
        return [
            Segment.open(
                self.disk,
                self.directory,
                base,
                index_interval_bytes=self.index_interval_bytes,
                next_offset=next_base,
                now_ms=self.now_ms,
            )
            for base, next_base in zip(bases, [*bases[1:], *bases[-1:]], strict=True)
        ]

    def _remove_orphaned_indexes(self, segments: Sequence[Segment], names: Sequence[str], known: LastKnown) -> None:
        start, synced_up_to = known.log_start_offset, known.synced_up_to
        for path in check_removed(
            self.disk, self.directory, names, segments, log_start_offset=start, synced_up_to=synced_up_to
        ):
            logger.warning("%s: index removed, since it has no log file", path)
            self.disk.remove(path)

    def _activate_last(
        self, segments: list[Segment], names: Sequence[str], known: LastKnown, epochs: LeaderEpochs
    ) -> list[Segment]:
        first = len(segments) - 1
        while first > 0 and segments[first].base_offset > known.synced_up_to:
            first -= 1
        for segment in segments[:first]:
            if segment.next_offset > known.log_start_offset:
                check_closed(segment, was_compacted=known.was_compacted)
        self._rebuild_missing_indexes(segments[:first], names)
        if known.clean_shutdown:
            try:
                activate(segments[-1])
            except CorruptBatch as error:
                logger.warning("%s: not in the state of a clean shutdown, verifying it: %s", self.directory, error)
            else:
                return segments
        return self._verify(segments, first, known, epochs)

    def _rebuild_missing_indexes(self, segments: Sequence[Segment], names: Collection[str]) -> None:
        names = set(names)
        for segment in segments:
            prefix = os.path.basename(segment.path).removesuffix(LOG_SUFFIX)
            if prefix + OFFSET_INDEX_SUFFIX not in names or prefix + TIME_INDEX_SUFFIX not in names:
                logger.warning("%s: an index is missing and is rebuilt", segment.path)
                segment.rebuild_indexes()

    def _verify(self, segments: list[Segment], first: int, known: LastKnown, epochs: LeaderEpochs) -> list[Segment]:
        """Verify the log from the recovery point on; `segments[first]` contains the recovery point. Returns the
        segments that remain after truncation.
        """
        recovery_point, was_compacted = known.recovery_point, known.was_compacted
        epochs.truncate_from_end(recovery_point, persist=False)
        expected = segments[first].base_offset
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset < expected:
                raise LogCorrupt(f"{segment.path}: begins before the end of the segment before it, at {expected}")
            is_last = number == len(segments) - 1
            if not is_last and segment.base_offset < recovery_point:
                check_closed(segment, was_compacted=was_compacted, synced_up_to=recovery_point)
            try:
                if not is_last and segment.size == 0 and was_emptied(segment, was_compacted=was_compacted):
                    segment.start_empty()
                    raise CorruptBatch("the segment is empty, although another segment follows")
                self._verify_segment(segment, recovery_point, epochs)
            except CorruptBatch as fault:
                if segment.next_offset < recovery_point:
                    raise LogCorrupt(f"{segment.path}: {fault}, below the recovery point {recovery_point}") from fault
                self._cut(segment, fault)
                self._discard(segments[number + 1 :])
                return segments[: number + 1]
            if not is_last:
                expected, following = segment.next_offset, segments[number + 1]
                is_loss = known.holes_are_losses and following.base_offset > max(expected, recovery_point)
                if is_loss and not _is_out_of_reach(following, expected):
                    self._discard(segments[number + 1 :])
                    return segments[: number + 1]
                segment.seal()
                segment.next_offset = following.base_offset
        return segments

    def _verify_segment(self, segment: Segment, recovery_point: int, epochs: LeaderEpochs) -> None:
        """Call `note_batch` for every valid batch of the segment, up to the first invalid batch. Raises
        CorruptBatch."""
        start = 0
        if segment.base_offset < recovery_point:
            start = segment.start_verified(recovery_point)
        else:
            segment.start_empty()
        for position, batch in scan_batches(segment.file, start, segment.size):
            check_offsets(batch, segment.base_offset, segment.next_offset)
            segment.note_batch(position, batch.size, batch.last_offset, batch.max_timestamp)
            if batch.base_offset >= recovery_point and batch.partition_leader_epoch > NO_PARTITION_LEADER_EPOCH:
                epochs.assign(batch.partition_leader_epoch, batch.base_offset, persist=False)

    def _cut(self, segment: Segment, fault: CorruptBatch) -> None:
        end = segment.noted_size
        logger.warning(
            "%s: truncated to %d bytes, %d bytes removed, the log now ends at offset %d: %s",
            segment.path,
            end,
            segment.size - end,
            segment.next_offset,
            fault,
        )
        self._note_cut(segment)
        segment.cut(end, segment.next_offset)
        segment.file.sync()

    def _note_cut(self, segment: Segment) -> None:
        """Note in the data directory, before the first byte is removed, that a log may lack records. A start that ends
        before it has told the cluster so would otherwise leave logs that look whole.
        """
        if not self.cut:
            self.disk.replace_file(os.path.join(os.path.dirname(self.directory), CUT_FILE), segment.path.encode())
        self.cut.append(segment.path)

    def _discard(self, segments: Sequence[Segment]) -> None:
        for segment in reversed(segments):
            self._note_cut(segment)
            logger.warning(
                "%s: %d bytes come after the end of the log; kept as %s, which the broker never reads",
                segment.path,
                segment.size,
                segment.path + DISCARDED_SUFFIX,
            )
            segment.close()
            self.disk.rename(segment.path, segment.path + DISCARDED_SUFFIX)
            segment.remove_side_files()
        self.disk.sync_directory(self.directory)


def check_offsets(batch: RecordBatch, segment_base: int, next_offset: int) -> None:
    """Check the offsets of a batch. `segment_base`: the base offset of its segment. `next_offset`: the offset after the
    batch before. Raises CorruptBatch.
    """
    if batch.base_offset < next_offset or batch.last_offset < batch.base_offset:
        raise CorruptBatch(f"offsets {batch.base_offset} to {batch.last_offset} after {next_offset - 1}")
    if batch.last_offset - segment_base > MAX_RELATIVE_OFFSET:
        raise CorruptBatch(f"offset {batch.last_offset} is too far from the segment's base offset")


def _is_out_of_reach(segment: Segment, end: int) -> bool:
    """Whether the first batch of `segment` is so far above `end` that no segment with base offset `end` could contain
    it.
    """
    with suppress(CorruptBatch):  # `_verify_segment` checks the content of this segment later
        for first in scan_headers(segment.file, 0, segment.size):
            return first.last_offset - end > MAX_RELATIVE_OFFSET
    return False


def activate(segment: Segment) -> None:
    """Make `segment` the active segment of the log, and rebuild its indexes if they are damaged. Raises CorruptBatch,
    OSError.
    """
    try:
        segment.activate()
    except IndexCorrupt as error:
        logger.warning("%s: rebuilding the indexes: %s", segment.path, error)
        segment.activate_from_log()


def load_epochs(disk: Disk, path: str) -> tuple[LeaderEpochs, bool]:
    """Return (the leader epochs in the file, whether they must be rebuilt because the file is corrupt). Raises
    OSError.
    """
    try:
        return LeaderEpochs.load(disk, path), False
    except CheckpointCorrupt as error:
        logger.warning("rebuilding the leader epochs from the batches: %s", error)
        return LeaderEpochs(disk, path, []), True


def add_missing_epochs(segments: Sequence[Segment], epochs: LeaderEpochs, log_start_offset: int) -> None:
    """Add the leader epochs of the readable batches before the first known epoch, from the batch headers. Raises
    CorruptBatch, OSError.

    These epochs are missing if the leader epoch file is damaged. They are also missing if a crash makes deleted records
    readable again (`LogTrimmer.delete_records_before`), because the file lost the epochs of these records when the log
    start rose.
    """
    known = epochs.entries
    end = known[0].start_offset if known else segments[-1].next_offset
    if end <= log_start_offset:
        return
    for segment in segments:
        if segment.base_offset >= end:
            break
        for batch in scan_headers(segment.file, 0, segment.size):
            if batch.base_offset >= end:
                break
            if batch.leader_epoch > NO_PARTITION_LEADER_EPOCH:
                epochs.assign(batch.leader_epoch, batch.base_offset, persist=False)
    for epoch, start_offset in known:  # the calls above have removed these entries
        epochs.assign(epoch, start_offset, persist=False)


def finish_interrupted_work(disk: Disk, directory: str) -> list[str]:
    """Finish interrupted deletions, and interrupted compactions whose new segments are complete. Files of other
    programs are not changed. Returns the names in the directory afterwards, sorted.
    """
    names = disk.list_directory(directory)
    if not any(name.endswith(UNFINISHED_SUFFIXES) for name in names):
        return names
    if any(name.endswith((DELETED_SUFFIX, DISCARDED_SUFFIX)) for name in names):
        # If the previous process was killed, the renames to these suffixes may not be synced. Sync the renames now,
        # because otherwise a power cut could bring the old names back after the log has continued without these files.
        disk.sync_directory(directory)
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    for name in names:
        log_name = name.removesuffix(DELETED_SUFFIX)
        if log_name != name and log_name not in names and log_file_base(log_name) is not None:
            _remove_indexes(disk, directory, log_name)
    # Segments of one compaction are renamed from .cleaned to .swap from the last to the first. A .swap segment above a
    # .cleaned segment therefore belongs to the same compaction, which is incomplete. Remove the .swap segment first,
    # because without the .cleaned segment, the .swap segment would seem to be a complete compaction.
    first_cleaned = min((base for name in cleaned if (base := _base_of(name)) is not None), default=None)
    if first_cleaned is not None:
        for name in list(swaps):
            base = _base_of(name)
            if base is not None and base >= first_cleaned:
                disk.remove(os.path.join(directory, name))
                swaps.remove(name)
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            disk.remove(os.path.join(directory, name))
    if swaps:
        _finish_swaps(disk, directory, swaps)
    return disk.list_directory(directory)


def _remove_indexes(disk: Disk, directory: str, log_name: str) -> None:
    """Remove the indexes before the log file: an index without a log file counts as a loss (`lost_segments`)."""
    for suffix in INDEX_SUFFIXES:
        disk.remove(os.path.join(directory, log_name.removesuffix(LOG_SUFFIX) + suffix))


def _base_of(name: str) -> int | None:
    return log_file_base(name.split(".", 1)[0] + LOG_SUFFIX)


def _finish_swaps(disk: Disk, directory: str, swaps: Sequence[str]) -> None:
    """Finish interrupted compactions: replace the old segments by the complete compacted segments (.swap)."""
    names = disk.list_directory(directory)
    for name in swaps:
        path = os.path.join(directory, name)
        final = name.removesuffix(SWAP_SUFFIX)
        base = log_file_base(final)
        if base is not None:
            for suffix in INDEX_SUFFIXES:
                index = final.removesuffix(LOG_SUFFIX) + suffix
                if index + SWAP_SUFFIX not in swaps:
                    disk.remove(os.path.join(directory, index))  # the index of the replaced segment
            next_offset = base
            file = disk.open_briefly(path)
            for batch in scan_headers(file, 0, file.size):
                next_offset = batch.last_offset + 1
            file.close()
            for other in names:
                other_base = log_file_base(other)
                if other_base is not None and base < other_base < next_offset:
                    _remove_indexes(disk, directory, other)
                    disk.remove(os.path.join(directory, other))
        logger.warning("%s: completing the compaction that wrote it", path)
        disk.rename(path, os.path.join(directory, final))
    disk.sync_directory(directory)
