"""The state machine of a transactional producer: checks calls, and tracks pending coordinator requests (S36, S38, S45).
Pure.

Under transactions V2 (KIP-890), the leader of a partition adds the partition to the transaction with the first write,
and the end of a transaction brings the next epoch. Before V2, the producer asks the coordinator to add each partition
first, and keeps its epoch.
"""

from __future__ import annotations

import logging

from oncelog.cluster import TopicPartition
from oncelog.errors import AbortableError, FatalError, InvalidTransactionState, KafkaError
from oncelog.producer.session import ProducerSession
from oncelog.producer.transaction_errors import End, Meaning, rule_of
from oncelog.producer.transaction_states import TransactionState, check
from oncelog_protocol.producer_id import ProducerIdAndEpoch

logger = logging.getLogger(__name__)

SENDING = frozenset(
    {TransactionState.IN_TRANSACTION, TransactionState.PREPARED_TRANSACTION, TransactionState.COMMITTING}
)
"""The states in which batches may be sent; in ABORTABLE_ERROR no more batches are sent."""

OPEN = frozenset(
    {TransactionState.IN_TRANSACTION, TransactionState.PREPARED_TRANSACTION, TransactionState.ABORTABLE_ERROR}
)
"""The states of a transaction that can be aborted."""


ANOTHER_OWNER = "another producer may have had the transactional id {!r} since; start a new producer"


