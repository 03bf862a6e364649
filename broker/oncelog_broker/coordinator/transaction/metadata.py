"""One transactional id in its coordinator, and its possible transitions. Pure.

A TransactionMetadata is immutable: each transition returns the next one, which is logged, and with which `replay` then
replaces this one. So a failed append leaves no trace, and no epoch is bumped twice for it (E12).

While a transaction is open there are two pairs of producer id and epoch (KIP-939, S120):

- `producer`, the transaction's: its records carry this pair, and its markers the same id with the next epoch.
- `client`, its owner's: only this pair may end the transaction. The two are the same until a new owner takes the open
  transaction over (`taken_over`); from then on the pair of the records is fenced.
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
"""The last epoch that a producer is given (S35)."""
FENCING_EPOCH: Final = 32767
"""Reserved for the markers that fence the last producer of a producer id: no producer writes with it."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The `timeout_ms` of transactions that are never aborted for their age: two-phase commit, as Kafka logs it (S120)."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class NeedsProducerId(Interruption):
    """This step needs a new producer id, which takes time: call the step again with one."""


def is_exhausted(epoch: int) -> bool:
    return epoch >= EXHAUSTED_EPOCH


def next_producer(producer: ProducerIdAndEpoch, spare_producer_id: int | None) -> ProducerIdAndEpoch:
    """The pair that the owner of `producer` uses next: the next epoch, or epoch 0 of `spare_producer_id` when the
    epochs are exhausted (S35). The only place where an epoch is raised. Raises NeedsProducerId."""
    if not is_exhausted(producer.epoch):
        return ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    if spare_producer_id is None:
        raise NeedsProducerId
    return ProducerIdAndEpoch(spare_producer_id, 0)


