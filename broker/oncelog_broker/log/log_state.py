"""The part of a log's state that is not in its files: whether the log is online, its log start, and its recovery point.

A failed write or fsync takes the log offline immediately (E26). The content of the log's files is then unknown. After
the failure, no write is retried, and every call raises KAFKA_STORAGE_ERROR until the log is reopened. Reopening
verifies the end of the log.

A write that the system refused for lack of space or of file descriptors has changed nothing, so such a write does not
take the log offline. The refused write raises KAFKA_STORAGE_ERROR; the log can still be read, its oldest segments can
be deleted, and the next write may succeed. A failed fsync takes the log offline for every kind of error, because data
may be lost.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.periodic_work import PeriodicWork
from oncelog_broker.runtime.descriptors import is_descriptor_limit
from oncelog_broker.runtime.disk import is_out_of_space
from oncelog_broker.runtime.disk_troubles import DISK_TROUBLES
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import CorruptBatch

logger = logging.getLogger(__name__)

NOT_REFUSED: Final = -1
CLOSED: Final = "closed"
"""The `LogState.offline_reason` of a log that was closed without an error."""
MOVING: Final = "moving to another data directory"
"""The `LogState.offline_reason` of a log that is paused for some milliseconds while its copy in another data directory
replaces it. A paused log does not count as offline. Calls on a paused log raise NOT_LEADER_OR_FOLLOWER, so that clients
retry.
"""


class LogState:
    """The state that a `PartitionLog` shares with its reader, trimmer and flusher. Not thread-safe."""

    __slots__ = (
        "_checkpointed_start",
        "_synced_first_offset",
        "cleaner_checkpoint",
        "config",
        "directory",
        "is_copied",
        "is_truncating",
        "log_start_offset",
        "offline_reason",
        "on_durable_start",
        "partition",
        "periodic_work",
        "recovery_point",
        "refused_append_at",
        "synced_offset",
        "topic",
    )

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        directory: str,
        config: LogConfig,
        log_start_offset: int,
        recovery_point: int,
        cleaner_checkpoint: int | None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.config = config
        self.offline_reason: str | None = None
        """The reason why the log is offline; None while the log is online."""
        self.log_start_offset = log_start_offset
        """The first offset that may be read. Invariant: only a truncation lowers the log start offset."""
        self.recovery_point = recovery_point
        """Every record below this offset is synced. Invariant: the recovery point is never above the log end offset,
        not even during a truncation.
        """
        self.synced_offset = recovery_point
        """The log file has every record below this offset on the disk, although indexes may not be synced yet.
        Invariant: recovery point <= `synced_offset` <= log end.
        """
        self.cleaner_checkpoint = cleaner_checkpoint
        """The offset up to which the log was compacted; None if no compaction of the log was ever started."""
        self.is_truncating = False
        """Whether a worker thread is truncating the end of the log. While True, no other task may change the log; this
        includes background maintenance.
        """
        self.is_copied = False
        """Whether the log is being copied to another data directory. While True, the log must not be compacted:
        compaction could remove a tombstone from the log after the record that the tombstone deletes was copied.
        """
        self._checkpointed_start = log_start_offset
        self.on_durable_start: Callable[[], None] | None = None
        """Called when `durable_start_offset` may have risen, by the thread that wrote to the disk. Set only while the
        log is fetched from a leader (`BrokerFetcher`).
        """
        self.refused_append_at = NOT_REFUSED
        """The log end offset when the system last refused an append that had changed nothing; NOT_REFUSED if no append
        was refused.
        """
        self.periodic_work: PeriodicWork | None = None
        """The register of the broker's logs with periodic work; None until a `LogManager` has adopted the log."""
        self._synced_first_offset = 0
        """The base offset that the first segment had when the directory was last synced."""

    @property
    def name(self) -> str:
        """Topic and partition in one string, equal to the name of the log's directory."""
        return f"{self.topic}-{self.partition}"

    @property
    def may_be_changed(self) -> bool:
        """Whether background maintenance may change the log: the log is online, and no truncation is running."""
        return self.offline_reason is None and not self.is_truncating

    # --- periodic work ---------------------------------------------------------------------------------------------

    def note_flush_due(self) -> None:
        """Record that the next periodic flush must check the log. Any thread may call this method."""
        if self.periodic_work is not None:
            self.periodic_work.to_flush[self.topic, self.partition] = None

    def note_files_to_free(self) -> None:
        """Record that the log has files of deleted segments."""
        if self.periodic_work is not None:
            self.periodic_work.to_free[self.topic, self.partition] = None

    def note_failed(self) -> None:
        """Record that the log went offline because of an error."""
        if self.periodic_work is not None:
            self.periodic_work.failed[self.topic, self.partition] = None

    # --- the log start after a power cut: what is known, and how it becomes known -------------------------------------

    @property
    def checkpointed_start(self) -> int:
        """The log start offset that is in the checkpoint file on disk."""
        return self._checkpointed_start

    @checkpointed_start.setter
    def checkpointed_start(self, offset: int) -> None:
        has_risen = offset > self._checkpointed_start
        self._checkpointed_start = offset
        if has_risen:
            self._tell_durable_start()

    @property
    def durable_start_offset(self) -> int:
        """The lowest offset at which the log can begin when it is reopened, even after a power cut. The lowest offset
        equals the log start if the log start is checkpointed, or if the deletion of all segments below the log start is
        synced. The lowest offset is never above `log_start_offset`.
        """
        return min(self.log_start_offset, max(self._checkpointed_start, self._synced_first_offset))

    def note_synced_names(self, first_offset: int) -> None:
        """Record that the directory was synced when the log's first segment began at `first_offset`: deleted segments
        before that segment cannot reappear.
        """
        if first_offset > self._synced_first_offset:
            self._synced_first_offset = first_offset
            self._tell_durable_start()

    def _tell_durable_start(self) -> None:
        on_durable_start = self.on_durable_start  # read once, because another thread may set it to None
        if on_durable_start is not None:
            on_durable_start()

    def note_names_from(self, offset: int) -> None:
        """Record that a truncation made the log begin at `offset`: the synced names of segments no longer prove a later
        log start.
        """
        self._synced_first_offset = min(self._synced_first_offset, offset)

    # --- errors of the disk: methods that take the log offline, and errors for the caller -----------------------------

    def check_online(self) -> None:
        """Raises KAFKA_STORAGE_ERROR if the log is offline."""
        if self.offline_reason is not None:
            raise self.offline_error()

    def offline_error(self) -> KafkaError:
        """Return the error that each call of an offline log raises: KAFKA_STORAGE_ERROR, or NOT_LEADER_OR_FOLLOWER for
        a paused log.
        """
        if self.offline_reason is MOVING:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is {MOVING}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline: {self.offline_reason}")

    def fail(self, what: str, error: Exception) -> KafkaError:
        """Take the log offline because an action failed; `what` names the action ("append to"). Returns the error for
        the caller to
        raise."""
        self.offline_reason = f"could not {what} {self.name}: {error}"
        logger.error("%s: offline: %s", self.directory, self.offline_reason)
        self.note_failed()
        return self.offline_error()

    def fail_unless_refused(self, what: str, error: Exception) -> KafkaError:
        """Take the log offline because a write failed; returns the error for the caller to raise. If the system refused
        the write for lack of space or of file descriptors, the log stays online.

        Call this method only for a write that has changed nothing before it failed, so that the write may be retried.
        """
        if not (is_out_of_space(error) or is_descriptor_limit(error)):
            return self.fail(what, error)
        if DISK_TROUBLES.note_failure(os.path.dirname(self.directory), what, error):
            hint = "; raise the limit of open files (ulimit -n)" if is_descriptor_limit(error) else ""
            logger.error("%s: could not %s: %s%s", self.directory, what, error, hint)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"could not {what} {self.name}: {error}")

    def append_failed(self, error: Exception, *, end_before: int, end: int) -> KafkaError:
        """Take the log offline if an append wrote only some of its records, because these records can be neither kept
        nor removed. Some records were written if `end`, the present log end offset, differs from `end_before`. If the
        append
        wrote none of its records, and failed for lack of space or of file descriptors, the log stays online. Returns
        the error for the caller to raise.
        """
        if end != end_before:
            return self.fail("append to", error)
        self.refused_append_at = end
        return self.fail_unless_refused("append to", error)

    def read_error(self, error: Exception) -> KafkaError:
        """Return the error that the caller must raise after a failed read. The log stays online after a failed read,
        because the rest of the log may be intact.
        """
        code = ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptBatch) else ErrorCode.KAFKA_STORAGE_ERROR
        if DISK_TROUBLES.note_failure(os.path.dirname(self.directory), "read", error):
            logger.error("%s: read failed: %s", self.directory, error)
        return KafkaError(code, f"{self.name}: {error}")

    def out_of_range(self, offset: int, log_end_offset: int) -> KafkaError:
        """Return an OFFSET_OUT_OF_RANGE error for an offset that the log does not contain."""
        held = f"{self.log_start_offset} to {log_end_offset}"
        return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {self.name}, which holds {held}")
