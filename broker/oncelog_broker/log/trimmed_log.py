"""A log as it gets shorter: at its front (retention, DeleteRecords), in the middle (compaction), at its end.

Cutting the end is a follower's: it gives up what its leader does not have. It waits for the disk, and may replay a
segment's worth of producers, so it runs in a worker thread; whoever starts one marks the log with `is_truncating`, and
until that is taken back nobody else may change the log, upkeep included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from oncelog_broker.log.log_content import LogContent
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.readable_log import ReadableLog
from oncelog_broker.log.segments.retention import SegmentFacts, deletable_segments
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.disk import is_out_of_space
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.records.batch import CorruptBatch

NOT_REFUSED: Final = -1


class TrimmedLog(ReadableLog):
    """Not thread-safe. Public methods raise KafkaError only, with the codes that they name."""

    __slots__ = (
        "_clock",
        "_noted_start",
        "_recovery_point",
        "_refused_at",
        "_synced_first",
        "after_truncation",
        "before_truncation",
        "cleaner_checkpoint",
        "is_truncating",
    )

    def __init__(
        self,
        content: LogContent,
        *,
        topic: str,
        partition: int,
        directory: str,
        log_start_offset: int,
        clock: Clock,
        recovery_point: int,
        cleaner_checkpoint: int | None,
    ) -> None:
        super().__init__(
            content, topic=topic, partition=partition, directory=directory, log_start_offset=log_start_offset
        )
        self.before_truncation: Callable[[TrimmedLog], None] | None = None
        """Called when `recovery_point` or `cleaner_checkpoint` went back, before bytes are cut: whoever keeps them on
        disk must lower them there now, since after a crash a log that ends below its recovery point counts as damaged,
        and what is below the cleaner checkpoint counts as compacted. May raise OSError."""
        self.after_truncation: Callable[[TrimmedLog], None] | None = None
        """Called when the log begins before where it did, which may be noted: whoever keeps that on disk must lower it
        there before anything is appended, since after a crash a log that ends before its start is emptied. May raise
        OSError."""
        self.cleaner_checkpoint = cleaner_checkpoint
        """Up to where the log was compacted, as last noted; None if no compaction of it was ever begun."""
        self._refused_at = NOT_REFUSED
        """The end of the log when an append was last refused, and nothing was appended."""
        self.is_truncating = False
        """A worker thread is cutting its end."""
        self._clock = clock
        self._noted_start = log_start_offset
        """Up to where it is checkpointed that the log starts."""
        self._synced_first = 0
        """Where the first segment began when it was last known that the names of the segments are on the disk."""
        self._recovery_point = recovery_point

    @property
    def may_be_changed(self) -> bool:
        """Whether upkeep may work on it: it is online, and nobody is cutting its end."""
        return self._offline is None and not self.is_truncating

    @property
    def recovery_point(self) -> int:
        """Every record below this offset is synced."""
        return self._recovery_point

    @property
    def noted_start_offset(self) -> int:
        """Where the log will begin at least when it is opened again, even after a power cut: so far it is checkpointed,
        or the segments are gone, and their names too. Never above the log start."""
        return min(self._log_start_offset, max(self._noted_start, self._synced_first))

    def note_start(self, offset: int) -> None:
        """It is checkpointed that the log starts there."""
        self._noted_start = offset

    # --- rolling -------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Close the active segment and begin a new one; nothing happens if it is empty. Raises KAFKA_STORAGE_ERROR."""
        self._check_online()
        try:
            self._local.roll()
        except OSError as error:
            raise self._append_failed(error, self.log_end_offset) from error

    # --- letting go ----------------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Move the log start up to `offset` (DeleteRecords); returns where it is now.

        Segments wholly below go, at the latest with the next flush. Until the log start is checkpointed, a crash brings
        back what their files still held.
        Raises OFFSET_OUT_OF_RANGE beyond the log's end, KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        if offset > self._log_start_offset:
            self._advance_log_start(offset)
            self._delete_below_start()
        return self._log_start_offset

    def apply_retention(self, now_ms: int, *, upper_bound: int | None = None) -> list[int]:
        """Let go of old segments by time, size and log start; returns their base offsets.

        Those that only a flush can set free stay until then: `is_flush_due`.
        `upper_bound` is the high watermark, by default the log's end: nothing beyond it goes.
        Raises KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        self._check_online()
        bound = self.log_end_offset if upper_bound is None else upper_bound
        try:
            facts = [
                SegmentFacts(s.base_offset, s.next_offset, s.size, s.retention_timestamp_ms())
                for s in self._local.segments
            ]
        except (OSError, CorruptBatch) as error:
            raise self._read_error(error) from error
        count = deletable_segments(
            facts, self.config, now_ms=now_ms, log_start_offset=self._log_start_offset, upper_bound=bound
        )
        if count == len(facts):
            self.roll()
        return self._delete_first(count)

    def take_deleted(self, now: float) -> list[str]:
        """The files of segments that were let go `file.delete.delay.ms` ago, for the caller to remove."""
        return self._local.take_marked(now)

    def _delete_below_start(self) -> None:
        start = self._log_start_offset
        self._delete_first(sum(1 for segment in self._local.segments[:-1] if segment.next_offset <= start))

    def _delete_first(self, count: int) -> list[int]:
        """Let go of the oldest `count` segments, or as many of them as may go now."""
        count = self._content.removable(count)
        if count == 0:
            return []
        try:
            gone = self._content.remove_first(count)
        except OSError as error:
            raise self._fail("delete segments of", error) from error
        first = self._local.first.base_offset
        self._advance_log_start(first)
        return gone

    def _advance_log_start(self, offset: int) -> None:
        if offset > self._log_start_offset:
            self._log_start_offset = offset
            try:
                self._epochs.truncate_from_start(offset)
            except OSError as error:
                if not is_out_of_space(error):  # what the file has too many is dropped when it is next read
                    raise self._fail("write the leader epochs of", error) from error

    # --- compaction ----------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Grows with each truncation: what was learned of the content before says nothing after it."""
        return self._content.generation

    @property
    def closed_segments(self) -> list[Segment]:
        """All but the active one. They never change, but for truncation; they may leave the log at any time."""
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

        `cleaned` holds no record that they do not hold, and its transaction index holds `aborted`: at least all those
        of `old` of which it still has records. False, and nothing is done, if the log is offline or
        not what it was at `generation`, is being truncated or has let go of one of them. Raises KAFKA_STORAGE_ERROR: a
        part of it is done, so that what `cleaned` holds may be nowhere else, and the next start does the rest.
        """
        if not self.may_be_changed or generation != self.generation or not self._local.holds(old):
            return False
        try:
            self._content.replace(old, cleaned, aborted, suffix=suffix)
        except OSError as error:
            raise self._fail("replace compacted segments of", error) from error
        return True

    # --- truncating (a follower gives up what its leader does not have) ----------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove the record at `offset` and all after it, the whole batch that contains it included.

        `log_end_offset` is then the end of the last batch that is left, perhaps below `offset`; the log start goes back
        with it if need be. Views that `read` gave of what is removed must not be touched. Raises KAFKA_STORAGE_ERROR.

        Where there is nothing to be removed, a leader epoch without records may be: one in which this broker led, and
        the disk took none. A leader that has not heard of it would have the log cut for it again and again.
        """
        self._check_online()
        if offset >= self.log_end_offset:
            try:
                self._epochs.truncate_from_end(self.log_end_offset)
            except OSError as error:
                raise self._fail("write the leader epochs of", error) from error
            return
        if offset <= self._log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            self._lower_checkpoints(self._local.end_before(offset))
            self._content.truncate_to(offset)
            self._begin_at(min(self._log_start_offset, self.log_end_offset))
        except (OSError, CorruptBatch) as error:
            raise self._fail("truncate", error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is empty then, and both start and end are `offset`. Raises KAFKA_STORAGE_ERROR."""
        self._check_online()
        try:
            self._lower_checkpoints(0)  # after a crash there may be no segment, and nothing that says where one began
            self._content.truncate_fully_and_start_at(offset)
            self._recovery_point = offset
            self._begin_at(offset)
        except OSError as error:
            raise self._fail("truncate", error) from error

    def _begin_at(self, offset: int) -> None:
        """The log start after a truncation. Raises OSError."""
        before, self._log_start_offset = self._log_start_offset, offset
        self._synced_first = min(self._synced_first, offset)
        # Also if `before` is not noted: another thread may be about to write it down, and to say so only then.
        if offset < max(before, self._noted_start):
            if self.after_truncation is not None:
                self.after_truncation(self)
            self._noted_start = min(self._noted_start, offset)

    def _lower_checkpoints(self, offset: int) -> None:
        was_compacted = self.cleaner_checkpoint is not None and offset < self.cleaner_checkpoint
        if was_compacted:
            self.cleaner_checkpoint = offset
        if offset < self._recovery_point or was_compacted:
            self._recovery_point = min(offset, self._recovery_point)
            if self.before_truncation is not None:
                self.before_truncation(self)

    # --- faults --------------------------------------------------------------------------------------------------

    def _append_failed(self, error: Exception, log_end_offset: int) -> KafkaError:
        """`log_end_offset` is what it was before. What was appended in part can be neither kept nor undone."""
        if self._local.log_end_offset != log_end_offset:
            return self._fail("append to", error)
        self._refused_at = log_end_offset
        return self._fail_unless_refused("append to", error)

    @property
    def refuses_appends(self) -> bool:
        """Whether the last append was refused, by a full disk say, and the log is online nevertheless."""
        return self._refused_at == self.log_end_offset

    def forget_refusal(self) -> None:
        """It is to be tried again."""
        self._refused_at = NOT_REFUSED
