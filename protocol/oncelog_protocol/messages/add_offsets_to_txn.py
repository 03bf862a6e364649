"""AddOffsetsToTxn (25): adds the offsets of a group to a transaction (S37)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, int16, int32, int64, message, string


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    """Add the group's partition of __consumer_offsets to the transaction.

    The offsets themselves are sent to the group coordinator afterwards, with TxnOffsetCommit.

    v2: the client understands PRODUCER_FENCED (KIP-588).
    v3: flexible.
    v4: the client understands TRANSACTION_ABORTABLE (KIP-890).
    """

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Whether the group's partition was added to the transaction.

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: PRODUCER_FENCED replaces INVALID_PRODUCER_EPOCH (T8).
    v3: flexible.
    v4: TRANSACTION_ABORTABLE is possible (KIP-890).

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_PRODUCER_ID_MAPPING,
    PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS (try again), TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
