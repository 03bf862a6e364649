"""Runs a transaction state machine for each partition of `__transaction_state` that this broker leads. This module also
provides the clock and producer ids, does the background work, and has the markers of committed and aborted transactions
written.

The epoch of a coordinator is the leader epoch of its partition of `__transaction_state` (S40).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, TypeVar

from oncelog.fail_points.point import fail_point
from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import transaction_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.runtime import CoordinatorRuntime
from oncelog_broker.coordinator.shard import Shard
from oncelog_broker.coordinator.transaction.clients import LastClients
from oncelog_broker.coordinator.transaction.config import TransactionConfig
from oncelog_broker.coordinator.transaction.machine import Granted, TransactionEnd, TransactionMachine
from oncelog_broker.coordinator.transaction.marker_queue import Decision, Outcome
from oncelog_broker.coordinator.transaction.marker_sender import MarkerSender
from oncelog_broker.coordinator.transaction.metadata import NeedsProducerId, TopicPartition, TransactionMetadata
from oncelog_broker.coordinator.transaction.records import TransactionRecord
from oncelog_broker.coordinator.transaction.refused_sequences import RefusedSequences
from oncelog_broker.coordinator.transaction.remote_coordinators import RemoteCoordinators
from oncelog_broker.coordinator.transaction.state_batch import state_batch
from oncelog_broker.coordinator.transaction.usual_steps import completed
from oncelog_broker.coordinator.transaction.usual_transactions import UsualTransactions
from oncelog_broker.metadata.membership.producer_ids import ProducerIdManager, ProducerIdsExhausted
from oncelog_broker.metadata.model.image import NO_LEADER, ClusterImage
from oncelog_broker.metadata.topic_names import TRANSACTION_STATE
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.answers import Answer, settled
from oncelog_broker.runtime.host import Host
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.producer_id import ProducerIdAndEpoch

logger = logging.getLogger(__name__)

COMPLETE_RETRY_SECONDS: Final = 0.1
"""If the completion of a transaction cannot be logged, the broker tries again after this number of seconds. Each
further pause is twice as long, up to COMPLETE_MAX_RETRY_SECONDS.
"""
COMPLETE_MAX_RETRY_SECONDS: Final = 10.0
ProducerAnswer = Answer[ProducerIdAndEpoch | KafkaError]
T = TypeVar("T")


class TransactionCoordinator:
    """Coordinates the transactions whose state is in a partition of `__transaction_state` that this broker leads."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: Replicas,
        markers: MarkerSender,
        remote: RemoteCoordinators,
        producer_ids: ProducerIdManager,
        host: Host,
    ) -> None:
        settings = TransactionConfig.of(config)
        self.verifies: bool = config[keys.TRANSACTION_PARTITION_VERIFICATION_ENABLE]
        """Whether the coordinator must have a partition in the transaction before the transaction's records are
        appended to the partition (`transaction.partition.verification.enable`).
        """
        self.registration_pause_seconds = config[transaction_keys.ADD_PARTITIONS_RETRY_BACKOFF_MS] / 1000
        """Settings field: seconds before a leader repeats a registration that the coordinator has refused because it
        completes the producer's previous transaction.
        """
        self.registration_seconds = config[transaction_keys.ADD_PARTITIONS_RETRY_BACKOFF_MAX_MS] / 1000
        """Settings field: seconds for which a leader repeats such a registration; 0: never."""
        self._abort_seconds = config[keys.TRANSACTION_ABORT_TIMED_OUT_CLEANUP_INTERVAL_MS] / 1000
        self._expiry_seconds = config[keys.TRANSACTION_REMOVE_EXPIRED_CLEANUP_INTERVAL_MS] / 1000
        self.last_clients = LastClients()
        self.refused_sequences = RefusedSequences()
        self.remote = remote
        """The coordinators of other brokers."""
        self._node_id = config.node_id
        self._markers = markers
        self._producer_ids = producer_ids
        self._tasks = host.tasks
        self.runtime = CoordinatorRuntime(
            TRANSACTION_STATE,
            lambda _: TransactionMachine(settings, host.clock.now_ms, host.clock.monotonic, producer_ids.note_known),
            replicas,
            host,
            on_end=self._write_markers,
        )

    def on_image(self, image: ClusterImage) -> None:
        """Apply a new cluster image. Call this method after `Replicas.on_image`."""
        self.runtime.on_image(image)
        self._markers.on_image()

    def start(self) -> None:
        """Start the background work, which ends with the broker's tasks."""
        self._tasks.every("timed out transactions", self._abort_seconds, self.abort_timed_out)
        self._tasks.every("expired transactional ids", self._expiry_seconds, self.remove_expired)

    def close(self) -> None:
        self.runtime.close()

    @property
    def markers_outstanding(self) -> int:
        """Number of markers of committed or aborted transactions that are not confirmed as written."""
        return self._markers.outstanding

    def elsewhere(self, transactional_id: str) -> int | None:
        """Return the id of the other broker that coordinates a transactional id; None if this broker is the
        coordinator, or no coordinator is known.
        """
        leader = self.runtime.leader_of(transactional_id)
        return None if leader in (NO_LEADER, self._node_id) else leader

    def epoch_of(self, transactional_id: str) -> int:
        """Return the coordinator epoch of a transactional id according to this broker's cluster image; -1 if it is not
        known.
        """
        return self.runtime.leader_epoch_of(transactional_id)

    # --- methods that handle requests ---------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        shown: ProducerIdAndEpoch | None,
        *,
        two_phase: bool = False,
        keeps_open: bool = False,
    ) -> Answer[Granted | KafkaError]:
        """Returns the producer id and epoch that the producer must use, or the error (S34, S120)."""
        return self._with_producer_id(
            lambda spare: self.runtime.write(
                transactional_id,
                lambda machine, waiter: machine.init_producer_id(
                    transactional_id, timeout_ms, shown, spare, waiter, two_phase=two_phase, keeps_open=keeps_open
                ),
                _granted_or_error,
            )
        )

    @fail_point("prepare-logged")
    def end_txn(
        self, transactional_id: str, asking: ProducerIdAndEpoch, commits: bool, client_transaction_version: int
    ) -> ProducerAnswer:
        """Returns, after the commit or abort decision is logged, the producer id and epoch that the producer must use
        next, or the error (S38).
        """
        return self._end_txn(transactional_id, asking, commits, client_transaction_version)

    def _end_txn(
        self, transactional_id: str, asking: ProducerIdAndEpoch, commits: bool, client_transaction_version: int
    ) -> ProducerAnswer:
        return self._with_producer_id(
            lambda spare: self.runtime.write(
                transactional_id,
                lambda machine, waiter: machine.end_txn(
                    transactional_id, asking, commits, client_transaction_version, spare, waiter
                ),
                _identity,
            )
        )

    def _with_producer_id(self, request: Callable[[int | None], Answer[T | KafkaError]]) -> Answer[T | KafkaError]:
        """Run a request; if the request needs a new producer id, run it again with a new producer id."""
        try:
            return request(None)
        except NeedsProducerId:
            return self._tasks.answer("producer id for a transaction", self._with_new_producer_id(request))

    async def _with_new_producer_id(self, request: Callable[[int | None], Answer[T | KafkaError]]) -> T | KafkaError:
        try:
            answer = request(await self._producer_ids.generate())
        except ProducerIdsExhausted as error:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        except KafkaError as error:
            return error.as_value()
        return await settled(answer)

    @fail_point("register-partitions", dropped=lambda: ErrorCode.COORDINATOR_NOT_AVAILABLE)
    def add_partitions(
        self,
        transactional_id: str,
        asking: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        client_transaction_version: int,
    ) -> Answer[ErrorCode]:
        """Add partitions to the transaction of the producer `asking` (S36). Returns NONE or the error code."""
        return self._add_partitions(transactional_id, asking, partitions, client_transaction_version)

    def _add_partitions(
        self,
        transactional_id: str,
        asking: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        client_transaction_version: int,
    ) -> Answer[ErrorCode]:
        return self.runtime.write(
            transactional_id,
            lambda machine, waiter: machine.add_partitions(
                transactional_id, asking, partitions, client_transaction_version, waiter
            ),
            lambda error: error.code,
        )

    def verify(
        self, transactional_id: str, asking: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Answer[dict[TopicPartition, ErrorCode]]:
        """Check whether `partitions` are in the open transaction of the producer `asking`. Returns NONE or an error
        code for each partition. The result waits until the present state of the transactional id is committed (E4).
        Without this wait, a log could accept records of a transaction that the next coordinator does not know.
        """
        return self.runtime.read(
            transactional_id,
            lambda machine: machine.verify(transactional_id, asking, partitions),
            lambda error: dict.fromkeys(partitions, error.code),
        )

    # --- methods for fast lanes, which log the next state of a usual transaction (`usual_steps`) ----------------------
    #
    # If the state is no longer `before`, because a fail point has repeated or delayed the step, the state machine
    # handles the request again.

    def usual_transactions(self, transactional_id: str) -> UsualTransactions | None:
        """Return the object that handles the usual requests of a transactional id; None while `__transaction_state`
        does not exist.
        """
        index = self.runtime.partition_of(transactional_id)
        return None if index is None else UsualTransactions(self, transactional_id, index)

    @fail_point("register-partitions", dropped=lambda: ErrorCode.COORDINATOR_NOT_AVAILABLE)
    def log_added(
        self, shard: Shard[TransactionMachine], before: TransactionMetadata, added: TransactionMetadata
    ) -> Answer[ErrorCode]:
        """Log the state of a transaction to which partitions were added. Returns NONE or the error code."""
        name = before.transactional_id
        if shard.machine.transactions.get(name) is not before:
            partitions = added.partitions - before.partitions
            return self._add_partitions(name, added.producer, partitions, added.client_transaction_version)
        try:
            self._log(shard, added)
        except KafkaError as error:
            return error.code
        return self.runtime.when_committed(shard, name, ErrorCode.NONE, lambda error: error.code)

    @fail_point("prepare-logged")
    def log_decided(
        self, shard: Shard[TransactionMachine], before: TransactionMetadata, decided: TransactionMetadata
    ) -> ProducerAnswer:
        """Log the decision to commit or abort a transaction, and have its markers written. Returns, after the decision
        is logged, the producer id and epoch that the producer must use next, or the error. In a usual transaction they
        are those of the markers.
        """
        name, end = before.transactional_id, TransactionEnd.of(decided)
        if shard.machine.transactions.get(name) is not before:
            return self._end_txn(name, before.producer, end.commits, end.transaction_version)
        try:
            self._log(shard, decided)
        except KafkaError as error:
            return error.as_value()
        return self.runtime.when_committed(shard, name, end.producer, _identity, end)

    def _log(self, shard: Shard[TransactionMachine], metadata: TransactionMetadata) -> None:
        """Append the record of a transactional id's next state, and replay it. Raises KafkaError, StepFailed."""
        transactional_id = metadata.transactional_id
        self.runtime.append(
            shard,
            transactional_id,
            state_batch(metadata),
            TransactionRecord(transactional_id, metadata),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )

    # --- methods that end transactions --------------------------------------------------------------------------------

    def _write_markers(self, shard: Shard[TransactionMachine], end: TransactionEnd, epoch: int) -> None:
        """Have the markers of the committed or aborted transaction `end` written with the coordinator epoch `epoch`,
        then log the completion.
        """
        is_current = partial(self.runtime.is_current, shard)
        decision = Decision(end, epoch, is_current, partial(self._markers_ended, shard))
        if end.partitions:
            self._markers.write(decision)
        else:
            self._tasks.supervise(f"end of {end.transactional_id}", partial(self._complete, shard, end))

    def _markers_ended(self, shard: Shard[TransactionMachine], decision: Decision, outcome: Outcome) -> None:
        end, epoch = decision.end, shard.partition.leader_epoch
        if outcome is Outcome.COMPLETE:
            if not self._try_to_complete(shard, end):
                self._tasks.supervise(f"end of {end.transactional_id}", partial(self._complete, shard, end))
        elif self.runtime.is_current(shard) and epoch > decision.coordinator_epoch:
            # Since the decision was logged, this broker has stopped being the coordinator, and has become the
            # coordinator again.
            decision.coordinator_epoch = epoch
        elif not decision.was_fenced:
            decision.was_fenced = True
            logger.warning(
                "marker delayed: a log has a marker of a newer coordinator epoch of this transaction",
                extra={"transactional_id": end.transactional_id, "epoch": decision.coordinator_epoch},
            )

    async def _complete(self, shard: Shard[TransactionMachine], end: TransactionEnd) -> None:
        """Log the completion of a transaction. Retries until the record is logged, because otherwise the transactional
        id would stay in PrepareCommit or PrepareAbort.
        """
        pause = COMPLETE_RETRY_SECONDS
        while not self._try_to_complete(shard, end):
            await asyncio.sleep(pause)
            pause = min(2 * pause, COMPLETE_MAX_RETRY_SECONDS)

    @fail_point("complete-logged", dropped=lambda: True)
    def _try_to_complete(self, shard: Shard[TransactionMachine], end: TransactionEnd) -> bool:
        """Log that all markers of the committed or aborted transaction `end` are written. Returns True if the
        completion is logged, or if this broker no longer coordinates the transaction."""
        if not self.runtime.is_current(shard):
            return True
        try:
            before = shard.machine.transactions.get(end.transactional_id)
            metadata = completed(before, end.producer, shard.machine.now_ms)
            if metadata is not None:
                self._log(shard, metadata)
            else:
                self.runtime.step(shard, lambda machine: machine.complete(end), end.transactional_id)
        except KafkaError as error:
            logger.warning(
                "end of a transaction not logged", extra={"transactional_id": end.transactional_id, "reason": error}
            )
            return False
        return True

    # --- periodic background work -------------------------------------------------------------------------------------

    async def abort_timed_out(self) -> None:
        """Abort the transactions that have been open for longer than their timeout (S42)."""
        for shard in self.runtime.loaded_shards():
            for transactional_id in shard.machine.timed_out():
                if not self.runtime.is_current(shard):
                    break
                await self._abort(shard, transactional_id)
                await asyncio.sleep(0)

    async def _abort(self, shard: Shard[TransactionMachine], transactional_id: str) -> None:
        """Abort one timed-out transaction. If the abort fails, the next periodic check tries again, and other timed-out
        transactions do not have to wait.
        """
        logger.info("transaction timed out", extra={"transactional_id": transactional_id})
        try:
            try:
                self._abort_with(shard, transactional_id, None)
            except NeedsProducerId:
                self._abort_with(shard, transactional_id, await self._producer_ids.generate())
        except (KafkaError, ProducerIdsExhausted) as error:
            logger.error("not aborted", extra={"transactional_id": transactional_id, "reason": error})

    def _abort_with(self, shard: Shard[TransactionMachine], transactional_id: str, spare: int | None) -> None:
        if self.runtime.is_current(shard):
            self.runtime.step(shard, lambda machine: machine.abort_timed_out(transactional_id, spare), transactional_id)

    async def remove_expired(self) -> None:
        """Remove the transactional ids that were idle for transactional.id.expiration.ms (S43)."""
        for shard in self.runtime.loaded_shards():
            while True:
                removed = self.runtime.is_current(shard) and self._expire(shard)
                await asyncio.sleep(0)
                if not removed:
                    break

    def _expire(self, shard: Shard[TransactionMachine]) -> int:
        """Remove some expired transactional ids; returns the number of removed ids."""
        try:
            return self.runtime.step(shard, lambda machine: machine.expire())
        except KafkaError as error:
            logger.error("transactional ids not removed", extra={"shard": shard.index, "reason": error})
            return 0


def _identity(error: KafkaError) -> ProducerIdAndEpoch | KafkaError:
    return error


def _granted_or_error(error: KafkaError) -> Granted | KafkaError:
    return error
