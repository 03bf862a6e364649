"""The state machine of one partition of `__transaction_state`: the states of all transactional ids of the partition.
Pure.

Each request is one step (call of the state machine): the step computes the next state of the transactional id
(`initialising`, `ending`, `metadata`), logs the state, and replies when the record is committed. A step is logged and
replayed immediately, so, unlike in Kafka, there are no pending transitions. In cases in which Kafka returns
CONCURRENT_TRANSACTIONS because of a pending transition, this broker has already logged PrepareCommit or PrepareAbort,
or delays the response until the record is committed.

Writing the markers is a separate action of the runtime (`Effects.ends`): after the record with the commit or abort
decision is committed, `coordinator` has the markers written and then calls `complete`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Effects, Encoded, TimerKey, Waiter
from oncelog_broker.coordinator.transaction import records
from oncelog_broker.coordinator.transaction.config import TransactionConfig
from oncelog_broker.coordinator.transaction.ending import end_v1, end_v2
from oncelog_broker.coordinator.transaction.initialising import initialise
from oncelog_broker.coordinator.transaction.metadata import NO_TIMEOUT_MS, TopicPartition, TransactionMetadata
from oncelog_broker.coordinator.transaction.records import TransactionRecord
from oncelog_broker.coordinator.transaction.states import IDLE, TransactionState
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.batch import NO_PRODUCER_ID

MAX_EXPIRED_PER_STEP: Final = 500
"""Maximum number of tombstones for expired transactional ids in one batch; logging this batch takes a few milliseconds.
"""


class Granted(NamedTuple):
    """The result of InitProducerId: `producer` is the producer id and epoch that the producer must use."""

    producer: ProducerIdAndEpoch
    kept_open: ProducerIdAndEpoch | None = None
    """Producer id and epoch of the records in the open transaction that was kept; None if no transaction was kept
    (KIP-939)."""


class TransactionEnd(NamedTuple):
    """A transaction whose commit or abort is logged and whose markers must be written. `producer` is the producer id
    and epoch in its markers, which must be written to all of `partitions` (S39)."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commits: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int

    @classmethod
    def of(cls, prepared: TransactionMetadata) -> TransactionEnd:
        """Return the transaction in the state PrepareCommit or PrepareAbort."""
        return cls(
            prepared.transactional_id,
            prepared.producer,
            prepared.state is TransactionState.PREPARE_COMMIT,
            prepared.partitions,
            prepared.client_transaction_version,
        )


