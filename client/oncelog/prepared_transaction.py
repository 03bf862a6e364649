"""A prepared transaction, which any process that knows these values can commit or abort. Pure.

EndTxn carries a transactional id, a producer id and an epoch, and no reference to the connection that wrote the
records. So one process may write and another one decide later, with any Kafka broker. Where the broker has two-phase
commit (KIP-939, S120, S121), the transaction has no timeout, and the next owner of its transactional id keeps it open.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

FIRST_INIT_WITH_TWO_PHASE_COMMIT: Final = 6
"""InitProducerId from this version on can keep an open transaction (KIP-939)."""
LAST_END_TXN_BEFORE_V2: Final = 4
"""EndTxn above this version implies transactions V2 (T6); a transaction must end in the version in which it began
(T7)."""


class PreparedTransaction(NamedTuple):
    """All its records are written, and it is open until it is committed, aborted or times out.

    `is_v2`: it began under transactions V2 (KIP-890). `Producer.prepare_transaction` returns it;
    `Producer.complete_transaction` and `admin.transactions.end` take it. Store it as JSON (a list of four values) or
    pickle it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_v2: bool

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """Producer id and epoch of its records, by which the coordinator knows the transaction."""
        return ProducerIdAndEpoch(self.producer_id, self.epoch)


class Ended(Enum):
    """The meaning of an EndTxn response for a prepared transaction."""

    AS_ASKED = auto()
    OTHERWISE = auto()
    NOT_KNOWN = auto()


_COMMITS: Final[Mapping[ErrorCode, Ended]] = {
    ErrorCode.NONE: Ended.AS_ASKED,
    ErrorCode.INVALID_TXN_STATE: Ended.OTHERWISE,
    ErrorCode.PRODUCER_FENCED: Ended.OTHERWISE,
    ErrorCode.INVALID_PRODUCER_EPOCH: Ended.OTHERWISE,
}
_ABORTS: Final[Mapping[ErrorCode, Ended]] = {
    ErrorCode.NONE: Ended.AS_ASKED,
    ErrorCode.INVALID_TXN_STATE: Ended.OTHERWISE,
    # The cause of the higher epoch (a timeout, a producer with the same id, `fence`) has also aborted the open
    # transaction.
    ErrorCode.PRODUCER_FENCED: Ended.AS_ASKED,
    ErrorCode.INVALID_PRODUCER_EPOCH: Ended.AS_ASKED,
}


def outcome(code: ErrorCode, *, commits: bool) -> Ended:
    """Return the meaning of a non-retriable EndTxn response (S38, T7, T8).

    NONE is also the response if the transaction was ended that way before: under V2 to the epoch before the current
    one, under V1 by its state. NOT_KNOWN: mostly INVALID_PRODUCER_ID_MAPPING, when the transactional id has expired
    (`transactional.id.expiration.ms`, S43).
    """
    return (_COMMITS if commits else _ABORTS).get(code, Ended.NOT_KNOWN)
