"""InitProducerId (22): returns a producer id and epoch; for a transactional id it also fences older producers."""

from __future__ import annotations

from oncelog_protocol.schema import Request, boolean, int16, int32, int64, message, string


@message(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """Request a producer id (S5), or initialise a transactional id (S34).

    v2: flexible.
    v3: producer_id and producer_epoch, with which a producer raises its epoch and continues after an error; either both
    are set, or neither (KIP-360, T21).
    v4: the client understands PRODUCER_FENCED (KIP-588).
    v5: the client understands TRANSACTION_ABORTABLE (KIP-890).
    v6: two-phase commit, in which an external coordinator decides (KIP-939); Kafka 4.3 serves v6 only with
    unstable.api.versions.enable.
    """

    # None requests a producer id for idempotence without transactions
    transactional_id: str | None = string(nullable="0+", default=None)
    # at most transaction.max.timeout.ms (S42); ignored without a transactional id
    transaction_timeout_ms: int = int32()
    # the producer's present id, to continue after an error; -1 requests a new id
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+", default=False)  # two-phase commit: the producer's transactions have no timeout
    keep_prepared_txn: bool = boolean("6+", default=False)  # keep an open transaction, so that the new owner can end it


@message(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """The producer id and epoch to use.

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: flexible.
    v4: PRODUCER_FENCED replaces INVALID_PRODUCER_EPOCH (T8).
    v5: TRANSACTION_ABORTABLE is possible (KIP-890).
    v6: the producer id and epoch of the transaction that was kept open (KIP-939), -1 if no transaction was kept open.

    Errors: CONCURRENT_TRANSACTIONS (try again), NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, INVALID_TRANSACTION_TIMEOUT, INVALID_REQUEST (an empty transactional id),
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
