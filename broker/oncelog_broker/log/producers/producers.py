"""The producers and transactions of one log: their state in memory, and the files from which that state is restored.

When a log is opened, the state is restored from the newest valid snapshot and from all batches after that snapshot. The
scan of these batches also rebuilds their transaction indexes, because the index files may not have reached the disk.
The scan reads only batch headers and markers. The CRC of a marker is checked, because a flipped bit can turn an abort
into a commit, and readers would get aborted records. The CRC of other batches is not checked here, because the scan
would read all their records.

The state of a producer therefore survives as long as the batches above the newest snapshot *on the disk* exist. A
snapshot is created in memory when the log rolls, and the next flush writes it after the records that it describes.
Segments above the last written snapshot (`saved_up_to` is its offset) must not be deleted or compacted, because they
may be the only source of a producer's state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final
from weakref import ref

from oncelog_broker.log.config import LONG_MAX, LogConfig
from oncelog_broker.log.header_fields import (
    ATTRIBUTES,
    BATCH_LENGTH,
    FIRST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    HeaderFields,
)
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.producers.entry import NO_OFFSET, describe
from oncelog_broker.log.producers.recent_ends import RecentEnds
from oncelog_broker.log.producers.snapshot import PendingSnapshot, ProducerSnapshots
from oncelog_broker.log.producers.state import ProducerState
from oncelog_broker.log.producers.transaction_index import TransactionIndexes
from oncelog_broker.log.segments.batch_scan import HEADER_WINDOW
from oncelog_broker.log.segments.segment import Segment
from oncelog_broker.runtime.disk import Disk, File
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    CorruptBatch,
    RecordBatch,
)
from oncelog_protocol.records.control import EndTransactionMarker, read_marker

logger = logging.getLogger(__name__)

MAX_PENDING_SNAPSHOTS: Final = 8
"""The maximum number of snapshots that wait for the next flush. If more snapshots wait, the oldest are dropped; the
only consequence is that a later startup may be slower.
"""


class DamagedMarker(CorruptBatch):
    """A marker from which the producer state must be restored has a wrong CRC, so it is unknown whether its transaction
    was committed or aborted.
    """


class LogProducers:
    """The producer state of one log, with its snapshots and transaction indexes. Not thread-safe."""

    __slots__ = ("_ends", "_pending", "_saved_offset", "_snapshots", "_taken", "aborted", "on_snapshot", "state")

    def __init__(self, disk: Disk, directory: str, config: LogConfig) -> None:
        self.state = ProducerState(config)
        self.aborted = TransactionIndexes(disk, directory)
        self._snapshots = ProducerSnapshots(disk, directory)
        self._saved_offset = -1
        """The newest offset whose state is on the disk, or at which the log was empty. To restore the state, batches
        are read from this offset on.
        """
        self._pending: list[PendingSnapshot] = []
        """Snapshots at later offsets that are not known to be on the disk, oldest first."""
        self._taken: list[ref[PendingSnapshot]] = []
        """All snapshots that a running flush may still write, including snapshots that are no longer in `_pending`."""
        self._ends = RecentEnds()
        self.on_snapshot: Callable[[], None] = lambda: None
        """A callback: called when a snapshot is taken, for example at a roll, so that the log is flushed soon."""

    # --- methods that check and record appended batches ---------------------------------------------------------------

    @staticmethod
    def read_marker(batch: memoryview) -> EndTransactionMarker:
        """Return the marker in a control batch, before the append. Raises INVALID_RECORD."""
        try:
            marker = read_marker(RecordBatch(batch))
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        if marker is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "the only control records of a log are markers")
        return marker

    def follow(self, whole: Iterable[RecordBatch], segment_base: int) -> None:
        """Update the state with batches fetched from a leader, after these batches were appended with their offsets
        (E27). Raises OSError, CorruptBatch.
        """
        for batch in whole:
            if batch.has_producer_id:
                aborted = self._follow(HEADER.unpack_from(batch.buffer, batch.start), batch)
                if aborted is not None:
                    self.aborted.append(segment_base, aborted)

    def _follow(self, header: HeaderFields, control: RecordBatch | None) -> EndedTransaction | None:
        """Update the state with one batch. `control` is the complete batch if it is a control batch."""
        if not header[ATTRIBUTES] & CONTROL_BIT or control is None:
            self.state.follow(header)
            return None
        marker = read_marker(control)
        if marker is None:
            return None  # compaction has emptied this control batch
        return self._follow_marker(header, marker)

    def _follow_marker(self, header: HeaderFields, marker: EndTransactionMarker) -> EndedTransaction | None:
        return self.state.follow_marker(
            header[PRODUCER_ID], header[PRODUCER_EPOCH], marker, header[MAX_TIMESTAMP], header[FIRST_OFFSET]
        )

    def expire(self, log_end_offset: int, *, now_ms: int, now: float, expiration_ms: int) -> Iterator[int]:
        """Forget the producers that have written nothing for `expiration_ms`; yields the number of forgotten producers
        so far. `now` is monotonic, in seconds, and `now_ms` is wall time; a producer expires only if both clocks show
        that it wrote nothing for the expiration time.
        """
        written_below = self._ends.look(log_end_offset, now, expiration_ms / 1000)
        return self.state.expire(now_ms, expiration_ms, written_below)

    # --- methods that create snapshots of the state -------------------------------------------------------------------

    def take_snapshot(self, offset: int) -> None:
        """Create a snapshot of the present state, which is the state at `offset`; the next flush writes the
        snapshot."""
        newest = self._pending[-1].offset if self._pending else self._saved_offset
        if offset != newest:
            snapshot = self._snapshots.take(offset, self.state.image())
            self._taken = [*(taken for taken in self._taken if taken() is not None), ref(snapshot)]
            self._pending = [*self._pending, snapshot][-MAX_PENDING_SNAPSHOTS:]
        self.on_snapshot()

    @property
    def saved_up_to(self) -> int:
        """Offset of the newest snapshot on the disk. Segments below this offset are not needed to restore the producer
        state.
        """
        return self._saved_offset if len(self.state) else LONG_MAX

    def is_saved(self, offset: int) -> bool:
        """Whether the state at `offset` can be restored from a snapshot alone, without reading batches."""
        return offset == self._saved_offset and not self._pending

    def pending_snapshots(self, end: int) -> list[PendingSnapshot]:
        """Return the snapshots at or before `end` that have not been written to their files yet."""
        return [snapshot for snapshot in self._pending if snapshot.offset <= end and not snapshot.is_written]

    def note_saved(self, base_offsets: Iterable[int]) -> None:
        """Update the list of pending snapshots after some of them may have been written. If a newer snapshot is on the
        disk, remove the files of the older ones, except at `base_offsets`, the base offsets of the segments (S55).
        """
        written = [snapshot.offset for snapshot in self._pending if snapshot.is_written]
        if not written:
            return
        saved = {self._saved_offset, *written}
        self._saved_offset = max(saved)
        self._pending = [snapshot for snapshot in self._pending if not snapshot.is_written]
        # The removal needs no sync of the directory: if an older snapshot reappears after a power cut, it still
        # describes the records before it. A truncation below it also removes the newest snapshot, and then syncs the
        # directory.
        self._snapshots.remove_at(saved.difference(base_offsets, (self._saved_offset, -1)))

    def cancel_snapshots(self) -> None:
        """Drop all pending snapshots (not written to disk yet)."""
        self._cancel_above(-1)

    # --- methods that restore the state from snapshots and batches ----------------------------------------------------

    def begin_at(self, offset: int) -> None:
        """Start with an empty log whose first record will have this offset."""
        self._saved_offset = offset

    def reopen_at(self, offset: int, entries: Sequence[bytes]) -> None:
        """Restore the state of a cleanly closed log, whose snapshot at the log end `offset` has these entries."""
        self._saved_offset = offset
        if entries:
            self.state.restore(entries)
        self._ends = RecentEnds(offset)

    def grow(self, headers: Iterable[HeaderFields]) -> None:
        """Update the state, after `reopen_at`, with the headers of the batches that were appended since. None of them
        is a marker.
        """
        for header in headers:
            self.state.follow(header)

    def load(
        self, segments: Sequence[Segment], snapshots_up_to: int, *, decided_up_to: int, high_watermark: int
    ) -> None:
        """Restore the producer state at the log end. All transactions that began below `decided_up_to` have ended.
        Snapshots above `snapshots_up_to` are deleted. A marker at or above `high_watermark` may not be replicated yet.
        Until `ProducerState.on_high_watermark` confirms the replication, the last stable offset stays below the
        marker's transaction. Raises OSError, DamagedMarker.
        """
        # Delete these snapshots before a batch is appended. If an old snapshot reappeared after a power cut, it would
        # be mistaken for a snapshot of the new batches.
        names = self._snapshots.remove_above(snapshots_up_to)
        damaged = self.aborted.load(names)
        if damaged is not None:
            # The first call of `_restore` only rebuilds the transaction indexes. The second call restores the producers
            # from the newest snapshot, which may be the only source of their state.
            self._restore(segments, names, damaged)
            self.aborted.mend()
            names = self._snapshots.file_names()
        self._restore(segments, names, snapshots_up_to)
        if self.state.first_unstable_offset < decided_up_to:
            self.state.end_transactions_before(decided_up_to, _begun_from(segments, decided_up_to))
        if high_watermark < self._saved_offset:
            self.state.hold_back(self._ended_in(segments, names, high_watermark, self._saved_offset))
        kept = {self._saved_offset, *(segment.base_offset for segment in segments)}
        self._snapshots.remove_all_but(names, kept)
        self._ends = RecentEnds(segments[-1].next_offset)

    def truncate_to(self, segments: Sequence[Segment], log_end_offset: int) -> None:
        """Adjust the state after the log was truncated to `log_end_offset`; `segments` are the remaining segments.
        Raises OSError, DamagedMarker.
        """
        self._cancel_above(log_end_offset)
        names = self._snapshots.remove_above(log_end_offset)
        self.aborted.truncate_to(log_end_offset, segments[-1].base_offset)
        unreplicated = [(first, marker) for first, marker in self.state.unreplicated if marker < log_end_offset]
        self._restore(segments, names, log_end_offset)
        self.state.hold_back(unreplicated)
        self._ends.cut(log_end_offset)

    def move_on_to(self, offset: int) -> None:
        """Prepare for the removal of all records. Afterwards the log restarts at `offset`, which is above its present
        end. The producer state is kept in a snapshot at `offset`. Raises OSError.
        """
        snapshot = self._snapshots.take(offset, self.state.image())
        snapshot.write()
        self._saved_offset, self._pending = offset, []
        self.aborted.clear()

    def truncate_fully(self) -> None:
        """Clear the state after all records of the log were removed. Raises OSError."""
        self._cancel_above(-1)
        self._snapshots.remove_above(-1)
        self.aborted.clear()
        self.state.restore(())
        self._saved_offset = -1
        self._ends = RecentEnds()

    def forget_below(self, first_base: int) -> None:
        """Forget the snapshots and transaction indexes below `first_base`, whose segments were deleted with all their
        files.
        """
        for snapshot in self._pending:
            snapshot.is_cancelled = snapshot.offset < first_base
        self._pending = [snapshot for snapshot in self._pending if not snapshot.is_cancelled]
        self.aborted.forget_below(first_base)

    def _cancel_above(self, offset: int) -> None:
        for taken in self._taken:
            if (snapshot := taken()) is not None and snapshot.offset > offset:
                snapshot.is_cancelled = True
        self._pending = [snapshot for snapshot in self._pending if not snapshot.is_cancelled]

    def _restore(self, segments: Sequence[Segment], names: Sequence[str], at_most: int) -> None:
        """Restore the state from the newest snapshot not above `at_most`, and from the batches after that snapshot."""
        start, entries = segments[0].base_offset, list[bytes]()
        found = self._snapshots.load_newest(names, at_most)
        if found is not None and found[0] >= start:  # ignore a snapshot below the first segment
            start, entries = found
        self._saved_offset, self._pending = start, []
        self.state.restore(entries)
        aborted: dict[int, list[EndedTransaction]] = {}
        for segment in segments:
            if segment is segments[-1] and segment.base_offset > start:
                self.take_snapshot(segment.base_offset)
            if segment.next_offset > start:
                found_aborted = list(self._replay(segment, start))
                if found_aborted:
                    aborted[segment.base_offset] = found_aborted
        self.aborted.replace_from(start, aborted)

    def _ended_in(
        self, segments: Sequence[Segment], names: Sequence[str], start: int, end: int
    ) -> list[tuple[int, int]]:
        """Return (first offset, offset of the marker) of each transaction whose marker lies in [start, end). The
        snapshot at `end` does not have these offsets, because the transactions have ended there. Raises OSError.
        """
        if not any(marker < end for _, marker in _ends(segments, start, {}, unknown_too=True)):
            return []
        replay_from, begun = segments[0].base_offset, dict[int, int]()
        found = self._snapshots.load_newest(names, start)
        if found is not None and found[0] >= replay_from:
            replay_from, entries = found
            states = [describe(entry) for entry in entries]
            begun = {each.producer_id: each.transaction_first_offset for each in states}
            begun = {producer_id: first for producer_id, first in begun.items() if first != NO_OFFSET}
        return [(first, marker) for first, marker in _ends(segments, replay_from, begun) if start <= marker < end]

    def _replay(self, segment: Segment, start: int) -> Iterator[EndedTransaction]:
        """Update the state with the batches of `segment` from offset `start` on; yields the aborted transactions.

        Raises OSError, DamagedMarker.
        """
        try:
            for at, header in _producer_batches_from(segment, start):
                control = None
                if header[ATTRIBUTES] & CONTROL_BIT:
                    control = RecordBatch(segment.file.read(at, header[BATCH_LENGTH] + LOG_OVERHEAD))
                    if not control.crc_is_valid():
                        raise DamagedMarker(
                            f"{segment.path}: the CRC of the marker at offset {control.base_offset} is wrong, so the "
                            "outcome of its transaction is unknown; let another replica lead, or restore the log"
                        )
                aborted = self._follow(header, control)
                if aborted is not None:
                    yield aborted
        except DamagedMarker:
            raise
        except CorruptBatch as error:
            # Only log the error: the batches after the damaged batch cannot be read, and a reader of the damaged batch
            # gets the same error.
            logger.warning(
                "%s: the producer state of this and later batches cannot be restored: %s", segment.path, error
            )


def _begun_from(segments: Sequence[Segment], offset: int) -> dict[int, int]:
    """Return a dictionary: producer id -> the first offset, at or above `offset`, of the transaction that the producer
    has open.
    """
    begun: dict[int, int] = {}
    for _ in _ends(segments, offset, begun):
        pass
    return begun


def _ends(
    segments: Sequence[Segment], start: int, begun: dict[int, int], *, unknown_too: bool = False
) -> Iterator[tuple[int, int]]:
    """Yield (first offset, offset of the marker) of each transaction that ends at or after offset `start`. `begun` maps
    each producer id to the first offset of the producer's open transaction; the generator keeps `begun` up to date. If
    `unknown_too` is True, also yield transactions whose first offset is unknown, with NO_OFFSET as first offset. Raises
    OSError.
    """
    for segment in segments:
        if segment.next_offset > start:
            with suppress(CorruptBatch):  # `_replay` has already logged this error
                for _, header in _producer_batches_from(segment, start):
                    if header[ATTRIBUTES] & CONTROL_BIT:
                        first = begun.pop(header[PRODUCER_ID], NO_OFFSET)
                        if unknown_too or first != NO_OFFSET:
                            yield first, header[FIRST_OFFSET]
                    elif header[ATTRIBUTES] & TRANSACTIONAL_BIT:
                        begun.setdefault(header[PRODUCER_ID], header[FIRST_OFFSET])


def _producer_batches_from(segment: Segment, start: int) -> Iterator[tuple[int, HeaderFields]]:
    """Yield (position, header) of each batch that has a producer id and ends at or after offset `start`. Raises
    CorruptBatch, OSError."""
    position = 0
    if start > segment.base_offset:
        first = next(segment.batches_from(start), None)
        position = segment.size if first is None else first.position
    return _producer_batches(segment.file, position, segment.size)


def _producer_batches(file: File, position: int, end: int) -> Iterator[tuple[int, HeaderFields]]:
    """Yield (position, header) of each batch that has a producer id. Raises CorruptBatch, OSError."""
    window, window_start = memoryview(b""), position
    while position < end:
        at = position - window_start
        if at + HEADER_SIZE > len(window):
            window, window_start, at = file.read(position, min(HEADER_WINDOW, end - position)), position, 0
            if len(window) < HEADER_SIZE:
                raise CorruptBatch(f"{len(window)} bytes at position {position} are not a batch header")
        header: HeaderFields = HEADER.unpack_from(window, at)
        size = header[BATCH_LENGTH] + LOG_OVERHEAD
        if header[MAGIC] != MAGIC_V2 or size < HEADER_SIZE or position + size > end:
            raise CorruptBatch(f"no complete batch at position {position}")
        if header[PRODUCER_ID] >= 0:
            yield position, header
        position += size
