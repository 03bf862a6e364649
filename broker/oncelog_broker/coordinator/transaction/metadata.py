"""One transactional id as its coordinator knows it, and the transitions that it can make. Pure.

A TransactionMetadata does not change: each transition gives the next one, which is logged, and which `replay` then puts
in the place of this one. So an append that fails leaves no trace, and no epoch is bumped twice for it (E12).
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
"""Left for the markers that fence the last producer of a producer id: nobody writes with it."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class NeedsProducerId(Interruption):
    """This step needs a new producer id, which takes waiting for: come again with one."""


def is_exhausted(epoch: int) -> bool:
    return epoch >= EXHAUSTED_EPOCH


def next_producer(producer: ProducerIdAndEpoch, spare_producer_id: int | None) -> ProducerIdAndEpoch:
    """As whom the owner of `producer` goes on: one epoch up, or once the epochs are used up, under another producer id
    (S35). The one place where an epoch is raised. Raises NeedsProducerId."""
    if not is_exhausted(producer.epoch):
        return ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    if spare_producer_id is None:
        raise NeedsProducerId
    return ProducerIdAndEpoch(spare_producer_id, 0)


class TransactionMetadata(NamedTuple):
    """The state of one transactional id.

    Invariants: `partitions` are empty unless a transaction is open or prepared; `next_producer_id` is set in Prepare*
    only, and is whenever the epoch is FENCING_EPOCH. What Kafka has logged may break the second: a transactional id
    whose epoch is FENCING_EPOCH then belongs to nobody, until InitProducerId rotates it.
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
    """The epoch before this one, if the same producer had it: whoever shows it asks again for what it was given
    (KIP-360). Known since the coordinator was loaded: Kafka's log has no place for it."""

    def __repr__(self) -> str:
        return (
            f"TransactionMetadata({self.transactional_id!r}, producer {self.producer_id} epoch {self.producer_epoch}, "
            f"{self.state.shown}, {len(self.partitions)} partitions)"
        )

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def belongs_to(self, asking: ProducerIdAndEpoch) -> bool:
        """Whether `asking` is the producer that may write and end transactions."""
        return asking == self.producer and asking.epoch <= EXHAUSTED_EPOCH

    @property
    def is_v2(self) -> bool:
        return self.client_transaction_version >= TRANSACTIONS_V2

    @property
    def producer_when_complete(self) -> ProducerIdAndEpoch:
        """Of a prepared transaction: with what the producer goes on."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.producer

    def _to(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        """The one place where a state follows another. Raises IllegalTransition."""
        check_transition(self.transactional_id, self.state, state)
        return self._replace(
            state=state, last_update_timestamp=now_ms, previous_producer_id=self.producer_id, **changes
        )

    # --- InitProducerId

    def reinitialised(
        self, timeout_ms: int, now_ms: int, spare_producer_id: int | None, *, last_epoch: int = NO_EPOCH
    ) -> TransactionMetadata:
        """The next producer (S34), for a new owner, or for the one that shows `last_epoch`. Raises NeedsProducerId."""
        producer = next_producer(self.producer, spare_producer_id)
        return self._to(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            start_timestamp=NO_TIMESTAMP,
            next_producer_id=NO_PRODUCER_ID,
        )

    # --- a transaction

    def with_partitions(
        self, added: frozenset[TopicPartition], now_ms: int, client_transaction_version: int
    ) -> TransactionMetadata:
        """A transaction writes to these too; the first ones begin it (S36)."""
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
        """The outcome is decided. Under V2 the epoch goes up with it, so that the markers fence what comes late (S39).
        Raises NeedsProducerId."""
        changes: dict[str, Any] = {"next_producer_id": NO_PRODUCER_ID}
        if client_transaction_version >= TRANSACTIONS_V2:
            changes = {**self._raised(spare_producer_id), "last_epoch": self.producer_epoch}
        if self.state is not TransactionState.ONGOING:  # nothing was begun, and yet it has a time
            changes["start_timestamp"] = now_ms
        return self._to(
            TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT,
            now_ms,
            **{"client_transaction_version": client_transaction_version, **changes},
        )

    def fenced(self, now_ms: int, spare_producer_id: int | None, *, last_epoch: int = NO_EPOCH) -> TransactionMetadata:
        """The open transaction is aborted over the head of its producer: one epoch up, whatever the version (S42).
        Raises NeedsProducerId."""
        changes = self._raised(spare_producer_id)
        fence = self._to(TransactionState.PREPARE_EPOCH_FENCE, now_ms)
        return fence._to(TransactionState.PREPARE_ABORT, now_ms, last_epoch=last_epoch, **changes)

    def _raised(self, spare_producer_id: int | None) -> dict[str, Any]:
        """What a decision changes that raises the epoch: that of the markers, and as whom the producer goes on."""
        after = next_producer(self.producer, spare_producer_id)
        if after.producer_id == self.producer_id:
            return {"producer_epoch": after.epoch, "next_producer_id": NO_PRODUCER_ID}
        changes: dict[str, Any] = {"producer_epoch": FENCING_EPOCH, "next_producer_id": after.producer_id}
        if self.producer_epoch == FENCING_EPOCH:
            # Only what was logged elsewhere can be open at this epoch. Its markers cannot be one epoch higher, which
            # partitions ask of transactions V2.
            changes["client_transaction_version"] = TRANSACTIONS_V1
        return changes

    def completed(self, now_ms: int) -> TransactionMetadata:
        """All markers are written."""
        commits = self.state is TransactionState.PREPARE_COMMIT
        producer = self.producer_when_complete
        return self._to(
            TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset[TopicPartition](),
        )

    def check_expirable(self) -> None:
        """Raises IllegalTransition where a tombstone must not be written."""
        check_transition(self.transactional_id, self.state, TransactionState.DEAD)
