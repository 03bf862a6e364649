"""A log as it is read: its offsets, its records, and what has gone wrong with it; `PartitionLog` is how it changes.

A failed write or fsync takes the log offline at once (E26): nothing is known of the file any more, so nothing is
retried, and every later call raises KAFKA_STORAGE_ERROR until the log is opened again, which verifies its tail.

Not so a write that the system refused for want of space or of descriptors, which has changed nothing: it raises
KAFKA_STORAGE_ERROR, and the log goes on. It can be read, its oldest segments can be deleted, and the next write may
succeed. An fsync is no such write: what it could not put on the disk may be lost, whatever the reason.
"""

from __future__ import annotations

import logging
import os

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.leader_epochs import LeaderEpochs
from oncelog_broker.log.log_content import LogContent
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.segments import timestamp_lookup
from oncelog_broker.log.segments.segment import EMPTY
from oncelog_broker.log.segments.timestamp_lookup import TimestampedOffset
from oncelog_broker.runtime.descriptors import is_descriptor_limit
from oncelog_broker.runtime.disk import is_out_of_space
from oncelog_broker.runtime.disk_troubles import DISK_TROUBLES
from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import CorruptBatch

logger = logging.getLogger(__name__)


class ReadableLog:
    """Not thread-safe. Public methods raise KafkaError only, with the codes that they name."""

    __slots__ = (
        "_content",
        "_epochs",
        "_local",
        "_log_start_offset",
        "_offline",
        "config",
        "directory",
        "partition",
        "producer_state",
        "producers",
        "topic",
    )

    config: LogConfig

    def __init__(
        self, content: LogContent, *, topic: str, partition: int, directory: str, log_start_offset: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.producers = content.producers
        self.producer_state = content.producers.state
        self._content = content
        self._local = content.local
        self._epochs = content.epochs
        self._log_start_offset = log_start_offset
        self._offline: str | None = None

    def __repr__(self) -> str:
        state = "" if self._offline is None else f", offline: {self._offline}"
        return f"{type(self).__name__}({self.name}, {self._log_start_offset} to {self.log_end_offset}{state})"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._local.log_end_offset

    @property
    def size_bytes(self) -> int:
        return self._local.size_bytes

    @property
    def segment_base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self._local.segments]

    @property
    def is_offline(self) -> bool:
        return self._offline is not None

    @property
    def leader_epochs(self) -> LeaderEpochs:
        return self._epochs

    @property
    def latest_epoch(self) -> int:
        """-1 if no epoch is known."""
        return self._epochs.latest_epoch

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction of just this epoch open here: it need not be verified (KIP-890)."""
        return self.producer_state.has_open_transaction(producer_id, producer_epoch)

    def takes_any_sequence(self, producer_id: int) -> bool:
        """Whether the producer's next batch may have any sequence, as nothing is known of those before it (S9, E16)."""
        return self.producer_state.takes_any_sequence(producer_id)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool, may_copy: bool = True
    ) -> memoryview:
        """Whole batches from the one that contains `offset` on, none that reaches `upper_bound`, of one segment.

        At most `max_bytes`, unless `min_one_batch` and the first batch is larger. Empty where there is nothing (yet).
        The view may be a mapping of the file: see `RealFile` for what that means when the log is truncated. Without
        `may_copy` it is no copy, but for a first batch that comes whole, and empty where the file cannot be mapped.
        Raises OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        if self._offline is not None:
            raise self._offline_error()
        log_end_offset = self.log_end_offset
        if not self._log_start_offset <= offset <= log_end_offset:
            raise self._out_of_range(offset)
        if offset >= upper_bound or offset == log_end_offset:
            return EMPTY
        try:
            return self._local.read(offset, max_bytes, upper_bound, min_one_batch=min_one_batch, may_copy=may_copy)[0]
        except (OSError, CorruptBatch) as error:
            raise self._read_error(error) from error

    def read_committed(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool, may_copy: bool = True
    ) -> tuple[memoryview, list[EndedTransaction]]:
        """As `read`, with the aborted transactions that have records among what was read (S52)."""
        if not self.producers.aborted:
            view = self.read(offset, max_bytes, upper_bound=upper_bound, min_one_batch=min_one_batch, may_copy=may_copy)
            return view, []
        self._check_online()
        if not self._log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        if offset >= upper_bound or offset == self.log_end_offset:
            return EMPTY, []
        try:
            view, end = self._local.read(offset, max_bytes, upper_bound, min_one_batch=min_one_batch, may_copy=may_copy)
        except (OSError, CorruptBatch) as error:
            raise self._read_error(error) from error
        return view, self.producers.aborted.collect(offset, end) if end > offset else []

    def last_stable_offset(self, high_watermark: int) -> int:
        """Every transaction with records below it is decided, and the decision is replicated (S50)."""
        first_unstable = self.producer_state.first_unstable_offset
        if first_unstable >= high_watermark:
            return high_watermark
        return max(first_unstable, self._log_start_offset)

    def offset_for_timestamp(self, timestamp: int, *, upper_bound: int) -> Steps[TimestampedOffset | None]:
        """The first record below `upper_bound` with at least this timestamp (T12): (offset, timestamp, leader epoch).

        The steps raise CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        try:
            found = yield from timestamp_lookup.first_at_or_after(
                self._local.segments,
                timestamp,
                log_start_offset=self._log_start_offset,
                upper_bound=upper_bound,
                max_unpacked=self.config.message_max_decompressed_bytes,
            )
            return found
        except (OSError, CorruptBatch) as error:
            raise self._read_error(error) from error

    def max_timestamp_offset(self, *, upper_bound: int | None = None) -> Steps[TimestampedOffset | None]:
        """The first record below `upper_bound` with the largest timestamp; None if none has one. Raises as above."""
        self._check_online()
        bound = self.log_end_offset if upper_bound is None else upper_bound
        try:
            found = yield from timestamp_lookup.with_largest(
                self._local.segments,
                log_start_offset=self._log_start_offset,
                upper_bound=bound,
                max_unpacked=self.config.message_max_decompressed_bytes,
            )
            return found
        except (OSError, CorruptBatch) as error:
            raise self._read_error(error) from error

    # --- faults --------------------------------------------------------------------------------------------------

    def _check_online(self) -> None:
        if self._offline is not None:
            raise self._offline_error()

    def _offline_error(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline: {self._offline}")

    def _fail(self, what: str, error: Exception) -> KafkaError:
        self._offline = f"could not {what} {self.name}: {error}"
        logger.error("%s: offline: %s", self.directory, self._offline)
        return self._offline_error()

    def _fail_unless_refused(self, what: str, error: Exception) -> KafkaError:
        """As `_fail`, for a write before which nothing was changed and that may be tried again."""
        if not (is_out_of_space(error) or is_descriptor_limit(error)):
            return self._fail(what, error)
        if DISK_TROUBLES.note_failure(os.path.dirname(self.directory), what, error):
            hint = "; raise the limit of open files (ulimit -n)" if is_descriptor_limit(error) else ""
            logger.error("%s: could not %s: %s%s", self.directory, what, error, hint)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"could not {what} {self.name}: {error}")

    def _read_error(self, error: Exception) -> KafkaError:
        """A read that fails says nothing of the rest of the log, so the log stays online."""
        code = ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptBatch) else ErrorCode.KAFKA_STORAGE_ERROR
        if DISK_TROUBLES.note_failure(os.path.dirname(self.directory), "read", error):
            logger.error("%s: read failed: %s", self.directory, error)
        return KafkaError(code, f"{self.name}: {error}")

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {self.name}, which holds {self._log_start_offset} to {self.log_end_offset}",
        )
