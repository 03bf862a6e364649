"""The usual requests of one transactional id, as the fast lanes of `server/lanes` serve them: check the state, then log
the next state (`usual_steps`) without an `Effects` object.

Every method returns None, or False, before it has any effect, if the request is not usual: the state machine must
handle it, or another broker, or the coordinator of another partition.
"""

from __future__ import annotations

from typing import Protocol

from oncelog_broker.coordinator.runtime import CoordinatorRuntime
from oncelog_broker.coordinator.shard import Shard
from oncelog_broker.coordinator.transaction import usual_steps
from oncelog_broker.coordinator.transaction.machine import TransactionMachine
from oncelog_broker.coordinator.transaction.metadata import TopicPartition, TransactionMetadata
from oncelog_broker.runtime.answers import Answer
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch


class Coordinator(Protocol):
    """The parts of the TransactionCoordinator that log the states of usual transactions; the coordinator describes
    them.
    """

    runtime: CoordinatorRuntime[TransactionMachine]
    verifies: bool

    def log_added(
        self, shard: Shard[TransactionMachine], before: TransactionMetadata, added: TransactionMetadata
    ) -> Answer[ErrorCode]: ...

    def log_decided(
        self, shard: Shard[TransactionMachine], before: TransactionMetadata, decided: TransactionMetadata
    ) -> Answer[ProducerIdAndEpoch | KafkaError]: ...


class UsualTransactions:
    """The transactions of one transactional id. A lane keeps one such object for each id."""

    __slots__ = ("_coordinator", "_index", "_partitions", "transactional_id")

    def __init__(self, coordinator: Coordinator, transactional_id: str, index: int) -> None:
        """`index`: the partition of `__transaction_state` that stores the id, while the topic has as many partitions as
        now.
        """
        self._coordinator = coordinator
        self._index = index
        self._partitions = coordinator.runtime.partitions
        self.transactional_id = transactional_id

    @property
    def is_stored_elsewhere(self) -> bool:
        """Whether another partition of `__transaction_state` may store the id now."""
        return self._coordinator.runtime.partitions != self._partitions

    def _shard(self) -> Shard[TransactionMachine] | None:
        return self._coordinator.runtime.led_shard(self._index, self._partitions)

    def is_owner(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer owns the transactional id, as far as this broker knows."""
        shard = self._shard()
        known = None if shard is None else shard.machine.transactions.get(self.transactional_id)
        return known is not None and known.is_of(producer_id, producer_epoch)

    def has_open(
        self, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition], last_coordinator_epoch: int
    ) -> bool:
        """Whether batches of transactions V1 may be appended to these partitions, because the transaction is open and
        has the partitions, and all records about it are committed. `last_coordinator_epoch`: the highest epoch of a
        coordinator that ended a transaction of this producer in these partitions.
        """
        if not self._coordinator.verifies:
            return True
        shard = self._shard()
        return (
            shard is not None
            and shard.is_committed
            and last_coordinator_epoch <= shard.partition.leader_epoch
            and usual_steps.has_open(
                shard.machine.transactions.get(self.transactional_id), producer_id, producer_epoch, partitions
            )
        )

    def register(
        self, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition], last_coordinator_epoch: int
    ) -> ErrorCode | None:
        """Add partitions to the transaction of a producer with transactions V2, which sends batches for them. Returns
        NONE if the batches may be appended now, or the error code; None, also if records of the coordinator must wait
        for other replicas or for the disk.
        """
        shard = self._shard()
        if shard is None or not shard.commits_at_once or last_coordinator_epoch > shard.partition.leader_epoch:
            return None
        machine = shard.machine
        before = machine.transactions.get(self.transactional_id)
        added = usual_steps.added(before, producer_id, producer_epoch, partitions, TRANSACTIONS_V2, machine.now_ms)
        if added is None or before is None:
            return ErrorCode.NONE if usual_steps.has_open(before, producer_id, producer_epoch, partitions) else None
        code = self._coordinator.log_added(shard, before, added)
        assert isinstance(code, ErrorCode), "a record that commits at once needs no wait"
        return code

    def add(
        self, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]
    ) -> Answer[ErrorCode] | None:
        """Handle AddPartitionsToTxn of transactions V1. Returns NONE or the error code."""
        shard = self._shard()
        if shard is None:
            return None
        machine = shard.machine
        before = machine.transactions.get(self.transactional_id)
        added = usual_steps.added(before, producer_id, producer_epoch, partitions, TRANSACTIONS_V1, machine.now_ms)
        return None if added is None or before is None else self._coordinator.log_added(shard, before, added)

    def end(
        self, producer_id: int, producer_epoch: int, commits: bool, client_transaction_version: int
    ) -> Answer[ProducerIdAndEpoch | KafkaError] | None:
        """Handle EndTxn. Returns the producer id and epoch that the producer must use next, or the error."""
        shard = self._shard()
        if shard is None:
            return None
        machine = shard.machine
        before = machine.transactions.get(self.transactional_id)
        decided = usual_steps.decided(
            before, producer_id, producer_epoch, commits, client_transaction_version, machine.now_ms
        )
        return None if decided is None or before is None else self._coordinator.log_decided(shard, before, decided)
