"""Reads a log: records by offset, offsets by timestamp, and the last stable offset (LSO)."""

from __future__ import annotations

from oncelog_broker.log.log_content import LogContent
from oncelog_broker.log.log_state import LogState
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.segments import timestamp_lookup
from oncelog_broker.log.segments.segment import EMPTY
from oncelog_broker.log.segments.timestamp_lookup import TimestampedOffset
from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.records.batch import CorruptBatch


class LogReader:
    """Reads one log. Not thread-safe. Methods raise only KafkaError, with the codes that their docstrings name."""

    __slots__ = ("_local", "_producers", "_state")

    def __init__(self, content: LogContent, state: LogState) -> None:
        self._local = content.local
        self._producers = content.producers
        self._state = state

    def read(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool, may_copy: bool = True
    ) -> memoryview:
        """Return complete batches of one segment: the batch that contains `offset`, and the batches after it that are
        below `upper_bound`.

        The result has at most `max_bytes`, unless `min_one_batch` is True and the first batch is larger. The result is
        empty if there are no such batches (yet). The view may be a memory mapping of the file. The view stays valid
        after a truncation, because `RealFile` does not truncate a mapped file in place. If `may_copy` is False, the
        view is empty if the file cannot be mapped; only a first batch that `min_one_batch` requires is still copied.
        Raises OFFSET_OUT_OF_RANGE,
        CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        state, local = self._state, self._local
        if state.offline_reason is not None:
            raise state.offline_error()
        log_end_offset = local.log_end_offset
        if not state.log_start_offset <= offset <= log_end_offset:
            raise state.out_of_range(offset, log_end_offset)
        if offset >= upper_bound or offset == log_end_offset:
            return EMPTY
        try:
            return local.read(offset, max_bytes, upper_bound, min_one_batch=min_one_batch, may_copy=may_copy)[0]
        except (OSError, CorruptBatch) as error:
            raise state.read_error(error) from error

    def read_committed(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool, may_copy: bool = True
    ) -> tuple[memoryview, list[EndedTransaction]]:
        """Return complete batches of one segment, and the aborted transactions that have records in these batches
        (S52).
        """
        aborted = self._producers.aborted
        if not aborted:
            view = self.read(offset, max_bytes, upper_bound=upper_bound, min_one_batch=min_one_batch, may_copy=may_copy)
            return view, []
        state, local = self._state, self._local
        state.check_online()
        log_end_offset = local.log_end_offset
        if not state.log_start_offset <= offset <= log_end_offset:
            raise state.out_of_range(offset, log_end_offset)
        if offset >= upper_bound or offset == log_end_offset:
            return EMPTY, []
        try:
            view, end = local.read(offset, max_bytes, upper_bound, min_one_batch=min_one_batch, may_copy=may_copy)
        except (OSError, CorruptBatch) as error:
            raise state.read_error(error) from error
        return view, aborted.collect(offset, end) if end > offset else []

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset (LSO): every transaction with records below this offset has ended, and its
        marker is replicated (S50).
        """
        first_unstable = self._producers.state.first_unstable_offset
        if first_unstable >= high_watermark:
            return high_watermark
        return max(first_unstable, self._state.log_start_offset)

    def offset_for_timestamp(self, timestamp: int, *, upper_bound: int) -> Steps[TimestampedOffset | None]:
        """Return (offset, timestamp, leader epoch) of the first record below `upper_bound` with at least this timestamp
        (T12); None if there is none.

        The steps (a generator) raise KafkaError CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        state = self._state
        state.check_online()
        try:
            found = yield from timestamp_lookup.first_at_or_after(
                self._local.segments,
                timestamp,
                log_start_offset=state.log_start_offset,
                upper_bound=upper_bound,
                max_unpacked=state.config.message_max_decompressed_bytes,
            )
            return found
        except (OSError, CorruptBatch) as error:
            raise state.read_error(error) from error

    def max_timestamp_offset(self, *, upper_bound: int | None = None) -> Steps[TimestampedOffset | None]:
        """Return the first record below `upper_bound` with the largest timestamp; None if no record has a timestamp.

        `upper_bound` is the log end offset by default. The steps (a generator) raise KafkaError CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR.
        """
        state = self._state
        state.check_online()
        bound = self._local.log_end_offset if upper_bound is None else upper_bound
        try:
            found = yield from timestamp_lookup.with_largest(
                self._local.segments,
                log_start_offset=state.log_start_offset,
                upper_bound=bound,
                max_unpacked=state.config.message_max_decompressed_bytes,
            )
            return found
        except (OSError, CorruptBatch) as error:
            raise state.read_error(error) from error
