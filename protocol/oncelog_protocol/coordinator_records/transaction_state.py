"""The records of `__transaction_state`: the newest record of a transactional id is its state, and a tombstone removes
the state (S32).
"""

from __future__ import annotations

from typing import Final

from oncelog_protocol.schema import array, int8, int16, int32, int64, message, string, struct

TRANSACTION_LOG_KEY_VERSION: Final = 0
TRANSACTION_LOG_VALUE_VERSION: Final = 1
"""The value version that oncelog writes. Kafka writes this version from `transaction.version` 1 on. Version 0 does not
have the fields of KIP-890.
"""


@message(versions="0", flexible=None)
class TransactionLogKey:
    """The key of a transactional id's state."""

    transactional_id: str = string("0")


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    """The coordinator's state of one transactional id.

    v1: flexible; adds the producer ids before and after an exhausted epoch, the transaction version of the client, and
    the owner that has taken over an open transaction.
    """

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)  # producer id of the last transaction
    # producer id that was already sent to the producer, for use after this transaction
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()  # the number of a TransactionState
    transaction_partitions: list[PartitionsSchema] | None = array(nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()  # start time of the transaction in ms; -1 if none was started
    client_transaction_version: int = int16("1+", tag=2, default=0)
    # Epoch of the owner that may end the open transaction, together with next_producer_id (KIP-939); -1 means that the
    # transaction's own producer may end it.
    next_producer_epoch: int = int16("1+", tag=3, default=-1)

    @struct
    class PartitionsSchema:
        topic: str = string()
        partition_ids: list[int] = array(of=int32())
