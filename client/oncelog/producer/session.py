"""One session of a producer: the identity that its batches are stamped with, and what an error says about the numbers.
Pure (S20-S29).

A session has one identity at a time. When the numbers of a partition can only be cleared up by a new epoch, an
idempotent producer takes the next one by itself (KIP-360); the other partitions change over as soon as nothing of the
old epoch is without an answer. A transactional producer gets its next epoch from the coordinator, after an abort.
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
"""Answers of a broker that has checked the batch and not appended it. After any other error it may be in the log: even
NOT_LEADER_OR_FOLLOWER is said of batches that were appended, when the leader changes before they are replicated."""

NO_LOG_START_OFFSET: Final = -1


class Verdict(Enum):
    """What to do with a batch that a broker has not taken as it should."""

    RETRY = auto()
    FAIL = auto()
    BY_ERROR = auto()  # as without idempotence: again if the error may pass
    DUPLICATE = auto()  # it is in the log already


class ProducerSession:
    """The identity of now, and the partitions' sequences under it."""

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.identity = NO_IDENTITY
        self.is_transactional = is_transactional
        self.is_start_checked = False
        """Whether brokers see to it that a session begins with sequence 0 (transactions V2)."""
        self.needs_new_epoch = False
        """A transactional producer: copies of what was sent may still arrive, or the numbers of a partition are not
        certain; only a new epoch of the coordinator ends both."""

    @property
    def has_identity(self) -> bool:
        return self.identity is not NO_IDENTITY

    def identify(self, identity: ProducerIdAndEpoch) -> None:
        """Go on under `identity`: each partition begins at 0 when nothing older of it is without an answer."""
        self.identity = identity
        self.needs_new_epoch = False

    def may_drain(self, sequences: PartitionSequences, batch: ProducerBatch) -> bool:
        """Whether the head of a partition's queue may go, for all that its numbers are concerned (S20, S24, S25)."""
        if not self.has_identity:
            return False
        if sequences.identity is not self.identity:
            if sequences.needs_restart or not sequences.unacknowledged:
                sequences.restart(self.identity)
            elif not batch.is_stamped:
                return False  # first what is under the old epoch
        return sequences.may_drain(batch, is_start_checked=self.is_start_checked)

    def settle(self, sequences: PartitionSequences) -> None:
        """Nothing of the partition is on the wire: clear up its numbers, with the next epoch where it takes one."""
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
        """What an error in the answer to Produce means (S28). The batch is not on the wire any more."""
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
            # Nobody else has our producer id, and no partition goes back to an older epoch: it is of no use any more.
            logger.warning("%s is fenced: asking for a new producer id", batch.identity)
            sequences.session_is_over()
            if sequences.identity is self.identity:
                self.identity = NO_IDENTITY
            return Verdict.RETRY
        return Verdict.BY_ERROR

    def _judge_out_of_order(self, sequences: PartitionSequences, batch: ProducerBatch) -> Verdict:
        is_first = bool(sequences.unacknowledged) and sequences.unacknowledged[0] is batch
        if is_first and self.is_transactional:
            return Verdict.FAIL  # what comes before it is not in the log: the transaction cannot be whole any more
        sequences.refused(batch)
        return Verdict.RETRY

    def _judge_unknown_producer(
        self, sequences: PartitionSequences, batch: ProducerBatch, log_start_offset: int
    ) -> Verdict:
        """Brokers before 2.5 forget a producer with its last record, and then take only sequence 0 of it."""
        if log_start_offset == NO_LOG_START_OFFSET:
            return Verdict.RETRY
        sequences.session_is_over()
        if log_start_offset > sequences.last_acknowledged_offset:  # retention has removed them: nothing is wrong
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
            "a batch is missing in the log, or its outcome is not known: the session of %s ends; what has failed may"
            " or may not be in the log",
            before,
        )
