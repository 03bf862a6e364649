"""Decides which batches producers may append to a log, and tracks the state of all these producers (S7-S13, S39, S40,
S50; KIP-98, KIP-360, KIP-890).

Each change has two steps: `prepare_append` or `prepare_marker` returns the change, or raises an error and changes
nothing. After the batch is in the log, `adopt` or `complete` applies the change (E26). The checks implement idempotence
(the sequence number of a batch must follow the previous sequence number) and fencing (a batch with an older producer
epoch is refused). The state of one producer is stored as an `entry`. Sequences count records and wrap at 2^31
(`oncelog_protocol.records.sequence`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from operator import itemgetter
from typing import Final

from oncelog_broker.log.config import KAFKA, LEGACY_2_0, LONG_MAX, LogConfig
from oncelog_broker.log.header_fields import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    HeaderFields,
)
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_broker.log.producers.entry import (
    ANY_SEQUENCE,
    EXPECTED,
    EXPIRY,
    HEAD,
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    SNAPSHOT_ENTRY,
    BatchStreak,
    ProducerStateEntry,
    batches,
    describe,
    entry_after,
    entry_after_marker,
    past_batches,
    remembers_past,
    with_transaction_from,
)
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.light_classes import NamedTuple, dataclass
from oncelog_protocol.records.batch import TRANSACTIONAL_BIT
from oncelog_protocol.records.control import ControlType, EndTransactionMarker
from oncelog_protocol.records.sequence import decrement_sequence, in_sequence, increment_sequence

NOTHING_UNSTABLE: Final = LONG_MAX
"""The value of `first_unstable_offset` when all transactions have ended and are replicated."""

EXPIRY_SLICE: Final = 2000
"""The number of producers that `expire` checks between two pauses, which takes far less than a millisecond."""
MAX_STREAKS: Final = 100
"""The maximum number of producers of one log that may have a streak (batches not yet in the producer's entry); updating
all these entries takes far less than a millisecond.
"""


class DuplicateBatch(NamedTuple):
    """Describes a duplicate: the base offset and the timestamp of the batch with the same records that is already in
    the log.
    """

    base_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerCounters:
    """Counts the batches whose sequence was not the next sequence of their producer, since the log was opened."""

    duplicates: int = 0
    """Duplicates among the last five batches of their producer; the response has the offsets of the first append."""
    old_duplicates: int = 0
    """Older duplicates: batches that are certainly in the log, but are not among the last five. The response has the
    error DUPLICATE_SEQUENCE_NUMBER (S12).
    """
    gaps: int = 0
    """All other batches that did not have the next sequence of their producer; the response has the error
    OUT_OF_ORDER_SEQUENCE_NUMBER.
    """


class ProducerState:
    """All producers of one log, and their open transactions.

    Invariants: `first_unstable_offset` is the first offset of the oldest transaction that is open, or has ended but is
    not replicated yet. `_open` contains exactly the producers whose entry has an open transaction, and maps each of
    them to the first offset of that transaction. While a producer has a streak (batches not yet in its entry), its
    entry does not change.
    """

    __slots__ = (
        "_entries",
        "_is_legacy",
        "_is_strict",
        "_open",
        "_streaks",
        "counters",
        "first_unstable_offset",
        "unreplicated",
    )

    def __init__(self, config: LogConfig) -> None:
        self._entries: dict[int, bytes] = {}
        self._streaks: dict[int, BatchStreak] = {}
        self._open: dict[int, int] = {}
        self.unreplicated: list[tuple[int, int]] = []
        """A heap of (first offset, offset of the marker), with the transactions that have ended but are not replicated.
        """
        self.first_unstable_offset = NOTHING_UNSTABLE
        self.counters = ProducerCounters()
        self.update_config(config)

    def __len__(self) -> int:
        return len(self._entries)

    def highest_id(self, at_most: int) -> int:
        """Return the highest known producer id that is not above `at_most`; -1 if there is none. The search takes time
        proportional to the number of producers.
        """
        highest = max(self._entries, default=-1)
        return highest if highest <= at_most else max((each for each in self._entries if each <= at_most), default=-1)

    def update_config(self, config: LogConfig) -> None:
        self._is_strict = config.idempotence_duplicate_classification != KAFKA
        self._is_legacy = config.idempotence_unknown_producer == LEGACY_2_0

    # --- methods for data batches -------------------------------------------------------------------------------------

    def prepare_append(
        self, header: HeaderFields, base_offset: int, timestamp: int, transaction_version: int = 0
    ) -> bytes | BatchStreak | DuplicateBatch:
        """Check a data batch before it is appended at `base_offset`. Returns the producer's new entry or streak
        (batches since the last entry), which the caller passes to `adopt`; or a `DuplicateBatch` if the batch is a
        duplicate.

        A batch without a sequence comes from a coordinator: only its producer epoch is checked. Raises
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, INVALID_TXN_STATE,
        TRANSACTION_ABORTABLE, UNKNOWN_PRODUCER_ID (for sequences of a transaction that has ended, and in `legacy-2.0`
        mode for every unknown producer).
        """
        _, _, _, _, _, attributes, _, _, _, producer_id, epoch, sequence, _ = header
        is_transactional = attributes & TRANSACTIONAL_BIT
        streak = self._streaks.get(producer_id)
        if streak is not None:
            if sequence == streak.next_sequence and epoch == streak.epoch and is_transactional == streak.transactional:
                return streak
            self._end_streak(producer_id)
        # First check whether the batch has the next sequence, then whether it is a duplicate. A batch with the next
        # sequence could be a duplicate only if the last five batches had 2^31 records.
        entry = self._entries.get(producer_id)
        coordinator_epoch, first_offset, known, past = NO_COORDINATOR_EPOCH, NO_OFFSET, 0, b""
        if entry is None:
            if sequence > 0:
                self._check_unknown(header, transaction_version)
        else:
            last_epoch, last, coordinator_epoch, first_offset, known = EXPECTED.unpack_from(entry)
            if epoch != last_epoch:
                self._check_epoch(header, last_epoch)
                known = 0
            elif in_sequence(last, sequence) or sequence < 0:
                if last >= 0:
                    past = past_batches(entry)
                else:
                    known = 0
            elif known == ANY_SEQUENCE:
                self._check_unknown(header, transaction_version)
                known = 0
            else:
                return self._out_of_sequence(header, entry)
            if first_offset >= 0 and not is_transactional:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"producer {producer_id} has a transaction open since offset {first_offset}: "
                    "its batches must be transactional",
                )
            if first_offset >= 0 and epoch != last_epoch:
                # The coordinator ends the transaction of an epoch before it lets the next epoch write, so it does not
                # know the open transaction. Its records must not share the fate of the new transaction. The producer
                # aborts, and the marker ends the open transaction, too. (After INVALID_TXN_STATE in the response to
                # TxnOffsetCommit, a Java producer would not abort, but fail for good.)
                raise KafkaError(
                    ErrorCode.TRANSACTION_ABORTABLE,
                    f"producer {producer_id} has a transaction of epoch {last_epoch} open since offset {first_offset}, "
                    f"which no marker has ended: epoch {epoch} must abort it",
                )
        if is_transactional and first_offset < 0:
            first_offset, known = base_offset, 0
        return entry_after(header, base_offset, timestamp, coordinator_epoch, first_offset, known, past)

    def adopt(self, prepared: bytes | BatchStreak, header: HeaderFields, base_offset: int, timestamp: int) -> None:
        """Update the state after the append of the batch for which `prepare_append` returned `prepared`."""
        if isinstance(prepared, BatchStreak):
            prepared.next_sequence = header[BASE_SEQUENCE] + header[LAST_OFFSET_DELTA] + 1
            prepared.batches.append((header, base_offset, timestamp))
            return
        producer_id = header[PRODUCER_ID]
        self._entries[producer_id] = prepared
        if header[ATTRIBUTES] & TRANSACTIONAL_BIT and producer_id not in self._open:
            self._open[producer_id] = base_offset
            if base_offset < self.first_unstable_offset:
                self.first_unstable_offset = base_offset
        elif remembers_past(prepared) and len(self._streaks) < MAX_STREAKS:
            self._streaks[producer_id] = BatchStreak(prepared, header)

    def follow(self, header: HeaderFields) -> None:
        """Record a data batch fetched from a leader, with its offsets; the batch is accepted whatever state this log
        has for the producer (E27).
        """
        base_offset, _, _, _, _, attributes, _, _, timestamp, producer_id, epoch, sequence, _ = header
        self._end_streak(producer_id)
        coordinator_epoch, first_offset, known, past = NO_COORDINATOR_EPOCH, NO_OFFSET, 0, b""
        entry = self._entries.get(producer_id)
        if entry is not None:
            last_epoch, last, coordinator_epoch, first_offset, known = EXPECTED.unpack_from(entry)
            if epoch != last_epoch or last < 0 or not in_sequence(last, sequence):
                known = 0
            if epoch == last_epoch and last >= 0:
                past = past_batches(entry)
        if attributes & TRANSACTIONAL_BIT and first_offset < 0:
            first_offset, known = base_offset, 0
        entry = entry_after(header, base_offset, timestamp, coordinator_epoch, first_offset, known, past)
        self.adopt(entry, header, base_offset, timestamp)

    def _end_streak(self, producer_id: int) -> None:
        """Add the batches of the producer's streak (its batches since its entry was created) to the entry, and remove
        the streak.
        """
        streak = self._streaks.pop(producer_id, None)
        if streak is not None:
            self._entries[producer_id] = streak.settle()

    def _end_streaks(self) -> None:
        for producer_id in list(self._streaks):
            self._end_streak(producer_id)

    def _check_unknown(self, header: HeaderFields, transaction_version: int) -> None:
        """Accept any sequence from an unknown producer, because its state may have expired, or its records may have
        been deleted (E16). With transactions V2, every transaction begins at sequence 0, so no other sequence is
        accepted.
        """
        producer_id, sequence = header[PRODUCER_ID], header[BASE_SEQUENCE]
        if transaction_version >= TRANSACTIONS_V2 and header[ATTRIBUTES] & TRANSACTIONAL_BIT:
            self.counters.gaps += 1
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} is unknown in this partition, so its transaction must begin at "
                f"sequence 0, not {sequence}",
            )
        if self._is_legacy:
            raise KafkaError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"producer {producer_id} is unknown, but its batch has sequence {sequence}",
            )

    def _check_epoch(self, header: HeaderFields, last_epoch: int) -> None:
        """Refuse a lower epoch: the producer is fenced. A higher epoch must begin at sequence 0; a producer may raise
        its own epoch (S9).
        """
        producer_id, epoch, sequence = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
        if epoch < last_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {last_epoch}, not {epoch}"
            )
        if sequence > 0:
            self.counters.gaps += 1
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"epoch {epoch} of producer {producer_id} must begin at sequence 0, not {sequence}",
            )

    def _out_of_sequence(self, header: HeaderFields, entry: bytes) -> DuplicateBatch:
        """Decide whether a batch of the current epoch that does not have the next sequence is a duplicate or an error
        (S8, S9, S12, E33).
        """
        delta, producer_id, sequence = header[LAST_OFFSET_DELTA], header[PRODUCER_ID], header[BASE_SEQUENCE]
        wanted = increment_sequence(sequence, delta)
        _, _, last, _, _, _, _, first_offset, known, _ = HEAD.unpack_from(entry)
        is_transactional = self._is_strict and header[ATTRIBUTES] & TRANSACTIONAL_BIT
        back = decrement_sequence(last, sequence)
        for known_last, last_offset, last_delta, timestamp in batches(entry):
            if is_transactional and not 0 <= first_offset <= last_offset:
                if decrement_sequence(known_last, sequence) <= last_delta and delta <= back:
                    raise self._used_before(header)
            elif known_last == wanted and last_delta == delta:
                self.counters.duplicates += 1
                return DuplicateBatch(last_offset - last_delta, timestamp)
        # A batch is a certain duplicate only if this log is known to have its sequences; while a transaction is open,
        # only the sequences of that transaction count. A sequence below the last sequence does not prove a duplicate:
        # after a loss of state, an earlier batch may never have arrived, and treating that batch as a duplicate would
        # lose its records.
        if self._is_strict and last >= 0 and delta <= back < known:
            if is_transactional and first_offset < 0:
                raise self._used_before(header)
            self.counters.old_duplicates += 1
            raise KafkaError(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {producer_id}: sequences {sequence} to {wanted} are in the log, which is at {last}",
            )
        self.counters.gaps += 1
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id}: sequence {sequence} where {increment_sequence(last, 1)} was expected",
        )

    def _used_before(self, header: HeaderFields) -> KafkaError:
        """Return the error for a batch with new records, but with sequences that were used in a transaction that has
        ended. Kafka mistakes such a batch for the old batch, and loses the records of the new transaction (E33). A
        producer that receives UNKNOWN_PRODUCER_ID aborts its transaction, and continues with a new epoch.
        """
        self.counters.gaps += 1
        return KafkaError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"producer {header[PRODUCER_ID]} used sequence {header[BASE_SEQUENCE]} in a transaction that has ended",
        )

    # --- methods for transaction markers ------------------------------------------------------------------------------

    def prepare_marker(
        self,
        producer_id: int,
        epoch: int,
        marker: EndTransactionMarker,
        timestamp: int,
        transaction_version: int = 0,
    ) -> bytes:
        """Check a transaction marker before it is appended. Returns the producer's new entry, which the caller passes
        to `complete`.

        Raises TRANSACTION_COORDINATOR_FENCED (S40), INVALID_PRODUCER_EPOCH; with transactions V2,
        INVALID_PRODUCER_EPOCH is also raised for the current epoch, because a V2 marker must have a higher epoch than
        its transaction.
        """
        if producer_id in self._streaks:
            self._end_streak(producer_id)
        entry = self._entries.get(producer_id)
        if entry is not None:
            last_epoch, coordinator_epoch = (head := HEAD.unpack_from(entry))[1], head[6]
            if epoch < last_epoch or (epoch == last_epoch and transaction_version >= TRANSACTIONS_V2):
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"a marker with epoch {epoch} for producer {producer_id}, whose current epoch is {last_epoch}",
                )
            if marker.coordinator_epoch < coordinator_epoch:
                raise KafkaError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"a marker of coordinator epoch {marker.coordinator_epoch} for producer {producer_id}, "
                    f"whose coordinator epoch is already {coordinator_epoch}",
                )
        return entry_after_marker(producer_id, epoch, marker.coordinator_epoch, timestamp, entry)

    def complete(
        self, producer_id: int, entry: bytes, marker: EndTransactionMarker, marker_offset: int
    ) -> EndedTransaction | None:
        """Update the state after the append of the marker for which `prepare_marker` returned `entry`. Returns the
        transaction that the marker aborted; None if the marker aborted no transaction (S39).
        """
        self._entries[producer_id] = entry
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        # `first_unstable_offset` is unchanged, because this transaction is not replicated yet.
        heappush(self.unreplicated, (first_offset, marker_offset))
        if marker.control_type is ControlType.COMMIT:
            return None
        last_stable_offset = next(iter(self._open.values()), marker_offset + 1)
        return EndedTransaction(producer_id, first_offset, marker_offset, last_stable_offset)

    def follow_marker(
        self, producer_id: int, epoch: int, marker: EndTransactionMarker, timestamp: int, offset: int
    ) -> EndedTransaction | None:
        """Record a marker that was fetched from a leader, without checking the marker. Returns the transaction that the
        marker
        aborted, or None.
        """
        self._end_streak(producer_id)
        entry = self._entries.get(producer_id)
        entry = entry_after_marker(producer_id, epoch, marker.coordinator_epoch, timestamp, entry)
        return self.complete(producer_id, entry, marker, offset)

    # --- methods for the transactions of the log ----------------------------------------------------------------------

    def on_high_watermark(self, high_watermark: int) -> None:
        """Remove the ended transactions whose markers are below `high_watermark`, and therefore replicated."""
        unreplicated = self.unreplicated
        if unreplicated:
            # Only the top of the heap must be checked: all other transactions have larger first offsets, so they do not
            # change `first_unstable_offset` yet.
            while unreplicated and unreplicated[0][1] < high_watermark:
                heappop(unreplicated)
            if not unreplicated:  # as `_find_first_unstable`, but without a call
                self.first_unstable_offset = next(iter(self._open.values()), NOTHING_UNSTABLE)
            else:
                self._find_first_unstable()

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction of exactly this epoch. Batches of such a transaction need not be
        verified with the coordinator again (KIP-890).
        """
        streak = self._streaks.get(producer_id)
        if streak is not None:
            return streak.transactional != 0 and streak.epoch == epoch
        return producer_id in self._open and EXPECTED.unpack_from(self._entries[producer_id])[0] == epoch

    def _find_first_unstable(self) -> None:
        first = next(iter(self._open.values()), NOTHING_UNSTABLE)
        if self.unreplicated:
            first = min(first, self.unreplicated[0][0])
        self.first_unstable_offset = first

    # --- methods for the entries of all producers ---------------------------------------------------------------------

    @property
    def open_transactions(self) -> int:
        """The number of producers that have an open transaction in this log."""
        return len(self._open)

    @property
    def oldest_open(self) -> ProducerStateEntry | None:
        """The state of the producer whose open transaction began first in this log; None if no transaction is open."""
        producer_id = next(iter(self._open), None)
        return None if producer_id is None else self.get(producer_id)

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        self._end_streak(producer_id)
        entry = self._entries.get(producer_id)
        return None if entry is None else describe(entry)

    def coordinator_epoch(self, producer_id: int) -> int:
        """Return the epoch of the last coordinator that ended a transaction of this producer in this log; -1 if no
        transaction has ended.
        """
        entry = self._entries.get(producer_id)
        return NO_COORDINATOR_EPOCH if entry is None else int(EXPECTED.unpack_from(entry)[2])

    def takes_any_sequence(self, producer_id: int) -> bool:
        """Whether no batch of the producer is known: either the producer is unknown, or the log has only its
        markers.
        """
        if producer_id in self._streaks:
            return False
        entry = self._entries.get(producer_id)
        return entry is None or EXPECTED.unpack_from(entry)[-1] == ANY_SEQUENCE

    def producers(self) -> Iterator[ProducerStateEntry]:
        """Return the states of all producers, for DescribeProducers. The state must not change during the iteration."""
        self._end_streaks()
        return map(describe, self._entries.values())

    def image(self) -> list[bytes]:
        """Return all entries as they are now; this is cheap because entries are immutable. When the log rolls, this
        method is called between `prepare_append` and `adopt`; this does not end any streak (batches not yet in an
        entry).
        """
        for producer_id, streak in self._streaks.items():
            self._entries[producer_id] = streak.settle()
        return list(self._entries.values())

    def restore(self, entries: Iterable[bytes]) -> None:
        """Replace the state by the entries of a snapshot. A transaction is open afterwards if it is open in its
        producer's entry.
        """
        self._entries, self._streaks, still_open = {}, {}, []
        for entry in entries:
            producer_id, _, _, _, _, _, _, first_offset = SNAPSHOT_ENTRY.unpack_from(entry)
            self._entries[producer_id] = entry
            if first_offset >= 0:
                still_open.append((first_offset, producer_id))
        self._open = {producer_id: first_offset for first_offset, producer_id in sorted(still_open)}
        self.unreplicated = []
        self._find_first_unstable()

    def hold_back(self, ended: Iterable[tuple[int, int]]) -> None:
        """Keep `first_unstable_offset` at or below the first offsets of these transactions until their markers are
        below the high watermark that `on_high_watermark` gets. `ended` has (first offset, offset of the marker) of each
        transaction that has ended, but whose marker may not be replicated yet.
        """
        for pair in ended:
            heappush(self.unreplicated, pair)
        self._find_first_unstable()

    def end_transactions_before(self, offset: int, begun: Mapping[int, int]) -> None:
        """Mark the transactions that began below `offset` as ended; compaction may have removed their markers. `begun`
        maps a producer
        id to the first offset of a later transaction that this producer has open.
        """
        for producer_id, first_offset in list(self._open.items()):
            if first_offset < offset:
                self._end_streak(producer_id)
                began_at = begun.get(producer_id, NO_OFFSET)
                self._entries[producer_id] = with_transaction_from(self._entries[producer_id], began_at)
                del self._open[producer_id]
                if began_at != NO_OFFSET:
                    self._open[producer_id] = began_at
        self._open = dict(sorted(self._open.items(), key=itemgetter(1)))
        self._find_first_unstable()

    def expire(self, now_ms: int, expiration_ms: int, written_below: int = LONG_MAX) -> Iterator[int]:
        """Forget the producers whose last batch or marker has a timestamp at least `expiration_ms` ago.

        A producer expires only if its last batch is below `written_below`, because later batches were written recently,
        whatever their timestamps. A producer with an open transaction never expires (S56). After every `EXPIRY_SLICE`
        producers, yields the number of forgotten producers so far; batches may be appended between two steps.
        """
        ids, newest, gone = list(self._entries), now_ms - expiration_ms, 0
        for start in range(0, len(ids), EXPIRY_SLICE):
            self._end_streaks()
            for producer_id in ids[start : start + EXPIRY_SLICE]:
                entry = self._entries.get(producer_id)
                if entry is None:
                    continue
                last_offset, timestamp, _, first_offset = EXPIRY.unpack_from(entry)
                if timestamp <= newest and first_offset < 0 and last_offset < written_below:
                    del self._entries[producer_id]
                    gone += 1
            yield gone
        if gone > len(self._entries):
            self._entries = dict(self._entries)  # a copy is smaller: a dictionary never shrinks
