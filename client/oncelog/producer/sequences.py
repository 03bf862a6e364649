"""The sequence numbers of one partition: what is stamped on batches, which of them are not acknowledged yet, and when
they must be numbered anew (S21-S24, S26, S27). Pure.

While something of the partition is on the wire, nothing is renumbered: the answers that come may still tell which
batches the log has. `settle` decides when the wire is empty. Kafka's client renumbers at once and bumps the epoch of an
idempotent producer for it; here numbers are only taken back while no try of them can be anywhere, else the batch is
sent again as it is, and its answer tells. Where only a new epoch helps, what may still arrive under the old one is not
sent under the new one: Kafka's client sends it, and with bad luck it is in the log twice.
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
"""How long after its last batch a broker surely knows a producer still: far below producer.id.expiration.ms."""


class PartitionSequences:
    """Invariants: `unacknowledged` has every stamped batch without a final answer, oldest first. Their numbers follow
    one another up to `next_sequence`, except where a batch between them was given up: then `has_gap` (it is certainly
    not in the log) or `is_unresolved` (it may be) until that is settled, and no new batch is stamped.
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
        """Begin at 0 under `identity`, whose epoch fences whatever was sent before: nothing of it can arrive late."""
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
        """Whether there is something to settle."""
        return self.has_gap or self.is_unresolved or self.needs_restart or self._is_over or self._refused is not None

    def may_drain(self, batch: ProducerBatch, *, is_start_checked: bool = False) -> bool:
        """Whether the head of the queue may go: a stamped one as the first in flight, a new one if its number is
        certain (S24, S25), and the broker remembers as many as there are without an answer (S14).

        One whose answer is late, while those after it are acknowledged (the leader has moved, and its connection
        hangs), keeps new ones back: when it is sent again, the broker must remember it still (E15).

        Unless the start of a session `is_start_checked` (transactions V2), a broker that does not know the producer
        takes whatever sequence comes first: if the first batch were refused, the second would be taken before it. So
        the first one goes alone.
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
        """Give a batch that is drained for the first time its numbers."""
        if batch.is_stamped:
            raise RuntimeError(f"{batch.topic}-{batch.partition}: a batch is stamped once (S21)")
        self._number(batch)
        self.unacknowledged.append(batch)

    def check_tracked(self, batch: ProducerBatch) -> None:
        """Raises RuntimeError for a batch that must not be put back into the queue (S23)."""
        if not batch.is_stamped or batch not in self.unacknowledged:
            raise RuntimeError(f"{batch.topic}-{batch.partition}: only stamped batches in flight are sent again (S23)")

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """The log has it; `base_offset` is -1 where the broker did not say where (S28)."""
        if not self._forget(batch):
            return
        if batch.order > self._farthest:
            self._farthest = batch.order
            self.acknowledged_end = batch.end_sequence
        self._known_until = batch.created + REMEMBERED_SECONDS
        if base_offset >= 0:
            self.last_acknowledged_offset = max(self.last_acknowledged_offset, base_offset + batch.records_count - 1)

    def given_up(self, batch: ProducerBatch) -> None:
        """It will not be sent again, though it is not acknowledged."""
        if not self._forget(batch):
            return
        if batch.is_maybe_written:
            self.is_unresolved = True
        else:
            self.has_gap = True

    def split(self, batch: ProducerBatch, pieces: Iterable[ProducerBatch]) -> None:
        """`pieces` take the place of `batch`, which was too large, and share its numbers."""
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
        """The broker finds it out of order. That says something only of the first one without an answer: behind it,
        the others have to be (S28)."""
        if self.unacknowledged and self.unacknowledged[0] is batch:
            self._refused = batch

    def session_is_over(self) -> None:
        """The broker will take nothing more under this identity."""
        self._is_over = True

    def settle(self) -> None:
        """Nothing of this partition is on the wire: is what was given up in the log, and what are the numbers now?

        Sets `needs_restart` where only a new epoch helps.
        """
        self.needs_restart = self.needs_restart or self._is_over
        if self.needs_restart:
            return
        waiting = self.unacknowledged
        is_first_refused = bool(waiting) and self._refused is waiting[0]
        if self.is_unresolved:
            if waiting:
                self.needs_restart = self.needs_restart or is_first_refused  # else it is sent, and its answer tells
            elif self.acknowledged_end == self.next_sequence:
                self.is_unresolved = self.has_gap = False  # what came after it is in the log, so it is too
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
        """S26 (adjustSequencesDueToFailedBatch): the numbers of what was refused for good go to what comes after it."""
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
