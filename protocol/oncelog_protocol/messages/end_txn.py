"""EndTxn (26): commits or aborts a transaction (S38)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, boolean, int16, int32, int64, message, string


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Request["EndTxnResponse"]):
    """End the transaction of a transactional id.

    v2: the client understands PRODUCER_FENCED (KIP-588).
    v3: flexible.
    v4: the client understands TRANSACTION_ABORTABLE (KIP-890).
    v5: transactions V2: every end raises the epoch, and an empty transaction may be aborted (KIP-890, T7).
    """

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()  # False: abort


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """The response to EndTxn. Success means that the decision to commit or abort is in the coordinator's log; the
    markers may not be written yet.

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: PRODUCER_FENCED replaces INVALID_PRODUCER_EPOCH (T8).
    v3: flexible.
    v4: TRANSACTION_ABORTABLE is possible (KIP-890).
    v5: the producer id and epoch for the next transaction, with sequences starting at 0 again (KIP-890, T7).

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_PRODUCER_ID_MAPPING,
    PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS (try again), TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
