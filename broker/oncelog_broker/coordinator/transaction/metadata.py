"""The state of one transactional id at its coordinator, and the possible transitions. Pure.

A TransactionMetadata is immutable. Each transition returns new metadata, which is logged; `replay` then replaces the
previous metadata. A failed append therefore changes nothing in memory, and a transition that is retried does not raise
an epoch twice (E12).

While a transaction is open there are two pairs of producer id and epoch (KIP-939, S120):

- `producer` is the pair in the transaction's records; the markers have the same producer id with the next epoch.
- `client` is the owner's pair: only this pair may end the transaction. `producer` and `client` are equal until a new
  owner takes over the open transaction (`taken_over`); after that, `producer` is fenced.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from oncelog_broker.coordinator.effects import Interruption
from oncelog_broker.coordinator.transaction.states import TransactionState, check_transition
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.batch import NO_PRODUCER_ID

NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
EXHAUSTED_EPOCH: Final = 32766
"""The largest epoch that a producer can get (S35)."""
FENCING_EPOCH: Final = 32767
"""The epoch of markers that fence the producer with EXHAUSTED_EPOCH; no producer writes with this epoch."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The `timeout_ms` of transactions without a timeout (two-phase commit), as Kafka logs it (S120)."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class NeedsProducerId(Interruption):
    """Raised by a step (call of the state machine) that needs a new producer id, whose allocation takes time. The
    caller must allocate a producer id and run the step again.
    """


def is_exhausted(epoch: int) -> bool:
    return epoch >= EXHAUSTED_EPOCH


def next_producer(producer: ProducerIdAndEpoch, spare_producer_id: int | None) -> ProducerIdAndEpoch:
    """Return the next producer id and epoch for the owner of `producer`: the next epoch, or epoch 0 of
    `spare_producer_id` when the epochs are exhausted (S35). Raises NeedsProducerId.
    """
    if not is_exhausted(producer.epoch):
        return ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    if spare_producer_id is None:
        raise NeedsProducerId
    return ProducerIdAndEpoch(spare_producer_id, 0)


