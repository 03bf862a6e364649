"""A transaction that its producer has handed over: whoever knows these four values can end it. Pure.

EndTxn carries a transactional id, a producer id and an epoch, and nothing of the connection that wrote the records. So
one process may write and another, later or elsewhere, decide: as two-phase commit does (KIP-939), on any Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog_protocol.errors import ErrorCode

LAST_END_TXN_BEFORE_V2: Final = 4
"""EndTxn above this version means transactions V2 (T6): a transaction ends as it was begun (T7)."""


class PreparedTransaction(NamedTuple):
    """All records of it are written, and it is open: until somebody ends it, or its timeout does.

    `is_v2`: it was begun under transactions V2 (KIP-890). What `Producer.prepare_transaction` returns and
    `admin.transactions.end` takes; pickled and written as JSON by whoever hands it on.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_v2: bool


class Ended(Enum):
    """What an answer to EndTxn says about a prepared transaction."""

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
    # Whoever raised the epoch (a timeout, a producer with the same id, `fence`) has aborted what was open.
    ErrorCode.PRODUCER_FENCED: Ended.AS_ASKED,
    ErrorCode.INVALID_PRODUCER_EPOCH: Ended.AS_ASKED,
}


def outcome(code: ErrorCode, *, commits: bool) -> Ended:
    """What the answer to EndTxn means, once it is none that may pass by itself (S38, T7, T8).

    NONE is also the answer where it was ended that way before: under V2 to the epoch before the current one, under V1
    by the state alone. NOT_KNOWN: above all INVALID_PRODUCER_ID_MAPPING, where the transactional id has expired
    (`transactional.id.expiration.ms`, S43) and nobody remembers.
    """
    return (_COMMITS if commits else _ABORTS).get(code, Ended.NOT_KNOWN)
