"""A prepared transaction: any process that knows these values can commit or abort it. Pure.

EndTxn contains a transactional id, a producer id and an epoch, and a broker accepts the request on any connection.
Therefore one process may write the records, and another process may commit or abort the transaction later. Ending a
transaction in another process works with every Kafka broker. If the broker has two-phase commit (KIP-939, S120, S121),
the transaction has no timeout, and the next owner of its transactional id keeps it open.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

FIRST_INIT_WITH_TWO_PHASE_COMMIT: Final = 6
"""First version of InitProducerId that can keep an open transaction (KIP-939)."""
LAST_END_TXN_BEFORE_V2: Final = 4
"""The highest version of EndTxn for transactions V1; later versions imply transactions V2 (T6). A transaction must end
under the protocol, V1 or V2, under which it began (T7).
"""


class PreparedTransaction(NamedTuple):
    """An open transaction whose records are all written; it stays open until it is committed, aborted or times out.

    `is_v2` says that the transaction began under transactions V2 (KIP-890). `Producer.prepare_transaction` returns this
    object; `Producer.complete_transaction` and `admin.transactions.end` accept it. A PreparedTransaction can be stored
    as JSON (a list of four values) or by pickle.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_v2: bool

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """Producer id and epoch of the transaction's records, which identify the transaction at its coordinator."""
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
    # The event that raised the epoch (a timeout, a producer with the same id, `fence`) has also aborted the open
    # transaction.
    ErrorCode.PRODUCER_FENCED: Ended.AS_ASKED,
    ErrorCode.INVALID_PRODUCER_EPOCH: Ended.AS_ASKED,
}


def outcome(code: ErrorCode, *, commits: bool) -> Ended:
    """Return the meaning of a non-retriable EndTxn response (S38, T7, T8).

    NONE is also the response if the transaction was already ended in the requested way. The coordinator recognises this
    case under V2 by the previous epoch in the request, and under V1 by the state of the transaction. NOT_KNOWN mostly
    means that the response was INVALID_PRODUCER_ID_MAPPING, because the transactional id has expired
    (`transactional.id.expiration.ms`, S43).
    """
    return (_COMMITS if commits else _ABORTS).get(code, Ended.NOT_KNOWN)
