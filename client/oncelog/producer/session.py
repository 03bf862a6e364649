"""One producer session: the identity that is stamped on its batches, and the decision about errors of sequence numbers.
Pure (S20-S29).

A session has one identity at any moment. When only a new epoch can resolve the numbers of a partition, an idempotent
producer raises its epoch itself (KIP-360); every other partition switches to the new epoch when it has no
unacknowledged batch of the old epoch. A transactional producer gets its next epoch from the coordinator, after an
abort.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import Final

from oncelog.producer.batch import ProducerBatch
from oncelog.producer.sequences import PartitionSequences
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import NO_IDENTITY, ProducerIdAndEpoch

logger = logging.getLogger(__name__)

NOT_APPENDED: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Errors after which the batch is certainly not appended. After any other error the batch may be in the log; even
NOT_LEADER_OR_FOLLOWER can follow an append, if the leader changes before replication.
"""

NO_LOG_START_OFFSET: Final = -1


class Verdict(Enum):
    """What the producer does with a batch that a broker has refused."""

    RETRY = auto()
    FAIL = auto()
    BY_ERROR = auto()  # As without idempotence: retry if the error is retriable.
    DUPLICATE = auto()  # The batch is in the log already.


class ProducerSession:
    """The present identity, and the sequence numbers of each partition under this identity."""

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.identity = NO_IDENTITY
        self.is_transactional = is_transactional
        self.is_start_checked = False
        """Whether brokers require that a producer session starts with sequence 0, as they do under transactions V2."""
        self.needs_new_epoch = False
        """True if a transactional producer needs a new epoch from the coordinator, because copies of its batches may
        still arrive or the sequence numbers of a partition are uncertain.
        """

    @property
    def has_identity(self) -> bool:
        return self.identity is not NO_IDENTITY

    def identify(self, identity: ProducerIdAndEpoch) -> None:
        """Continue under `identity`: each partition starts at 0 when none of its older batches is unacknowledged."""
        self.identity = identity
        self.needs_new_epoch = False

    def may_drain(self, sequences: PartitionSequences, batch: ProducerBatch) -> bool:
        """Return whether the first batch of a partition's queue may be sent, as far as its sequence numbers are
        concerned
        (S20, S24, S25).
        """
        if not self.has_identity:
            return False
        if sequences.identity is not self.identity:
            if sequences.needs_restart or not sequences.unacknowledged:
                sequences.restart(self.identity)
            elif not batch.is_stamped:
                return False  # batches of the old epoch must be acknowledged first
        return sequences.may_drain(batch, is_start_checked=self.is_start_checked)

    def settle(self, sequences: PartitionSequences) -> None:
        """Renumber the batches of a partition that has no batch in flight; raise the epoch, or request a new epoch, if
        needed.
        """
        sequences.settle()
        if not sequences.needs_restart or sequences.identity is not self.identity:
            return
        if self.is_transactional:
            self.needs_new_epoch = True
        else:
            self._bump()

    def judge(
        self, sequences: PartitionSequences, batch: ProducerBatch, code: ErrorCode, log_start_offset: int
    ) -> Verdict:
        """Return the verdict on an error in a Produce response (S28). The batch is no longer in flight."""
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return Verdict.DUPLICATE
        if code not in NOT_APPENDED:
            batch.is_maybe_written = True
            return Verdict.BY_ERROR
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._judge_out_of_order(sequences, batch)
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._judge_unknown_producer(sequences, batch, log_start_offset)
        if code is ErrorCode.INVALID_PRODUCER_EPOCH and not self.is_transactional:
            # No other producer has this producer id, and this producer never returns to an older epoch. The broker's
            # state must therefore be wrong, and the producer id can no longer be used.
            logger.warning("%s is fenced: requesting a new producer id", batch.identity)
            sequences.session_is_over()
            if sequences.identity is self.identity:
                self.identity = NO_IDENTITY
            return Verdict.RETRY
        return Verdict.BY_ERROR

    def _judge_out_of_order(self, sequences: PartitionSequences, batch: ProducerBatch) -> Verdict:
        is_first = bool(sequences.unacknowledged) and sequences.unacknowledged[0] is batch
        if is_first and self.is_transactional:
            return Verdict.FAIL  # an earlier batch is not in the log, so the transaction is incomplete
        sequences.refused(batch)
        return Verdict.RETRY

    def _judge_unknown_producer(
        self, sequences: PartitionSequences, batch: ProducerBatch, log_start_offset: int
    ) -> Verdict:
        """Return the verdict on an unknown producer id: brokers before 2.5 forget a producer with its last record, and
        then accept only sequence 0 from it.
        """
        if log_start_offset == NO_LOG_START_OFFSET:
            return Verdict.RETRY
        sequences.session_is_over()
        # retention has removed the producer's records, so the broker no longer knows the producer
        if log_start_offset > sequences.last_acknowledged_offset:
            return Verdict.FAIL if self.is_transactional else Verdict.RETRY
        logger.error(
            "%s-%d: the broker has forgotten %s, though its records are not deleted: data may be lost",
            batch.topic,
            batch.partition,
            batch.identity,
        )
        return Verdict.FAIL

    def _bump(self) -> None:
        before = self.identity
        self.identity = NO_IDENTITY if before.is_last else before.bumped()
        logger.warning(
            "a batch is missing in the log, or its outcome is unknown: the session of %s ends; what has failed may"
            " or may not be in the log",
            before,
        )