class TransactionMetadata(NamedTuple):
    """The state of one transactional id.

    Invariants:

    - `partitions` is empty unless a transaction is open or prepared.
    - `next_producer_id` may be set in PrepareCommit or PrepareAbort, and also in Ongoing if a new owner has taken the
      transaction over. `next_producer_id` is always set while the epoch is FENCING_EPOCH, except in records that Kafka
      has logged. A transactional id with FENCING_EPOCH and without a next producer id has no owner until InitProducerId
      assigns a new producer id.
    - `next_producer_epoch` is set only together with `next_producer_id`, in Ongoing and PrepareCommit or PrepareAbort,
      if a new owner has taken the transaction over. `next_producer_epoch` is larger than `producer_epoch`, unless
      `next_producer_id` is another producer id.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp: int = NO_TIMESTAMP
    """Wall time in ms at which the transaction began; NO_TIMESTAMP if no transaction was begun."""
    last_update_timestamp: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = TRANSACTIONS_V1
    last_epoch: int = NO_EPOCH
    """The previous epoch of the same producer; NO_EPOCH if there is none, or if a transaction has begun since the
    producer got its present epoch. A producer that sends this epoch repeats a request whose response was lost
    (KIP-360). The field exists only in memory, because Kafka's log format has no such field."""
    next_producer_epoch: int = NO_EPOCH
    """The producer epoch of the owner that has taken over the open transaction; the owner's producer id is
    `next_producer_id`. NO_EPOCH if no new owner has taken over the transaction.
    """
    next_timeout_ms: int = NO_TIMEOUT_MS
    """The timeout in ms that the new owner of a taken-over transaction requested. If it is shorter than `timeout_ms`,
    it applies only from the owner's next transaction on. The field exists only in memory, because Kafka's log format
    has no such field. If the coordinator moves during the transaction, the owner keeps the longer timeout until its
    next InitProducerId."""

    def __repr__(self) -> str:
        return (
            f"TransactionMetadata({self.transactional_id!r}, producer {self.producer_id} epoch {self.producer_epoch}, "
            f"{self.state.shown}, {len(self.partitions)} partitions)"
        )

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_taken_over(self) -> bool:
        """Whether a new owner has taken over the transaction. This owner did not write the transaction's records, and
        may only commit or abort the transaction.
        """
        return self.next_producer_epoch != NO_EPOCH

    @property
    def client(self) -> ProducerIdAndEpoch:
        """The owner's producer id and epoch. Only the owner may end the transaction, or begin a transaction if none is
        open."""
        if self.next_producer_epoch != NO_EPOCH:  # the condition of `is_taken_over`, repeated here to save a call
            return ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def has_timeout(self) -> bool:
        """Whether a transaction is aborted when it has been open for longer than `timeout_ms`."""
        return self.timeout_ms != NO_TIMEOUT_MS

    def belongs_to(self, asking: ProducerIdAndEpoch) -> bool:
        """Whether `asking` is the owner's producer id and epoch."""
        return asking == self.client and asking.epoch <= EXHAUSTED_EPOCH

    def is_of(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this is the producer id and epoch of the records and of the owner, so that no new owner has taken
        over the transaction.
        """
        return (
            producer_id == self.producer_id
            and producer_epoch == self.producer_epoch <= EXHAUSTED_EPOCH
            and self.next_producer_epoch == NO_EPOCH
        )

    @property
    def is_v2(self) -> bool:
        return self.client_transaction_version >= TRANSACTIONS_V2

    @property
    def producer_when_complete(self) -> ProducerIdAndEpoch:
        """The producer id and epoch for the owner's next transaction, when the present transaction is in PrepareCommit
        or PrepareAbort.
        """
        if self.next_producer_epoch != NO_EPOCH or self.next_producer_id == NO_PRODUCER_ID:
            return self.client  # of a new owner, or of the producer
        return ProducerIdAndEpoch(self.next_producer_id, 0)

    def _to(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        """Return the metadata in the new state, with these changes. Every transition calls this method. Raises
        IllegalTransition.
        """
        check_transition(self.transactional_id, self.state, state)
        if "previous_producer_id" not in changes:
            changes["previous_producer_id"] = self.client.producer_id
        return self._replace(state=state, last_update_timestamp=now_ms, **changes)

    # --- transitions by InitProducerId --------------------------------------------------------------------------------

    def reinitialised(
        self, timeout_ms: int, now_ms: int, spare_producer_id: int | None, *, last_epoch: int = NO_EPOCH
    ) -> TransactionMetadata:
        """Give the owner of the transactional id its next producer id and epoch (S34). The owner is a new producer, or
        the present producer, which sends `last_epoch`. Raises NeedsProducerId.
        """
        producer = next_producer(self.producer, spare_producer_id)
        return self._to(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            next_timeout_ms=NO_TIMEOUT_MS,
            start_timestamp=NO_TIMESTAMP,
            next_producer_id=NO_PRODUCER_ID,
        )

    def granted_again(self, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Give the owner its present producer id and epoch, which it does not know yet: the response was lost, or the
        owner's request has aborted the owner's open transaction. As after every successful InitProducerId, the timeout
        is that of the request, and a late EndTxn with the previous epoch is fenced.
        """
        return self._to(
            TransactionState.EMPTY,
            now_ms,
            previous_producer_id=self.previous_producer_id,
            timeout_ms=timeout_ms,
            start_timestamp=NO_TIMESTAMP,
        )

    def taken_over(self, timeout_ms: int, now_ms: int, spare_producer_id: int | None) -> TransactionMetadata:
        """Give the unchanged open transaction to a new owner, which can only end the transaction (KIP-939). Raises
        NeedsProducerId.

        The timeout of the open transaction is never shortened, because the transaction may be older than the new
        owner's timeout. The new owner's timeout applies from the next transaction on.
        """
        client = next_producer(self.client, spare_producer_id)
        return self._to(
            TransactionState.ONGOING,
            now_ms,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=client.producer_id,
            next_producer_epoch=client.epoch,
            last_epoch=NO_EPOCH,
            timeout_ms=max(timeout_ms, self.timeout_ms),
            next_timeout_ms=timeout_ms,
        )

    # --- transitions that begin and end a transaction

    def with_partitions(
        self, added: frozenset[TopicPartition], now_ms: int, client_transaction_version: int
    ) -> TransactionMetadata:
        """Add partitions to the transaction; adding the first partitions begins the transaction (S36)."""
        is_open = self.state is TransactionState.ONGOING
        if not is_open:
            check_transition(self.transactional_id, self.state, TransactionState.ONGOING)
        is_taken_over = self.next_producer_epoch != NO_EPOCH
        return TransactionMetadata(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            timeout_ms=self.timeout_ms,
            state=TransactionState.ONGOING,
            partitions=self.partitions | added if self.partitions else added,
            start_timestamp=self.start_timestamp if is_open else now_ms,
            last_update_timestamp=now_ms,
            previous_producer_id=self.next_producer_id if is_taken_over else self.producer_id,  # the owner's
            client_transaction_version=client_transaction_version,
            next_producer_epoch=self.next_producer_epoch,
            next_timeout_ms=self.next_timeout_ms,
        )

    def prepared(
        self, commits: bool, now_ms: int, client_transaction_version: int, spare_producer_id: int | None = None
    ) -> TransactionMetadata:
        """Set the outcome (commit or abort) of the transaction. Under transactions V2 the producer epoch is raised, so
        that the markers fence late requests of this transaction (S39). Raises NeedsProducerId.
        """
        state = TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
        is_v2 = client_transaction_version >= TRANSACTIONS_V2
        if (
            self.state is TransactionState.ONGOING
            and self.next_producer_epoch == NO_EPOCH
            and self.producer_epoch < EXHAUSTED_EPOCH
        ):
            # The usual case, in which the code below would return the same.
            return TransactionMetadata(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch + 1 if is_v2 else self.producer_epoch,
                timeout_ms=self.timeout_ms,
                state=state,
                partitions=self.partitions,
                start_timestamp=self.start_timestamp,
                last_update_timestamp=now_ms,
                previous_producer_id=self.producer_id,
                client_transaction_version=client_transaction_version,
                last_epoch=self.producer_epoch if is_v2 else self.last_epoch,
                next_timeout_ms=self.next_timeout_ms,
            )
        changes: dict[str, Any] = {}
        if is_v2:
            changes = {**self._raised(spare_producer_id), "last_epoch": self.client.epoch}
        elif not self.is_taken_over:
            changes = {"next_producer_id": NO_PRODUCER_ID}
        if self.state is not TransactionState.ONGOING:  # an abort without an open transaction: it starts now
            changes["start_timestamp"] = now_ms
        return self._to(
            state,
            now_ms,
            **{"client_transaction_version": client_transaction_version, **changes},
        )

    def fenced(self, now_ms: int, spare_producer_id: int | None, *, last_epoch: int = NO_EPOCH) -> TransactionMetadata:
        """Abort the open transaction and fence its owner by raising the epoch, under V1 and V2 (S42). Raises
        NeedsProducerId."""
        changes = self._raised(spare_producer_id)
        fence = self._to(TransactionState.PREPARE_EPOCH_FENCE, now_ms)
        return fence._to(TransactionState.PREPARE_ABORT, now_ms, last_epoch=last_epoch, **changes)

    def _raised(self, spare_producer_id: int | None) -> dict[str, Any]:
        """Return the changed fields when a decision raises the epoch: the epoch of the markers, and the owner's next
        producer id and epoch.

        For a taken-over transaction two epochs are raised. The epoch of the markers is the epoch of the records plus 1.
        The owner's next epoch is the epoch of the request that ends the transaction plus 1. If only the markers' epoch
        were raised, a late copy of the EndTxn request could end the owner's next transaction.
        """
        after = next_producer(self.client, spare_producer_id)
        if not self.is_taken_over and after.producer_id == self.producer_id:
            return {"producer_epoch": after.epoch, "next_producer_id": NO_PRODUCER_ID}
        changes: dict[str, Any] = {
            "producer_epoch": min(self.producer_epoch + 1, FENCING_EPOCH),
            "next_producer_id": after.producer_id,
            "next_producer_epoch": after.epoch if self.is_taken_over else NO_EPOCH,
        }
        if self.producer_epoch == FENCING_EPOCH:
            # A transaction can be open with the highest producer epoch only if Kafka logged it. Under transactions V2,
            # markers must have a higher epoch than the records, which is impossible for this transaction.
            changes["client_transaction_version"] = TRANSACTIONS_V1
        return changes

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Complete the transaction after all markers are written."""
        commits = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
        check_transition(self.transactional_id, self.state, state)
        producer_id, producer_epoch, timeout_ms = self.producer_id, self.producer_epoch, self.timeout_ms
        if self.next_producer_id != NO_PRODUCER_ID:
            producer_id, producer_epoch = self.producer_when_complete
        return TransactionMetadata(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timeout_ms=timeout_ms if timeout_ms < self.next_timeout_ms else self.next_timeout_ms,
            state=state,
            start_timestamp=self.start_timestamp,
            last_update_timestamp=now_ms,
            previous_producer_id=self.producer_id
            if self.next_producer_epoch == NO_EPOCH
            else self.previous_producer_id,
            client_transaction_version=self.client_transaction_version,
            last_epoch=self.last_epoch,
        )

    def check_expirable(self) -> None:
        """Raises IllegalTransition if the transactional id is in a state in which it must not be removed (replaced by a
        tombstone)."""
        check_transition(self.transactional_id, self.state, TransactionState.DEAD)
