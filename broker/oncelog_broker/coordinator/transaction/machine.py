"""All transactional ids of one partition of `__transaction_state`: a state machine of the runtime. Pure.

Each request is one step: it computes the next state of the transactional id (`initialising`, `ending`, `metadata`),
logs it, and answers when the record is committed. A step is logged and replayed at once, so no transition is ever
pending: where Kafka answers CONCURRENT_TRANSACTIONS because one is, here the state is Prepare*, or the answer waits.

The end of a transaction is a separate effect (`Effects.ends`): when the decision is committed, `coordinator` has the
markers written, and then calls `complete`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
"""Tombstones in one batch of the expiry: a few milliseconds of work."""


class Granted(NamedTuple):
    """The answer to InitProducerId."""

    producer: ProducerIdAndEpoch
    kept_open: ProducerIdAndEpoch | None = None
    """Producer id and epoch of the records of the open transaction that was kept; None if none was open (KIP-939)."""


class TransactionEnd(NamedTuple):
    """A decided transaction: `producer` is the pair of its markers, which go to all of `partitions` (S39)."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commits: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class TransactionMachine:
    """See `runtime.Machine`. `now_ms` is wall time, `monotonic` counts seconds for timeouts."""

    def __init__(
        self,
        config: TransactionConfig,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        note_producer_id: Callable[[int], None] = lambda producer_id: None,
    ) -> None:
        """`note_producer_id` learns the highest producer id of the loaded transactional ids, which may have written
        nothing with it: it must not be given out again (S75)."""
        self._config = config
        self._note_producer_id = note_producer_id
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._transactions: dict[str, TransactionMetadata] = {}
        self._begun: dict[str, float] = {}
        """When the open transactions began, in monotonic seconds: a leap of the wall clock aborts nothing."""

    @property
    def transactions(self) -> Mapping[str, TransactionMetadata]:
        return self._transactions

    @property
    def open_transactions(self) -> int:
        """How many are ongoing: begun, and not decided."""
        return len(self._begun)

    @property
    def open_without_timeout(self) -> int:
        """How many open transactions have no timeout: only their owner, or an operator, ends them (S120)."""
        return sum(not self._transactions[transactional_id].has_timeout for transactional_id in self._begun)

    def oldest_seconds(self) -> float:
        """The age of the oldest open transaction in seconds; 0 if none is open."""
        return max(0.0, self._monotonic() - min(self._begun.values())) if self._begun else 0.0

    # --- the runtime's

    records_replace_older: Final = True
    """See `Machine`."""

    def encode(self, record: TransactionRecord) -> Encoded:
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return records.decode(key, value)

    def replay(self, record: TransactionRecord, offset: int, producer_id: int) -> None:
        transactional_id, metadata = record
        before = self._transactions.get(transactional_id)
        if metadata is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = metadata
        if metadata is None or metadata.state is not TransactionState.ONGOING:
            self._begun.pop(transactional_id, None)
            return
        # Loading may leave out the records between two transactions: then the start says that this is another one.
        is_same = before is not None and before.start_timestamp == metadata.start_timestamp
        if not is_same or transactional_id not in self._begun:
            seconds_ago = max(0, self._now_ms() - metadata.start_timestamp) / 1000
            self._begun[transactional_id] = self._monotonic() - seconds_ago

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Does nothing: no records of `__transaction_state` are written in a transaction."""

    def on_loaded(self) -> Iterator[Effects]:
        """Decided transactions are completed (S44); markers that were already written may be written again (S39)."""
        known = [each.producer_id for each in self._transactions.values()]
        known += [each.next_producer_id for each in self._transactions.values()]
        self._note_producer_id(max(known, default=NO_PRODUCER_ID))
        for metadata in [each for each in self._transactions.values() if each.state.is_prepared]:
            if self._transactions.get(metadata.transactional_id) is metadata:
                effects = Effects()
                self._end(effects, metadata)
                yield effects

    def on_timer(self, timer: TimerKey) -> Effects:
        raise AssertionError("the transaction coordinator sets no timers")

    def on_job(self, key: str, result: object) -> Effects:
        """Transactions need no jobs."""
        return Effects()

    def key_of(self, timer: TimerKey) -> str:
        raise AssertionError("the transaction coordinator starts no jobs")

    def on_failed(self, key: str) -> Effects:
        """A step changes nothing but by its record."""
        return Effects()

    def on_unloaded(self, error: KafkaError) -> Effects:
        return Effects()

    # --- requests

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
        """Answers with Granted (S34). With `two_phase` the producer's transactions have no timeout, and `timeout_ms` is
        not used; with `keeps_open` an open transaction is not aborted (S120).

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
        before = self._transactions.get(transactional_id)
        after = initialise(
            transactional_id, before, shown, timeout_ms, self._now_ms(), spare_producer_id, keeps_open=keeps_open
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
        """Raises KafkaError with the codes that Kafka gives."""
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
        """Answers with NONE; partitions that are in the transaction are not logged again (S36). Raises the KafkaErrors
        of `verify`."""
        metadata = self._owned(transactional_id, asking)
        added = frozenset(partitions)
        effects = Effects()
        if metadata.state is not TransactionState.ONGOING or not added <= metadata.partitions:
            after = metadata.with_partitions(added, self._now_ms(), client_transaction_version)
            effects.append(TransactionRecord(transactional_id, after))
        effects.reply(waiter, ErrorCode.NONE)
        return effects

    def verify(
        self, transactional_id: str, asking: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns NONE for each partition that is in the open transaction, else TRANSACTION_ABORTABLE (KIP-890).

        Raises KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; INVALID_TXN_STATE if
        the transaction was taken over and can only be ended.
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
        """Answers with the owner's next pair when the decision is logged (S38). Raises as `end_v1` and `end_v2` do.

        Before V2 a decision that was made already is logged again. The epoch does not identify the transaction, and a
        former coordinator that does not know its successor yet may have older metadata: it must not confirm a decision
        that it cannot log.
        """
        before = self._known(transactional_id)
        if client_transaction_version >= TRANSACTIONS_V2:
            after = end_v2(before, asking, commits, self._now_ms(), spare_producer_id)
        else:
            after = end_v1(before, asking, commits, self._now_ms())
        effects = Effects()
        effects.reply(waiter, after.producer_when_complete)
        if after is not before or client_transaction_version < TRANSACTIONS_V2:
            effects.append(TransactionRecord(transactional_id, after))
        if after is not before:
            self._end(effects, after)
        return effects

    def complete(self, end: TransactionEnd) -> Effects:
        """Log that all markers of `end` are written. A second call does nothing (E8)."""
        effects = Effects()
        metadata = self._transactions.get(end.transactional_id)
        if metadata is not None and metadata.state.is_prepared and metadata.producer == end.producer:
            effects.append(TransactionRecord(end.transactional_id, metadata.completed(self._now_ms())))
        return effects

    # --- time

    def timed_out(self) -> list[str]:
        """Returns the transactional ids whose transaction has been open for longer than its timeout (S42); never those
        without a timeout (S120)."""
        return [transactional_id for transactional_id in self._begun if self._is_timed_out(transactional_id)]

    def _is_timed_out(self, transactional_id: str) -> bool:
        begun, known = self._begun.get(transactional_id), self._transactions.get(transactional_id)
        if begun is None or known is None or not known.has_timeout:
            return False
        return self._monotonic() - begun > known.timeout_ms / 1000

    def abort_timed_out(self, transactional_id: str, spare_producer_id: int | None) -> Effects:
        """Abort the transaction if it is still open for too long, and fence its producer (S42). Raises NeedsProducerId.

        The producer may continue with InitProducerId if it sends its epoch, since no other producer has taken over.
        Kafka fences it for good, as it cannot tell the two cases apart (KIP-588 asks for more than Kafka does).
        """
        effects = Effects()
        if self._is_timed_out(transactional_id):
            open_ = self._transactions[transactional_id]
            after = open_.fenced(self._now_ms(), spare_producer_id, last_epoch=open_.client.epoch)
            effects.append(TransactionRecord(transactional_id, after))
            self._end(effects, after)
        return effects

    def expire(self) -> Effects:
        """Log tombstones for transactional ids that were idle for transactional.id.expiration.ms (S43)."""
        effects = Effects()
        effects.may_be_divided = True
        newest = self._now_ms() - self._config.id_expiration_ms
        for transactional_id, metadata in self._transactions.items():
            if metadata.state in IDLE and metadata.last_update_timestamp <= newest:
                metadata.check_expirable()
                effects.append(TransactionRecord(transactional_id, None))
                if len(effects.records) == MAX_EXPIRED_PER_STEP:
                    break
        return effects

    # --- inside

    def _known(self, transactional_id: str) -> TransactionMetadata:
        metadata = self._transactions.get(transactional_id)
        if metadata is None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id!r} is not known"
            )
        return metadata

    def _owned(self, transactional_id: str, asking: ProducerIdAndEpoch) -> TransactionMetadata:
        """Returns the transactional id's state if `asking` may write in its transaction, or begin one."""
        metadata = self._known(transactional_id)
        if metadata.state.is_prepared and asking in (metadata.client, metadata.producer_when_complete):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{metadata!r} is being completed")
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
        effects.ends.append(
            TransactionEnd(
                metadata.transactional_id,
                metadata.producer,
                metadata.state is TransactionState.PREPARE_COMMIT,
                metadata.partitions,
                metadata.client_transaction_version,
            )
        )
