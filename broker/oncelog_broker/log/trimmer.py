"""Removing records from a log: at its front (retention, DeleteRecords), in the middle (compaction), at its end.

A follower truncates the end of its log: it gives up the records that its leader does not have. Truncation waits for the
disk, and may replay a segment's worth of producers, so it runs in a worker thread. Its caller sets
`LogState.is_truncating` meanwhile, and no other task, background maintenance included, may change the log until the
flag is cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncelog_broker.log.log_content import LogContent
from oncelog_broker.log.log_state import LogState
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.segments.retention import SegmentFacts, deletable_segments
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.runtime.disk import is_out_of_space
from oncelog_protocol.records.batch import CorruptBatch


class LogTrimmer:
    """Shortens one log. Not thread-safe. Methods raise KafkaError only, with the codes that they name."""

    __slots__ = ("_content", "_local", "_state", "after_truncation", "before_truncation")

    def __init__(self, content: LogContent, state: LogState) -> None:
        self._content = content
        self._local = content.local
        self._state = state
        self.before_truncation: Callable[[LogState], None] | None = None
        """Called after `recovery_point` or `cleaner_checkpoint` went back, before any byte is cut. Lowers the offsets
        in the checkpoint files: after a crash, a log that ends below its checkpointed recovery point counts as damaged,
        and offsets below the cleaner checkpoint count as compacted. May raise OSError."""
        self.after_truncation: Callable[[LogState], None] | None = None
        """Called after the log start went back below a start that may be checkpointed, before anything is appended.
        Lowers it in the checkpoint file: after a crash, a log that ends before its start is emptied. May raise
        OSError."""

    # --- rolling ---------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Close the active segment and begin a new one, so that the closed one can be deleted or compacted.

        Nothing happens if the active segment is empty. Raises KAFKA_STORAGE_ERROR.
        """
        self._state.check_online()
        end = self._local.log_end_offset
        try:
            self._local.roll()
        except OSError as error:
            raise self._state.append_failed(error, end_before=end, end=self._local.log_end_offset) from error

    # --- at the front ----------------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Move the log start up to `offset` (DeleteRecords); returns the log start now.

        Segments wholly below it are deleted, at the latest with the next flush. Until the log start is checkpointed, a
        crash brings back the records that the files still contain. Raises OFFSET_OUT_OF_RANGE beyond the log's end,
        KAFKA_STORAGE_ERROR.
        """
        state = self._state
        state.check_online()
        if offset > self._local.log_end_offset:
            raise state.out_of_range(offset, self._local.log_end_offset)
        if offset > state.log_start_offset:
            self._advance_log_start(offset)
            self.delete_below_start()
        return state.log_start_offset

    def apply_retention(self, now_ms: int, *, upper_bound: int | None = None) -> list[int]:
        """Delete old segments by time, size and log start; returns their base offsets.

        Segments that only a flush can set free stay until then: see `LogFlusher.is_flush_due`.
        `upper_bound` is the high watermark, by default the log's end: nothing beyond it is deleted.
        Raises KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        state = self._state
        state.check_online()
        bound = self._local.log_end_offset if upper_bound is None else upper_bound
        try:
            facts = [
                SegmentFacts(s.base_offset, s.next_offset, s.size, s.retention_timestamp_ms())
                for s in self._local.segments
            ]
        except (OSError, CorruptBatch) as error:
            raise state.read_error(error) from error
        count = deletable_segments(
            facts, state.config, now_ms=now_ms, log_start_offset=state.log_start_offset, upper_bound=bound
        )
        if count == len(facts):
            self.roll()
        return self._delete_first(count)

    def delete_below_start(self) -> None:
        """Delete the segments wholly below the log start, as far as they may go now. Raises KAFKA_STORAGE_ERROR."""
        start = self._state.log_start_offset
        self._delete_first(sum(1 for segment in self._local.segments[:-1] if segment.next_offset <= start))

    def take_deleted(self, now: float) -> list[str]:
        """Paths of the files of segments deleted `file.delete.delay.ms` ago, for the caller to remove. `now`:
        monotonic seconds."""
        return self._local.take_marked(now)

    def _delete_first(self, count: int) -> list[int]:
        """Delete the oldest `count` segments, or as many of them as may be deleted now; returns their base offsets."""
        count = self._content.removable(count)
        if count == 0:
            return []
        try:
            gone = self._content.remove_first(count)
        except OSError as error:
            raise self._state.fail("delete segments of", error) from error
        self._advance_log_start(self._local.first.base_offset)
        return gone

    def _advance_log_start(self, offset: int) -> None:
        if offset > self._state.log_start_offset:
            self._state.log_start_offset = offset
            try:
                self._content.epochs.truncate_from_start(offset)
            except OSError as error:
                if not is_out_of_space(error):  # the next read of the file drops the entries that it has too many
                    raise self._state.fail("write the leader epochs of", error) from error

    # --- in the middle (compaction) --------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Grows with each truncation: facts about the content from an earlier generation no longer hold."""
        return self._content.generation

    @property
    def closed_segments(self) -> list[Segment]:
        """All segments but the active one. Only truncation changes them; they may leave the log at any time."""
        return self._local.segments[:-1]

    def replace_segments(
        self,
        old: Sequence[Segment],
        cleaned: Segment,
        aborted: Sequence[EndedTransaction],
        *,
        suffix: str,
        generation: int,
    ) -> bool:
        """Put `cleaned`, complete and synced under names with `suffix`, in the place of the neighbours `old`.

        `cleaned` holds no record that `old` does not hold. `aborted` is for its transaction index: at least every
        aborted transaction of `old` of which `cleaned` still has records.
        Returns False, and changes nothing, if the log is offline, is being truncated, is no longer at `generation`, or
        has deleted one of `old`. Raises KAFKA_STORAGE_ERROR: the replacement is half done, so `cleaned` may be the only
        copy of its records, and the next start completes it.
        """
        state = self._state
        if not state.may_be_changed or generation != self.generation or not self._local.holds(old):
            return False
        try:
            self._content.replace(old, cleaned, aborted, suffix=suffix)
        except OSError as error:
            raise state.fail("replace compacted segments of", error) from error
        return True

    # --- at the end (a follower truncates) -------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove the record at `offset` and all after it, the whole batch that contains it included.

        The log end offset is then the end of the last remaining batch, perhaps below `offset`; the log start is lowered
        with it if needed. Views from `LogReader.read` of removed records must not be accessed. Raises
        KAFKA_STORAGE_ERROR.

        Where no record is removed, a leader epoch without records may be: one in which this broker led, and the disk
        took no record. A leader that does not know that epoch would ask for the truncation again and again.
        """
        state, local = self._state, self._local
        state.check_online()
        if offset >= local.log_end_offset:
            try:
                self._content.epochs.truncate_from_end(local.log_end_offset)
            except OSError as error:
                raise state.fail("write the leader epochs of", error) from error
            return
        if offset <= state.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            self._lower_checkpoints(local.end_before(offset))
            self._content.truncate_to(offset)
            self._begin_at(min(state.log_start_offset, local.log_end_offset))
        except (OSError, CorruptBatch) as error:
            raise state.fail("truncate", error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove every record; log start and log end are then `offset`. Raises KAFKA_STORAGE_ERROR."""
        state = self._state
        state.check_online()
        try:
            self._lower_checkpoints(0)  # even if no record is removed, a leader epoch without records may be
            self._content.truncate_fully_and_start_at(offset)
            state.recovery_point = offset
            self._begin_at(offset)
        except OSError as error:
            raise state.fail("truncate", error) from error

    def _begin_at(self, offset: int) -> None:
        """Set the log start after a truncation. Raises OSError."""
        state = self._state
        before, state.log_start_offset = state.log_start_offset, offset
        state.note_names_from(offset)
        # Compare with `before` too, though it may not be checkpointed: another thread may be writing it to the
        # checkpoint file at this moment, and notes that only afterwards.
        if offset < max(before, state.checkpointed_start):
            if self.after_truncation is not None:
                self.after_truncation(state)
            state.checkpointed_start = min(state.checkpointed_start, offset)

    def _lower_checkpoints(self, offset: int) -> None:
        """Lower recovery point and cleaner checkpoint to `offset`, in memory and on disk. Raises OSError."""
        state = self._state
        was_compacted = state.cleaner_checkpoint is not None and offset < state.cleaner_checkpoint
        if was_compacted:
            state.cleaner_checkpoint = offset
        if offset < state.recovery_point or was_compacted:
            state.recovery_point = min(offset, state.recovery_point)
            if self.before_truncation is not None:
                self.before_truncation(state)
