"""The sequence numbers of one partition: stamps batches, tracks unacknowledged batches, and decides when to renumber
(S21-S24, S26, S27). Pure.

While a batch of the partition is in flight, no batch is renumbered, because the response to the batch in flight may
show which batches are in the log. `settle` decides when no batch is in flight. Kafka's client, in contrast, renumbers
immediately by raising the epoch of an idempotent producer. This producer reuses a sequence number only if no attempt
with that number can still arrive; if an attempt may still arrive, the batch is sent again unchanged, and the response
shows whether it was written. If only a new epoch helps, batches that may still arrive under the old epoch are not sent
under the new epoch. Kafka's client does send such batches again, so their records may be in the log twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from oncelog.config import MAX_IDEMPOTENT_IN_FLIGHT
from oncelog.producer.batch import ProducerBatch
from oncelog_protocol.producer_id import NO_IDENTITY, ProducerIdAndEpoch
from oncelog_protocol.records.sequence import increment_sequence

NOTHING_ACKNOWLEDGED: Final = -1
REMEMBERED_SECONDS: Final = 60.0
"""A broker certainly remembers a producer for this many seconds after its last batch; the value is far below
producer.id.expiration.ms.
"""


class PartitionSequences:
    """Invariants: `unacknowledged` has every stamped batch without a final result, oldest first. The sequence numbers
    of these batches are consecutive up to `next_sequence`, except where a batch in between was given up. In that case
    `has_gap` (the batch is certainly not in the log) or `is_unresolved` (the batch may be in the log) is set until
    `settle` has decided, and no new batch is stamped meanwhile.
    """

    __slots__ = (
        "_farthest",
        "_is_over",
        "_known_until",
        "_refused",
        "acknowledged_end",
        "has_gap",
        "identity",
        "is_unresolved",
        "last_acknowledged_offset",
        "needs_restart",
        "next_sequence",
        "unacknowledged",
    )

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.unacknowledged: deque[ProducerBatch] = deque()
        self.restart(NO_IDENTITY)

    def restart(self, identity: ProducerIdAndEpoch) -> None:
        """Restart at sequence 0 under `identity`, whose epoch makes brokers refuse all earlier attempts, so that no
        earlier attempt can be appended late.
        """
        self.identity = identity
        self.next_sequence = 0
        self.acknowledged_end = 0
        self.last_acknowledged_offset = NOTHING_ACKNOWLEDGED
        self.has_gap = self.is_unresolved = self.needs_restart = self._is_over = False
        self._refused: ProducerBatch | None = None
        self._farthest: tuple[int, ...] = ()
        self._known_until = float("-inf")
        for batch in self.unacknowledged:
            batch.is_maybe_written = False
            self._number(batch)

    @property
    def needs_settling(self) -> bool:
        """Whether the partition has a gap, an unresolved batch, a refused batch or a pending restart."""
        return self.has_gap or self.is_unresolved or self.needs_restart or self._is_over or self._refused is not None

    def may_drain(self, batch: ProducerBatch, *, is_start_checked: bool = False) -> bool:
        """Return whether the first batch of the partition's queue may be sent. A batch that already has a sequence
        number (it was sent before) may be sent only as the first unacknowledged batch of its partition. A new batch
        needs a sequence number that is certainly free (S24, S25), and at most as many batches may
        be unacknowledged as the broker remembers (S14).

        Later batches may be acknowledged before an earlier batch, for example if the leader has moved while the
        connection to the old leader hangs. The earlier batch then blocks new batches, because the broker must still
        remember it when it is sent again (E15).

        Without transactions V2 (`is_start_checked` is False), a broker that does not know the producer accepts any
        first sequence. If the broker refused the first batch, it could then append the second batch before the first.
        Without transactions V2, the first batch of a session is therefore sent alone.
        """
        waiting = self.unacknowledged
        if batch.is_stamped:
            return bool(waiting) and waiting[0] is batch
        if self.is_unresolved or self.has_gap or self.needs_restart:
            return False
        if not waiting:
            return True
        if waiting[0].base_sequence != self.acknowledged_end:
            return False
        is_known = is_start_checked or batch.created < self._known_until
        return is_known and len(waiting) < MAX_IDEMPOTENT_IN_FLIGHT

    def stamp(self, batch: ProducerBatch) -> None:
        """Assign identity and sequence number to a batch that is drained for the first time."""
        if batch.is_stamped:
            raise RuntimeError(f"{batch.topic}-{batch.partition}: a batch is stamped once (S21)")
        self._number(batch)
        self.unacknowledged.append(batch)

    def check_tracked(self, batch: ProducerBatch) -> None:
        """Raise RuntimeError for a batch that must not be queued again (S23)."""
        if not batch.is_stamped or batch not in self.unacknowledged:
            raise RuntimeError(f"{batch.topic}-{batch.partition}: only stamped batches in flight are sent again (S23)")

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """Record that the batch is in the log; `base_offset` is -1 if unknown (S28)."""
        if not self._forget(batch):
            return
        if batch.order > self._farthest:
            self._farthest = batch.order
            self.acknowledged_end = batch.end_sequence
        self._known_until = batch.created + REMEMBERED_SECONDS
        if base_offset >= 0:
            self.last_acknowledged_offset = max(self.last_acknowledged_offset, base_offset + batch.records_count - 1)

    def given_up(self, batch: ProducerBatch) -> None:
        """Record that the batch will not be sent again although it is not acknowledged."""
        if not self._forget(batch):
            return
        if batch.is_maybe_written:
            self.is_unresolved = True
        else:
            self.has_gap = True

    def split(self, batch: ProducerBatch, pieces: Iterable[ProducerBatch]) -> None:
        """Replace `batch`, which was too large, by `pieces`, which use its sequence numbers."""
        if batch not in self.unacknowledged:
            return
        index = self.unacknowledged.index(batch)
        del self.unacknowledged[index]
        sequence = batch.base_sequence
        for piece in pieces:
            piece.identity, piece.base_sequence = batch.identity, sequence
            sequence = increment_sequence(sequence, piece.records_count)
            self.unacknowledged.insert(index, piece)
            index += 1

    def refused(self, batch: ProducerBatch) -> None:
        """Record that the broker refused the batch with OUT_OF_ORDER_SEQUENCE_NUMBER. The error is stored only for the
        oldest unacknowledged batch, because the refusal of a later batch follows from a missing earlier batch (S28).
        """
        if self.unacknowledged and self.unacknowledged[0] is batch:
            self._refused = batch

    def session_is_over(self) -> None:
        """Record that the broker accepts no more batches under this identity."""
        self._is_over = True

    def settle(self) -> None:
        """Decide whether given-up batches (not acknowledged, and not sent again) are in the log, and renumber. Called
        when no batch of this partition is in flight.

        Sets `needs_restart` if only a new epoch helps.
        """
        self.needs_restart = self.needs_restart or self._is_over
        if self.needs_restart:
            return
        waiting = self.unacknowledged
        is_first_refused = bool(waiting) and self._refused is waiting[0]
        if self.is_unresolved:
            if waiting:
                # The response to the first waiting batch will show whether the given-up batches are in the log.
                self.needs_restart = self.needs_restart or is_first_refused
            elif self.acknowledged_end == self.next_sequence:
                self.is_unresolved = self.has_gap = False  # later batches are in the log, and so is the given-up batch
            else:
                self.needs_restart = True
        elif self.has_gap:
            if not any(batch.is_maybe_written for batch in waiting):
                self._close_gap()
            elif is_first_refused:
                self.needs_restart = True
        elif is_first_refused:
            self.needs_restart = True

    def _close_gap(self) -> None:
        """Give later batches the sequence numbers of the refused batches (S26, Kafka's
        adjustSequencesDueToFailedBatch).
        """
        self.has_gap = False
        self._refused = None
        self.next_sequence = self.acknowledged_end
        for batch in self.unacknowledged:
            self._number(batch)

    def _number(self, batch: ProducerBatch) -> None:
        batch.identity, batch.base_sequence = self.identity, self.next_sequence
        self.next_sequence = batch.end_sequence

    def _forget(self, batch: ProducerBatch) -> bool:
        waiting = self.unacknowledged
        if waiting and waiting[0] is batch:
            waiting.popleft()
        elif batch in waiting:
            waiting.remove(batch)
        else:
            return False
        if self._refused is batch:
            self._refused = None
        return True
