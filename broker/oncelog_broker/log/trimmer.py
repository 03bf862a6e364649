"""Removes records from a log: the oldest records (retention, DeleteRecords), superseded records (compaction), and the
newest records (truncation).

A follower truncates the end of its log: it removes the records that its leader does not have. A truncation waits for
the disk, and may read all batches of a segment to restore the producer state, so it runs in a worker thread. The caller
sets `LogState.is_truncating` during the truncation; no other task, including background maintenance, may change the log
until the flag is cleared.
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
    """Removes records from one log. Not thread-safe. Methods raise only KafkaError, with the codes that their
    docstrings name.
    """

    __slots__ = ("_content", "_local", "_state", "after_truncation", "before_truncation")

    def __init__(self, content: LogContent, state: LogState) -> None:
        self._content = content
        self._local = content.local
        self._state = state
        self.before_truncation: Callable[[LogState], None] | None = None
        """Callback: called after `recovery_point` or `cleaner_checkpoint` was lowered, before any byte is cut. The
        callback must lower these offsets in the checkpoint files. If the offsets were not lowered, the log would count
        as damaged after a crash, because it ends below its checkpointed recovery point, and records below the cleaner
        checkpoint would count as compacted. The callback may raise OSError.
        """
        self.after_truncation: Callable[[LogState], None] | None = None
        """Callback: called after a truncation lowered the log start, before the next append. The callback must lower
        the log start in the checkpoint file, because after a crash, a log that ends below its checkpointed log start
        loses all its records. The callback may raise OSError.
        """

    # --- methods that start a new segment -----------------------------------------------------------------------------

    def roll(self) -> None:
        """Close the active segment and create a new one, so that the closed segment can be deleted or compacted.

        Nothing happens if the active segment is empty. Raises KAFKA_STORAGE_ERROR.
        """
        self._state.check_online()
        end = self._local.log_end_offset
        try:
            self._local.roll()
        except OSError as error:
            raise self._state.append_failed(error, end_before=end, end=self._local.log_end_offset) from error

    # --- methods that delete the oldest records -----------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start to `offset` (DeleteRecords); returns the log start afterwards.

        Segments that are entirely below the log start are deleted, at the latest by the next flush. Until the log start
        is checkpointed, a crash makes deleted records readable again if their files still exist. Raises
        OFFSET_OUT_OF_RANGE for an offset above the log end, KAFKA_STORAGE_ERROR.
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

        Segments whose deletion must wait for a flush are kept until then. `upper_bound` is the high watermark, or by
        default the log end: no segment that extends above `upper_bound` is deleted. Raises KAFKA_STORAGE_ERROR,
        CORRUPT_MESSAGE.
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
        """Delete the segments that are entirely below the log start, except those whose deletion must wait for a flush.
        Raises KAFKA_STORAGE_ERROR.
        """
        start = self._state.log_start_offset
        self._delete_first(sum(1 for segment in self._local.segments[:-1] if segment.next_offset <= start))

    def take_deleted(self, now: float) -> list[str]:
        """Return the paths of files of segments that were deleted at least `file.delete.delay.ms` ago, for the caller
        to remove. `now` is in monotonic seconds.
        """
        return self._local.take_marked(now)

    def _delete_first(self, count: int) -> list[int]:
        """Delete those of the `count` oldest segments that may be deleted now; returns the base offsets of the deleted
        segments.
        """
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
                if not is_out_of_space(error):  # a full disk is harmless: the next startup drops the entries
                    raise self._state.fail("write the leader epochs of", error) from error

    # --- methods that compaction calls --------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """A number that increases with each truncation. If the generation has changed since a caller read facts about
        the log, these facts are no longer valid.
        """
        return self._content.generation

    @property
    def closed_segments(self) -> list[Segment]:
        """All segments except the active one. Only truncation changes the content of these segments; a segment may
        leave the log at any time.
        """
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
        """Replace the adjacent segments `old` by the compacted segment `cleaned`, which is complete and synced under
        file names with `suffix`.

        Every record in `cleaned` must also be in `old`. `aborted` has the entries for the transaction index of
        `cleaned`, at least one for every aborted transaction that still has records in `cleaned`. Returns False, and
        changes nothing, if
        the log is offline, is being truncated or copied, is no longer at `generation`, or has deleted a segment of
        `old`. Raises KAFKA_STORAGE_ERROR if the replacement was interrupted. The caller must then keep `cleaned`, which
        may be the only copy of its records; the next startup completes the replacement.
        """
        state = self._state
        if not state.may_be_changed or state.is_copied or generation != self.generation or not self._local.holds(old):
            return False
        try:
            self._content.replace(old, cleaned, aborted, suffix=suffix)
        except OSError as error:
            raise state.fail("replace compacted segments of", error) from error
        return True

    # --- methods that remove the newest records -----------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove the record at `offset`, all other records of its batch, and all records after it.

        Afterwards the log end offset is the end of the last remaining batch, which may be below `offset`. If the log
        start is above the new log end, it is lowered to the log end. Views of removed records from `LogReader.read`
        must not be accessed afterwards. Raises
        KAFKA_STORAGE_ERROR.

        A truncation may remove a leader epoch without records, even if it removes no record. An epoch without records
        exists if this broker led in that epoch, but its disk refused all appends. If the truncation did not remove that
        epoch, a leader without the epoch would request the same truncation forever.
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
        """Remove every record; log start and log end both become `offset`. Raises KAFKA_STORAGE_ERROR."""
        state = self._state
        state.check_online()
        try:
            self._lower_checkpoints(0)  # lower the checkpoints even if the log has no records
            self._content.truncate_fully_and_start_at(offset)
            state.recovery_point = state.synced_offset = offset
            self._begin_at(offset)
        except OSError as error:
            raise state.fail("truncate", error) from error

    def _begin_at(self, offset: int) -> None:
        """Set the log start after a truncation, and lower it in the checkpoint file if needed. Raises OSError."""
        state = self._state
        before, state.log_start_offset = state.log_start_offset, offset
        state.note_names_from(offset)
        # Also compare with `before`, although `before` may not be checkpointed yet: another thread may be writing
        # `before` to the checkpoint file at this moment.
        if offset < max(before, state.checkpointed_start):
            if self.after_truncation is not None:
                self.after_truncation(state)
            state.checkpointed_start = min(state.checkpointed_start, offset)

    def _lower_checkpoints(self, offset: int) -> None:
        """Lower the recovery point and the cleaner checkpoint to `offset`, in memory and on disk. Raises OSError."""
        state = self._state
        state.synced_offset = min(offset, state.synced_offset)
        was_compacted = state.cleaner_checkpoint is not None and offset < state.cleaner_checkpoint
        if was_compacted:
            state.cleaner_checkpoint = offset
        if offset < state.recovery_point or was_compacted:
            state.recovery_point = min(offset, state.recovery_point)
            if self.before_truncation is not None:
                self.before_truncation(state)
