"""What a log consists of: its segments, its leader epochs and its producers. They are opened together and cut together.

No policy and no offsets that were promised: those are `PartitionLog`'s, which also knows what to do about the errors.
Methods raise OSError, and CorruptBatch where they read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from oncelog_broker.log.producers.producers import LogProducers
from oncelog_broker.log.segments.local_log import LocalLog
from oncelog_broker.log.segments.recovery import LastKnown, SegmentLoader, load_epochs, rebuild_epochs
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import Disk

logger = logging.getLogger(__name__)


class LogContent:
    """Invariant: epochs and producers speak of exactly the records that the segments hold."""

    __slots__ = ("epochs", "generation", "local", "producers")

    def __init__(self, local: LocalLog, epochs: LeaderEpochs, producers: LogProducers) -> None:
        """Internal: use `open`."""
        self.local = local
        self.epochs = epochs
        self.producers = producers
        self.generation = 0
        """Grows with each truncation: what was learned of the content before says nothing after it."""
        local.on_roll = producers.take_snapshot

    @classmethod
    def open(
        cls, disk: Disk, directory: str, *, name: str, config: LogConfig, clock: Clock, known: LastKnown
    ) -> LogContent:
        """Open what is in `directory`, or make it. Raises LogCorrupt too; no file stays open then."""
        disk.make_directories(directory)
        loader = SegmentLoader(disk, directory, config.index_interval_bytes, clock.now_ms())
        epochs, epochs_lost = load_epochs(disk, os.path.join(directory, LEADER_EPOCH_FILE))
        before = epochs.entries
        segments = loader.load(known, epochs)
        try:
            if epochs_lost:
                rebuild_epochs(segments, epochs)
            local = LocalLog(loader, segments, name=name, config=config, clock=clock)
            content = cls(local, epochs, LogProducers(disk, directory, config))
            content._agree(known.log_start_offset)
            if epochs.entries != before or epochs_lost:
                epochs.flush()
        except BaseException:
            for segment in segments:
                segment.close()
            raise
        return content

    def _agree(self, log_start_offset: int) -> None:
        """Make epochs and producers those of the segments, just after these were opened."""
        local = self.local
        if log_start_offset > local.log_end_offset:
            logger.warning("%s: ends at %d, below its start; emptied", local.first.path, local.log_end_offset)
            self.truncate_fully_and_start_at(log_start_offset)
        self.producers.load(local.segments, local.log_end_offset)
        self.epochs.truncate_from_end(local.log_end_offset)
        self.epochs.truncate_from_start(max(log_start_offset, local.first.base_offset))

    # --- at the front --------------------------------------------------------------------------------------------

    def remove_first(self, count: int) -> list[int]:
        """Let go of the oldest segments; returns their base offsets. The epochs follow when the log start is moved."""
        gone = self.local.remove_first(count)
        self.producers.forget_below(self.local.first.base_offset)
        return gone

    # --- in the middle -------------------------------------------------------------------------------------------

    def replace(self, old: Sequence[Segment], cleaned: Segment, *, suffix: str) -> None:
        """Put a compacted segment in the place of those that it was made from: nothing aborted is left in it."""
        self.local.replace(old, cleaned, suffix=suffix)
        self.producers.aborted.forget(segment.base_offset for segment in old)

    # --- at the end ----------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains `offset` and all after it."""
        self.generation += 1
        self.local.truncate_to(offset)
        self.epochs.truncate_from_end(self.local.log_end_offset)
        self.producers.truncate_to(self.local.segments, self.local.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the next record may have `offset`."""
        self.generation += 1
        self.local.truncate_fully_and_start_at(offset)
        self.epochs.clear()
        self.producers.truncate_fully()
