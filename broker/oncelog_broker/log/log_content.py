"""The content of a log: its segments, leader epochs and producer state, which are opened and truncated together.

This module only changes files. `LogState`, and the modules that use `LogState`, decide when files change, protect the
recovery point and the log start, and handle errors. Methods raise OSError; methods that read also raise CorruptBatch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from oncelog_broker.log.closed_log import (
    MAX_ACTIVE_BYTES,
    MAX_PRODUCERS,
    MAX_SEGMENTS,
    ClosedLog,
    ClosedSegment,
    Growth,
)
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from oncelog_broker.log.new_directory import NewDirectory
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.producers.producers import LogProducers
from oncelog_broker.log.segments.local_log import LocalLog
from oncelog_broker.log.segments.recovery import LastKnown, SegmentLoader, add_missing_epochs, load_epochs
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import Disk

logger = logging.getLogger(__name__)


class LogContent:
    """The files of one log. Invariant: leader epochs and producer state describe exactly the records in the
    segments.
    """

    __slots__ = ("epochs", "generation", "local", "producers", "was_cut")

    def __init__(self, local: LocalLog, epochs: LeaderEpochs, producers: LogProducers) -> None:
        """The constructor is internal: call `open` instead."""
        self.local = local
        self.epochs = epochs
        self.producers = producers
        self.generation = 0
        """A number that increases with each truncation. If the generation has changed since a caller read facts about
        the content, these facts are no longer valid.
        """
        self.was_cut = False
        """Whether the recovery at the opening has removed an incomplete or damaged end of the log."""
        local.on_roll = producers.take_snapshot

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        name: str,
        config: LogConfig,
        clock: Clock,
        known: LastKnown,
        new_directory: NewDirectory | None = None,
    ) -> LogContent:
        """Open the files in `directory`. If the directory does not exist, create it, and let `new_directory` write the
        first files. Raises LogCorrupt, in addition to the errors of all methods; after an error no file stays open.
        """
        loader = SegmentLoader(disk, directory, config.index_interval_bytes, clock.now_ms())
        if disk.make_directories(directory) and known.recovery_point <= known.log_start_offset:
            if new_directory is not None:
                new_directory.begin()
            return cls._make(loader, name=name, config=config, clock=clock, start_offset=known.log_start_offset)
        epochs, epochs_lost = load_epochs(disk, os.path.join(directory, LEADER_EPOCH_FILE))
        before = epochs.entries
        segments = loader.load(known, epochs)
        try:
            if epochs_lost or not known.clean_shutdown:
                add_missing_epochs(segments, epochs, known.log_start_offset)
            local = LocalLog(loader, segments, name=name, config=config, clock=clock)
            content = cls(local, epochs, LogProducers(disk, directory, config))
            content.was_cut = bool(loader.cut)
            content._agree(known)
            if epochs.entries != before or epochs_lost:
                epochs.flush()
        except BaseException:
            for segment in segments:
                segment.close()
            raise
        return content

    @classmethod
    def reopen(
        cls,
        disk: Disk,
        directory: str,
        *,
        name: str,
        config: LogConfig,
        clock: Clock,
        closed: ClosedLog,
        growth: Growth | None = None,
    ) -> LogContent:
        """Create the content of a cleanly closed log without reading its files. `growth`: the records that were
        appended since the log was closed; None if there are none.
        """
        loader = SegmentLoader(disk, directory, config.index_interval_bytes, clock.now_ms())
        local = LocalLog(loader, loader.reopen(closed, growth), name=name, config=config, clock=clock)
        entries = closed.epochs if growth is None else growth.epochs
        epochs = LeaderEpochs(disk, os.path.join(directory, LEADER_EPOCH_FILE), list(entries))
        producers = LogProducers(disk, directory, config)
        producers.reopen_at(closed.log_end_offset, closed.producers)
        if growth is not None:
            producers.grow(growth.producer_headers)
        return cls(local, epochs, producers)

    def closed_log(self, log_start_offset: int) -> ClosedLog | None:
        """Return the state of the closed log; None if the state or the active segment is too large, or if the log has
        aborted transactions, whose index files must be read.
        """
        segments, producers = self.local.segments, self.producers.state
        if self.producers.aborted or len(segments) > MAX_SEGMENTS or len(producers) > MAX_PRODUCERS:
            return None
        if self.local.active.size > MAX_ACTIVE_BYTES:
            return None
        return ClosedLog(
            log_start_offset,
            self.local.log_end_offset,
            tuple(ClosedSegment(each.base_offset, each.size, each.is_made) for each in segments),
            self.epochs.entries,
            tuple(producers.image()),
        )

    @classmethod
    def _make(
        cls, loader: SegmentLoader, *, name: str, config: LogConfig, clock: Clock, start_offset: int
    ) -> LogContent:
        """Create the content of a log in a directory that was just created, and therefore has no files to read."""
        segment = loader.create_first(start_offset)
        local = LocalLog(loader, [segment], name=name, config=config, clock=clock)
        epochs = LeaderEpochs(loader.disk, os.path.join(loader.directory, LEADER_EPOCH_FILE), [])
        producers = LogProducers(loader.disk, loader.directory, config)
        producers.begin_at(start_offset)
        return cls(local, epochs, producers)

    def _agree(self, known: LastKnown) -> None:
        """Make leader epochs and producer state agree with the segments, immediately after the segments were opened."""
        local, log_start_offset = self.local, known.log_start_offset
        # Compaction removes only records of committed or aborted transactions, so no transaction that began in the
        # compacted part is open. If the newest producer snapshot is damaged, however, an older snapshot is used. The
        # older snapshot may list a transaction as open although the marker of the transaction was removed by
        # compaction.
        compacted_up_to = min(known.compacted_up_to or 0, local.log_end_offset)
        # If an earlier startup was killed while it emptied the log (with the code below), it has left a producer
        # snapshot at the log start.
        snapshots_up_to = max(local.log_end_offset, log_start_offset)
        self.producers.load(
            local.segments, snapshots_up_to, decided_up_to=compacted_up_to, high_watermark=known.high_watermark
        )
        if log_start_offset > local.log_end_offset:
            logger.warning("%s: ends at %d, below its start; emptied", local.first.path, local.log_end_offset)
            self.producers.move_on_to(log_start_offset)
            self.local.truncate_fully_and_start_at(log_start_offset)
            self.epochs.clear()
        self.epochs.truncate_from_end(local.log_end_offset)
        self.epochs.truncate_from_start(max(log_start_offset, local.first.base_offset))

    # --- methods that delete the oldest segments ----------------------------------------------------------------------

    def removable(self, count: int) -> int:
        """Return how many of the `count` oldest segments may be deleted now. A segment may be deleted when a producer
        snapshot at or after its end is on the disk, because that snapshot has the producer state of the segment. The
        next flush deletes the other segments.
        """
        saved_up_to = self.producers.saved_up_to
        return sum(1 for segment in self.local.segments[:count] if segment.next_offset <= saved_up_to)

    def remove_first(self, count: int) -> list[int]:
        """Delete the oldest segments; returns their base offsets. The leader epochs are removed later, when the log
        start moves.
        """
        gone = self.local.remove_first(count)
        self.producers.forget_below(self.local.first.base_offset)
        return gone

    # --- methods that replace segments by compacted segments ----------------------------------------------------------

    def replace(
        self, old: Sequence[Segment], cleaned: Segment, aborted: Sequence[EndedTransaction], *, suffix: str
    ) -> None:
        """Replace the segments `old` by the compacted segment `cleaned`. `aborted` has the entries for the transaction
        index of `cleaned`.
        """
        self.local.replace(old, cleaned, suffix=suffix)
        bases = [segment.base_offset for segment in old]
        self.producers.aborted.replace(bases, cleaned.base_offset, aborted)

    # --- methods that remove the newest records -----------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains `offset`, and all batches after it."""
        self.generation += 1
        self.local.truncate_to(offset)
        self.epochs.truncate_from_end(self.local.log_end_offset)
        self.producers.truncate_to(self.local.segments, self.local.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; `offset` becomes the offset of the next record."""
        self.generation += 1
        self.local.truncate_fully_and_start_at(offset)
        self.epochs.clear()
        self.producers.truncate_fully()