class TransactionMetadata(NamedTuple):
    """The state of one transactional id.

    Invariants:

    - `partitions` are empty unless a transaction is open or prepared.
    - `next_producer_id` is set in Prepare* and, if an owner has taken the transaction over, in Ongoing; it is always
      set while the epoch is FENCING_EPOCH. Records that Kafka has logged may break the last part: a transactional id
      with FENCING_EPOCH and without a next producer id has no owner until InitProducerId rotates it.
    - `next_producer_epoch` is set only with `next_producer_id`, in Ongoing and Prepare*, if an owner has taken the
      transaction over. It is larger than `producer_epoch`, or belongs to another producer id.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp: int = NO_TIMESTAMP
    """Wall time in ms."""
    last_update_timestamp: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = TRANSACTIONS_V1
    last_epoch: int = NO_EPOCH
    """The previous epoch, if the same producer had it: a producer that sends it repeats a request whose response was
    lost (KIP-360). Kept in memory only, as Kafka's log has no field for it."""
    next_producer_epoch: int = NO_EPOCH
    """With `next_producer_id` the `client` of a transaction that was taken over; NO_EPOCH if it was not."""
    next_timeout_ms: int = NO_TIMEOUT_MS
    """The timeout that the new owner of such a transaction asked for, if it is less than `timeout_ms`: it applies to
    its next transactions. Kept in memory only, as Kafka's log has no field for it: after a move of the coordinator amid
    such a transaction, the owner keeps the longer one until its next InitProducerId."""

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
        """Whether the owner is a later producer than the one that wrote the transaction's records, and may only end
        it."""
        return self.next_producer_epoch != NO_EPOCH

    @property
    def client(self) -> ProducerIdAndEpoch:
        """The owner's producer id and epoch: the only ones that may end the transaction, or begin one if none is
        open."""
        if self.next_producer_epoch != NO_EPOCH:  # `is_taken_over`, without the calls: asked with every request
            return ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def has_timeout(self) -> bool:
        """Whether its transactions are aborted when they are open for longer than `timeout_ms`."""
        return self.timeout_ms != NO_TIMEOUT_MS

    def belongs_to(self, asking: ProducerIdAndEpoch) -> bool:
        """Whether `asking` is the owner's pair."""
        return asking == self.client and asking.epoch <= EXHAUSTED_EPOCH

    @property
    def is_v2(self) -> bool:
        return self.client_transaction_version >= TRANSACTIONS_V2

    @property
    def producer_when_complete(self) -> ProducerIdAndEpoch:
        """The pair that the owner of a prepared transaction uses for the next one."""
        if self.is_taken_over:
            return self.client
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.producer

    def _to(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        """The only place where the state changes. Raises IllegalTransition."""
        check_transition(self.transactional_id, self.state, state)
        return self._replace(
            state=state,
            last_update_timestamp=now_ms,
            **{"previous_producer_id": self.client.producer_id, **changes},
        )

    # --- InitProducerId

    def reinitialised(
        self, timeout_ms: int, now_ms: int, spare_producer_id: int | None, *, last_epoch: int = NO_EPOCH
    ) -> TransactionMetadata:
        """Give the id to the next producer (S34): a new owner, or the one that sends `last_epoch`. Raises
        NeedsProducerId."""
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

    def taken_over(self, timeout_ms: int, now_ms: int, spare_producer_id: int | None) -> TransactionMetadata:
        """Give the open transaction, as it is, to a new owner, which can only end it (KIP-939). Raises NeedsProducerId.

        This never shortens a timeout: the transaction may be older than the new owner's timeout, which applies from the
        next transaction on.
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

    # --- a transaction

    def with_partitions(
        self, added: frozenset[TopicPartition], now_ms: int, client_transaction_version: int
    ) -> TransactionMetadata:
        """Add partitions to the transaction; the first ones begin it (S36)."""
        is_open = self.state is TransactionState.ONGOING
        return self._to(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions | added,
            start_timestamp=self.start_timestamp if is_open else now_ms,
            client_transaction_version=client_transaction_version,
            next_producer_id=NO_PRODUCER_ID,
        )

    def prepared(
        self, commits: bool, now_ms: int, client_transaction_version: int, spare_producer_id: int | None = None
    ) -> TransactionMetadata:
        """Decide the outcome. Under V2 the epoch goes up, so that the markers fence late requests of this transaction
        (S39). Raises NeedsProducerId."""
        changes: dict[str, Any] = {}
        if client_transaction_version >= TRANSACTIONS_V2:
            changes = {**self._raised(spare_producer_id), "last_epoch": self.client.epoch}
        elif not self.is_taken_over:
            changes = {"next_producer_id": NO_PRODUCER_ID}
        if self.state is not TransactionState.ONGOING:  # an abort of nothing has a start time, too
            changes["start_timestamp"] = now_ms
        return self._to(
            TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT,
            now_ms,
            **{"client_transaction_version": client_transaction_version, **changes},
        )

    def fenced(self, now_ms: int, spare_producer_id: int | None, *, last_epoch: int = NO_EPOCH) -> TransactionMetadata:
        """Abort the open transaction and fence its owner: the epoch goes up, whatever the version (S42). Raises
        NeedsProducerId."""
        changes = self._raised(spare_producer_id)
        fence = self._to(TransactionState.PREPARE_EPOCH_FENCE, now_ms)
        return fence._to(TransactionState.PREPARE_ABORT, now_ms, last_epoch=last_epoch, **changes)

    def _raised(self, spare_producer_id: int | None) -> dict[str, Any]:
        """The fields by which a decision raises the epoch: the epoch of the markers, and the owner's next pair.

        A transaction that was taken over is raised twice: its markers one above its records, and the owner's pair one
        above the request that ends it. Otherwise a late copy of that request could end the owner's next transaction.
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
            # Only a transaction that another broker logged can be open at this epoch. Its markers cannot be one epoch
            # higher, which partitions ask of transactions V2.
            changes["client_transaction_version"] = TRANSACTIONS_V1
        return changes

    def completed(self, now_ms: int) -> TransactionMetadata:
        """All markers are written: the transaction is over."""
        commits = self.state is TransactionState.PREPARE_COMMIT
        producer = self.producer_when_complete
        return self._to(
            TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            previous_producer_id=self.previous_producer_id if self.is_taken_over else self.producer_id,
            timeout_ms=min(self.timeout_ms, self.next_timeout_ms),
            next_timeout_ms=NO_TIMEOUT_MS,
            partitions=frozenset[TopicPartition](),
        )

    def check_expirable(self) -> None:
        """Raises IllegalTransition where a tombstone must not be written."""
        check_transition(self.transactional_id, self.state, TransactionState.DEAD)