class TransactionMachine:
    """The state machine of one partition; `shard.Machine` documents the methods that the coordinator runtime calls.
    `now_ms` returns wall time, `monotonic` returns monotonic seconds for timeouts."""

    def __init__(
        self,
        config: TransactionConfig,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        note_producer_id: Callable[[int], None] = lambda producer_id: None,
    ) -> None:
        """`note_producer_id` is called with the highest producer id of the loaded transactional ids, so that this
        producer id is not allocated again, even if no log has records of it (S75)."""
        self._config = config
        self._note_producer_id = note_producer_id
        self.now_ms = now_ms
        self._monotonic = monotonic
        self.transactions: dict[str, TransactionMetadata] = {}
        """Transactional id -> state. Only `replay` changes it."""
        self._begun: dict[str, float] = {}
        """Transactional id -> start of its open transaction, in monotonic seconds, so that a jump of the wall clock
        aborts no transaction."""

    @property
    def open_transactions(self) -> int:
        """Number of open transactions: transactions that have begun and have been neither committed nor aborted."""
        return len(self._begun)

    @property
    def open_without_timeout(self) -> int:
        """Number of open transactions without a timeout, which only the owner or an operator can end (S120)."""
        return sum(not self.transactions[transactional_id].has_timeout for transactional_id in self._begun)

    def oldest_seconds(self) -> float:
        """Return the age of the oldest open transaction in seconds; 0 if none is open."""
        return max(0.0, self._monotonic() - min(self._begun.values())) if self._begun else 0.0

    # --- methods that the coordinator runtime calls

    records_replace_older: Final = True
    """True, because a record replaces all older records with the same key."""

    def encode(self, record: TransactionRecord) -> Encoded:
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return records.decode(key, value)

    def replay(self, record: TransactionRecord, offset: int, producer_id: int) -> None:
        transactional_id, metadata = record
        before = self.transactions.get(transactional_id)
        if metadata is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = metadata
        if metadata is None or metadata.state is not TransactionState.ONGOING:
            self._begun.pop(transactional_id, None)
            return
        # Loading may skip the records between two transactions, so a different start timestamp is the only sign that a
        # record belongs to another transaction.
        is_same = before is not None and before.start_timestamp == metadata.start_timestamp
        if not is_same or transactional_id not in self._begun:
            seconds_ago = max(0, self.now_ms() - metadata.start_timestamp) / 1000
            self._begun[transactional_id] = self._monotonic() - seconds_ago

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """This method does nothing, because records of `__transaction_state` are never written in a transaction."""

    def on_loaded(self) -> Iterator[Effects]:
        """Yield the effects that complete, after loading, the transactions whose commit or abort is logged (S44).
        Markers that were already written may be written again (S39)."""
        known = [each.producer_id for each in self.transactions.values()]
        known += [each.next_producer_id for each in self.transactions.values()]
        self._note_producer_id(max(known, default=NO_PRODUCER_ID))
        for metadata in [each for each in self.transactions.values() if each.state.is_prepared]:
            if self.transactions.get(metadata.transactional_id) is metadata:
                effects = Effects()
                self._end(effects, metadata)
                yield effects

    def on_timer(self, timer: TimerKey) -> Effects:
        raise AssertionError("the transaction coordinator sets no timers")

    def on_job(self, key: str, result: object) -> Effects:
        """Does nothing, because this state machine starts no jobs."""
        return Effects()

    def key_of(self, timer: TimerKey) -> str:
        raise AssertionError("the transaction coordinator starts no jobs")

    def on_failed(self, key: str) -> Effects:
        """Does nothing: the state changes only when a record is replayed, so there are no unlogged changes to drop."""
        return Effects()

    def on_unloaded(self, error: KafkaError) -> Effects:
        return Effects()

    # --- methods that handle requests ---------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        shown: ProducerIdAndEpoch | None,
        spare_producer_id: int | None,
        waiter: Waiter,
        *,
        two_phase: bool = False,
        keeps_open: bool = False,
    ) -> Effects:
        """Handle InitProducerId; replies with Granted (S34). If `two_phase` is True, the producer's transactions have
        no timeout, and `timeout_ms` is not used. If `keeps_open` is True, an open transaction is not aborted (S120).

        Raises KafkaError INVALID_TRANSACTION_TIMEOUT (S42); TRANSACTIONAL_ID_AUTHORIZATION_FAILED or
        UNSUPPORTED_VERSION if `transaction.two.phase.commit.enable` is false; the errors of `initialise`;
        NeedsProducerId.
        """
        self._check_two_phase_commit(two_phase, keeps_open)
        if two_phase:
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._config.max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"{timeout_ms} ms: transaction.max.timeout.ms={self._config.max_timeout_ms}",
            )
        before = self.transactions.get(transactional_id)
        after = initialise(
            transactional_id, before, shown, timeout_ms, self.now_ms(), spare_producer_id, keeps_open=keeps_open
        )
        effects = Effects()
        if after is not before:
            effects.append(TransactionRecord(transactional_id, after))
        if after.state.is_prepared:
            effects.reply(waiter, KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "its open transaction is aborted"))
            self._end(effects, after)
        else:
            effects.reply(waiter, Granted(after.client, after.producer if after.is_taken_over else None))
        return effects

    def _check_two_phase_commit(self, two_phase: bool, keeps_open: bool) -> None:
        """Raises a KafkaError with Kafka's error code if two-phase commit is requested, but disabled on this broker."""
        if not (two_phase or keeps_open) or self._config.two_phase_commit_enable:
            return
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if two_phase else ErrorCode.UNSUPPORTED_VERSION
        raise KafkaError(code, "transaction.two.phase.commit.enable is false on this broker")

    def add_partitions(
        self,
        transactional_id: str,
        asking: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        client_transaction_version: int,
        waiter: Waiter,
    ) -> Effects:
        """Handle AddPartitionsToTxn; replies with NONE. If all partitions are in the transaction already, no record is
        logged (S36). Raises the KafkaErrors of `verify`."""
        metadata = self._owned(transactional_id, asking)
        added = frozenset(partitions)
        effects = Effects()
        if metadata.state is not TransactionState.ONGOING or not added <= metadata.partitions:
            after = metadata.with_partitions(added, self.now_ms(), client_transaction_version)
            effects.append(TransactionRecord(transactional_id, after))
        effects.reply(waiter, ErrorCode.NONE)
        return effects

    def verify(
        self, transactional_id: str, asking: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns NONE for each partition that is in the open transaction, and TRANSACTION_ABORTABLE for any other
        partition (KIP-890).

        Raises KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; INVALID_TXN_STATE if
        the transaction was taken over by a new owner, which can only commit or abort the transaction.
        """
        present = self._owned(transactional_id, asking).partitions
        return {
            partition: ErrorCode.NONE if partition in present else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def end_txn(
        self,
        transactional_id: str,
        asking: ProducerIdAndEpoch,
        commits: bool,
        client_transaction_version: int,
        spare_producer_id: int | None,
        waiter: Waiter,
    ) -> Effects:
        """Handle EndTxn; replies with the owner's next producer id and epoch when the decision is logged (S38). Raises
        KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE;
        NeedsProducerId.

        Under transactions V1 an EndTxn that repeats an earlier decision logs this decision once more. Without this
        record a former coordinator, which does not know its successor yet, could confirm a decision from outdated
        metadata.
        """
        before = self._known(transactional_id)
        if client_transaction_version >= TRANSACTIONS_V2:
            after = end_v2(before, asking, commits, self.now_ms(), spare_producer_id)
        else:
            after = end_v1(before, asking, commits, self.now_ms())
        effects = Effects()
        effects.reply(waiter, after.producer_when_complete)
        if after is not before or client_transaction_version < TRANSACTIONS_V2:
            effects.append(TransactionRecord(transactional_id, after))
        if after is not before:
            self._end(effects, after)
        return effects

    def complete(self, end: TransactionEnd) -> Effects:
        """Log that all markers of the committed or aborted transaction `end` are written. If the completion is already
        logged, nothing is done (E8).
        """
        effects = Effects()
        metadata = self.transactions.get(end.transactional_id)
        if metadata is not None and metadata.state.is_prepared and metadata.producer == end.producer:
            effects.append(TransactionRecord(end.transactional_id, metadata.completed(self.now_ms())))
        return effects

    # --- methods for timeouts and expiry ------------------------------------------------------------------------------

    def timed_out(self) -> list[str]:
        """Return the transactional ids whose transaction has been open for longer than its timeout (S42). A transaction
        without a timeout never times out (S120).
        """
        return [transactional_id for transactional_id in self._begun if self._is_timed_out(transactional_id)]

    def _is_timed_out(self, transactional_id: str) -> bool:
        begun, known = self._begun.get(transactional_id), self.transactions.get(transactional_id)
        if begun is None or known is None or not known.has_timeout:
            return False
        return self._monotonic() - begun > known.timeout_ms / 1000

    def abort_timed_out(self, transactional_id: str, spare_producer_id: int | None) -> Effects:
        """Abort the transaction if it is still timed out, and fence its producer (S42). Raises NeedsProducerId.

        The fenced producer may continue with InitProducerId if it sends its epoch, since no other producer has become
        the owner (KIP-588). Kafka fences the producer permanently, because Kafka cannot distinguish a timeout from a
        new owner.
        """
        effects = Effects()
        if self._is_timed_out(transactional_id):
            open_ = self.transactions[transactional_id]
            after = open_.fenced(self.now_ms(), spare_producer_id, last_epoch=open_.client.epoch)
            effects.append(TransactionRecord(transactional_id, after))
            self._end(effects, after)
        return effects

    def expire(self) -> Effects:
        """Log tombstones for transactional ids that were idle for transactional.id.expiration.ms (S43)."""
        effects = Effects()
        effects.may_be_divided = True
        newest = self.now_ms() - self._config.id_expiration_ms
        for transactional_id, metadata in self.transactions.items():
            if metadata.state in IDLE and metadata.last_update_timestamp <= newest:
                metadata.check_expirable()
                effects.append(TransactionRecord(transactional_id, None))
                if len(effects.records) == MAX_EXPIRED_PER_STEP:
                    break
        return effects

    # --- private helpers of the state machine

    def _known(self, transactional_id: str) -> TransactionMetadata:
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id!r} is unknown")
        return metadata

    def _owned(self, transactional_id: str, asking: ProducerIdAndEpoch) -> TransactionMetadata:
        """Returns the metadata of the transactional id if the producer `asking` may write in the open transaction or
        begin a transaction.
        """
        metadata = self._known(transactional_id)
        if metadata.is_of(*asking) and not metadata.state.is_prepared:
            return metadata
        if metadata.state.is_prepared and asking in (metadata.client, metadata.producer_when_complete):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{metadata!r} is still being completed")
        if asking.producer_id not in (metadata.producer_id, metadata.client.producer_id):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{asking} is not the producer of {metadata!r}")
        if not metadata.belongs_to(asking):
            raise KafkaError(ErrorCode.PRODUCER_FENCED, f"{asking} is not the producer of {metadata!r}")
        if metadata.is_taken_over:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"{metadata!r} was kept open for {asking}, which has to commit or abort it"
            )
        return metadata

    @staticmethod
    def _end(effects: Effects, metadata: TransactionMetadata) -> None:
        effects.ends.append(TransactionEnd.of(metadata))
