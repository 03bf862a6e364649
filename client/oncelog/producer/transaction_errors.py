"""The meaning of every error code for a transactional producer, in one table. Pure.

For each code, the table depends on whether another producer may have owned the transactional id since this producer's
last successful request (S90). If another owner is possible, the error is fatal, because this producer's state is
outdated. The coordinator may also have forgotten the other owner. If this producer then continued, no broker would
fence it, and it would take the transactional id away from the other owner.

After all other errors the transaction is aborted, and the abort finds out whether the coordinator still knows this
producer as the owner. The abort sends EndTxn or, if the coordinator accepts no EndTxn (`End.NEXT_EPOCH`),
InitProducerId with producer id and epoch. Brokers respond with PRODUCER_FENCED or INVALID_PRODUCER_ID_MAPPING to every
producer except the owner. For a forgotten id, Apache Kafka responds to InitProducerId with a new producer id instead,
which `is_forgotten` detects. If no broker knows the transaction, it is aborted locally only; the response to the next
request shows whether this producer is still the owner.

The rules are Kafka's rules (KIP-98, KIP-360, KIP-447, KIP-588, KIP-890, and release 4.0 for
INVALID_PRODUCER_ID_MAPPING).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import MAX_EPOCH, ProducerIdAndEpoch


class Meaning(Enum):
    """The meaning of a coordinator's response."""

    DONE = auto()
    AGAIN = auto()  # The error is retriable.
    CONCURRENT = auto()  # The previous transaction is being completed: retry after a very short backoff.
    MOVED = auto()  # Another broker is the coordinator now: look it up.
    ABORTABLE = auto()
    FENCED = auto()
    FATAL = auto()


class End(Enum):
    """The ways in which a failed transaction is ended at the coordinator."""

    END_TXN = auto()
    NEXT_EPOCH = auto()  # The coordinator accepts no EndTxn: InitProducerId ends the transaction (KIP-588).
    NONE = auto()  # This producer can no longer end the transaction.


class Rule(NamedTuple):
    """The rule for one error code of a transactional producer. `answer` is the meaning of the code in a coordinator's
    response. `write` is its meaning in
    a Produce response, once the batch is given up. `end` is the way in which a transaction that failed with the code is
    ended. `is_repeated` says whether the same records may succeed in another transaction (`consume_process_produce`).
    """

    answer: Meaning
    write: Meaning
    end: End
    is_repeated: bool
    why: str


_M = Meaning

RULES: Final[Mapping[ErrorCode, Rule]] = {
    ErrorCode.NONE: Rule(_M.DONE, _M.DONE, End.END_TXN, False, "no error"),
    ErrorCode.CONCURRENT_TRANSACTIONS: Rule(
        _M.CONCURRENT, _M.ABORTABLE, End.END_TXN, True, "our own last transaction is being completed"
    ),
    ErrorCode.NOT_COORDINATOR: Rule(
        _M.MOVED,
        _M.ABORTABLE,
        End.END_TXN,
        True,
        "the broker that was asked does not know the owner; the next coordinator does",
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Rule(
        _M.MOVED, _M.ABORTABLE, End.END_TXN, True, "no broker that knows the owner was asked"
    ),
    ErrorCode.PRODUCER_FENCED: Rule(_M.FENCED, _M.FENCED, End.NONE, False, "there is another owner"),
    ErrorCode.INVALID_PRODUCER_EPOCH: Rule(
        _M.FENCED,  # Older versions send this code instead of PRODUCER_FENCED (T8).
        _M.ABORTABLE,  # A newer owner or an abort by the coordinator may have raised the epoch (KIP-588).
        End.NEXT_EPOCH,
        True,
        "InitProducerId tells whether the epoch is another owner's",
    ),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Rule(
        _M.FATAL,
        _M.FATAL,
        End.NONE,
        False,
        "the coordinator has forgotten the id, or gave it to another producer id: its owner meanwhile is unknown",
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: Rule(
        _M.ABORTABLE, _M.ABORTABLE, End.NEXT_EPOCH, True, "a leader has forgotten us; InitProducerId tells the owner"
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Rule(
        _M.FATAL,
        _M.ABORTABLE,
        End.END_TXN,
        True,
        "of our own epoch, so no other producer has taken it over; the answer to EndTxn shows it",
    ),
    ErrorCode.INVALID_TXN_STATE: Rule(
        _M.FATAL, _M.ABORTABLE, End.END_TXN, False, "of our own epoch, but coordinator and producer do not agree"
    ),
    ErrorCode.TRANSACTION_ABORTABLE: Rule(
        _M.ABORTABLE, _M.ABORTABLE, End.END_TXN, True, "the broker says that an abort is enough; EndTxn tells"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Rule(
        _M.ABORTABLE, _M.ABORTABLE, End.END_TXN, False, "about the topic; EndTxn tells the owner"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Rule(
        _M.ABORTABLE, _M.ABORTABLE, End.END_TXN, False, "about the group; EndTxn tells the owner"
    ),
    ErrorCode.ILLEGAL_GENERATION: Rule(
        _M.ABORTABLE,
        _M.ABORTABLE,
        End.END_TXN,
        True,
        "the consumer is behind its group, not the producer behind its id",
    ),
    ErrorCode.UNKNOWN_MEMBER_ID: Rule(
        _M.ABORTABLE,
        _M.ABORTABLE,
        End.END_TXN,
        True,
        "the consumer is behind its group, not the producer behind its id",
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: Rule(
        _M.ABORTABLE, _M.ABORTABLE, End.END_TXN, True, "of Kafka, to a member that has joined and not synced yet"
    ),
    ErrorCode.FENCED_INSTANCE_ID: Rule(
        _M.ABORTABLE, _M.ABORTABLE, End.END_TXN, False, "another consumer has our instance id, not our transactional id"
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: Rule(
        _M.ABORTABLE, _M.ABORTABLE, End.END_TXN, False, "about the offsets; EndTxn tells the owner"
    ),
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Rule(
        _M.ABORTABLE, _M.ABORTABLE, End.END_TXN, False, "about the offsets; EndTxn tells the owner"
    ),
}

RETRIABLE: Final = Rule(Meaning.AGAIN, Meaning.ABORTABLE, End.END_TXN, True, "it may be temporary, and proves nothing")
"""The rule for a retriable code that is not in RULES."""
OTHER: Final = Rule(
    Meaning.FATAL,
    Meaning.ABORTABLE,
    End.END_TXN,
    False,
    "a coordinator's refusal does not pass; of a batch, EndTxn tells",
)
"""The rule for any other code."""


def rule_of(code: ErrorCode) -> Rule:
    return RULES.get(code, RETRIABLE if code.retriable else OTHER)


def meaning_of(code: ErrorCode) -> Meaning:
    """Return the meaning of `code` in a coordinator's response."""
    return rule_of(code).answer


MAX_EPOCHS_BY_ONE_REQUEST: Final = 3
"""Maximum number of epochs by which one InitProducerId request with its retries may raise the epoch: one for the abort,
one for the new session, and one spare.
"""


def is_forgotten(had: ProducerIdAndEpoch, given: ProducerIdAndEpoch) -> bool:
    """Return whether the InitProducerId response shows that the coordinator had forgotten the owner `had`.

    A coordinator that knows the owner keeps the producer id while epochs are left.
    """
    return given.producer_id != had.producer_id and had.epoch < MAX_EPOCH - MAX_EPOCHS_BY_ONE_REQUEST