class TransactionManager:
    """Invariants: `state` changes only along `transaction_states.PREVIOUS`. `error` is set in the two error states, and
    kept during the abort. The sets of partitions `added` and `pending` have no common partition, and both are empty
    outside a transaction.
    """

    def __init__(self, transactional_id: str, session: ProducerSession) -> None:
        self.transactional_id = transactional_id
        self.session = session
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        self.is_v2 = False
        self.number = 0
        """The number of the transaction; a record whose `send` began in an earlier transaction must not be added to
        this transaction.
        """
        self.added: set[TopicPartition] = set()
        self.pending: set[TopicPartition] = set()
        self._is_begun_at_broker = False

    # methods that are called on behalf of the application

    def begin_initialising(self) -> None:
        self._to(TransactionState.INITIALIZING)

    def begin(self, *, is_v2: bool) -> None:
        """Begin a transaction; the change is local only (S45). Raises InvalidTransactionState, and the fatal error if
        one occurred.
        """
        self.check_usable()
        if self.state is TransactionState.PREPARED_TRANSACTION:
            raise InvalidTransactionState(f"complete, commit or abort the prepared transaction first: {self._told}")
        if self.state is not TransactionState.READY:
            raise InvalidTransactionState(
                f"a transaction can begin only after the previous one has ended; current state: {self._told}"
            )
        self._to(TransactionState.IN_TRANSACTION)
        self.is_v2 = self.session.is_start_checked = is_v2
        self.number += 1

    def check_usable(self) -> None:
        """Raise the fatal error if one has occurred."""
        if self.state is TransactionState.FATAL_ERROR:
            raise self._kept_error()

    def check_in_transaction(self) -> None:
        """Raise InvalidTransactionState outside a transaction. In a transaction that can only be aborted, raise the
        error of that transaction.
        """
        if self.state is TransactionState.IN_TRANSACTION:
            return
        self.check_usable()
        if self.state is TransactionState.ABORTABLE_ERROR:
            raise self._kept_error()
        raise InvalidTransactionState(f"only possible in a transaction: {self._told}")

    def sending_to(self, partition: TopicPartition) -> None:
        """Record that the application is about to send records to this partition. Raises the errors of
        `check_in_transaction`.
        """
        self.check_in_transaction()
        if partition not in self.added and partition not in self.pending:
            (self.added if self.is_v2 else self.pending).add(partition)

    def begin_prepare(self) -> None:
        """Accept no more records; queued records are still written. The method may be called repeatedly.

        Raises the errors of `check_in_transaction`.
        """
        if self.state is not TransactionState.PREPARED_TRANSACTION:
            self.check_in_transaction()
            self._to(TransactionState.PREPARED_TRANSACTION)

    def begin_commit(self) -> None:
        """Start the commit. Raises the errors of `check_in_transaction`."""
        if self.state is not TransactionState.PREPARED_TRANSACTION:
            self.check_in_transaction()
        self._to(TransactionState.COMMITTING)

    def begin_abort(self) -> None:
        """Start the abort. Raises InvalidTransactionState if no transaction can be aborted, and the fatal error if one
        occurred.
        """
        self.check_usable()
        if self.state not in OPEN:
            raise InvalidTransactionState(f"no transaction can be aborted: {self._told}")
        self._to(TransactionState.ABORTING)
        self.pending.clear()

    # methods that the sender calls

    @property
    def is_sending(self) -> bool:
        """Whether records of this transaction may still be sent."""
        return self.state in SENDING

    def may_send(self, partition: TopicPartition) -> bool:
        """Return whether a batch of this partition may be sent: the coordinator knows the partition, or its leader will
        add it.
        """
        return self.is_sending and partition in self.added

    def sent(self) -> None:
        """Record that a request that makes the transaction known to a broker is in flight. Under V2, this is the first
        write; before V2, it is the request that adds partitions.
        """
        self._is_begun_at_broker = True

    # outcomes

    def initialised(self, identity: ProducerIdAndEpoch) -> None:
        """Record the identity that InitProducerId returned; all earlier transactions of the transactional id have
        ended.
        """
        self.session.identify(identity)
        self._ended()

    def kept(self, identity: ProducerIdAndEpoch, *, is_v2: bool) -> None:
        """Record that InitProducerId returned an identity and kept an open transaction, to which no records can be
        added (KIP-939).
        """
        self.session.identify(identity)
        self._to(TransactionState.PREPARED_TRANSACTION)
        self.is_v2 = is_v2
        self._is_begun_at_broker = True

    def were_added(self, partitions: set[TopicPartition]) -> None:
        """Record that the coordinator has added these partitions."""
        self._is_begun_at_broker = True
        if self.state in SENDING:
            self.pending -= partitions
            self.added |= partitions

    @property
    def must_be_ended(self) -> bool:
        """Whether the coordinator knows this transaction, or may know it."""
        return self._is_begun_at_broker

    @property
    def may_send_end(self) -> bool:
        """Whether EndTxn may succeed; otherwise InitProducerId must end the transaction."""
        return self.error is None or rule_of(self.error.code).end is not End.NEXT_EPOCH

    def ended(self, identity: ProducerIdAndEpoch | None) -> None:
        """Record that EndTxn succeeded or was not needed. `identity` is the next identity under V2, None if
        unchanged."""
        if identity is not None:
            self.session.identify(identity)
        self._ended()

    def failed(self, error: KafkaError) -> KafkaError:
        """Record that a request or batch of this transaction failed permanently. Depending on the error, the
        transaction can only be aborted, or the producer cannot continue at all.

        Returns the error for the application; the first error is kept. Raises InvalidTransactionState outside a
        transaction.
        """
        if self.state is TransactionState.FATAL_ERROR:
            assert self.error is not None
            return self.error
        if rule_of(error.code).write is Meaning.FATAL:
            error = FatalError(error.code, f"{error.message}: {ANOTHER_OWNER.format(self.transactional_id)}")
        if isinstance(error, FatalError):
            self.state, self.error = TransactionState.FATAL_ERROR, error
            logger.error("transactional id %s: %s", self.transactional_id, error)
            return error
        if self.state is TransactionState.ABORTING:
            return error  # keep the state, because the transaction is already being aborted
        if not isinstance(error, AbortableError):
            told = AbortableError(error.code, f"the transaction can only be aborted: {error.message}")
            told.__cause__ = error
            error = told
        self._to(TransactionState.ABORTABLE_ERROR)
        if self.error is None:
            logger.info("transactional id %s: %s", self.transactional_id, error)
            self.error = error
        self.pending.clear()
        return self.error

    # inside

    def _ended(self) -> None:
        self._to(TransactionState.READY)
        self.error = None
        self._is_begun_at_broker = False
        self.added.clear()
        self.pending.clear()

    def _to(self, state: TransactionState) -> None:
        check(self.state, state)
        self.state = state

    def _kept_error(self) -> KafkaError:
        """Return the error without the traceback of earlier raises, because tracebacks would accumulate when the same
        error is raised repeatedly.
        """
        assert self.error is not None
        return self.error.with_traceback(None)

    @property
    def _told(self) -> str:
        return f"transactional id {self.transactional_id!r} is {self.state.name}"
