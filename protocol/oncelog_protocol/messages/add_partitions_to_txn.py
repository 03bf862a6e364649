"""AddPartitionsToTxn (24): adds partitions to a transaction, before the first write to them."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, int16, int32, int64, message, string, struct


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    """Add partitions to a transaction (S36).

    Clients send v0-3, which have one transaction in the fields v3_and_below_*. Brokers send v4 and later on behalf of
    their producers, with many transactions (KIP-890).

    v2: the client understands PRODUCER_FENCED (KIP-588).
    v3: flexible.
    v4: transactions; with verify_only, the request checks whether the partitions are in the transaction, and adds
    nothing.
    v5: the sender understands TRANSACTION_ABORTABLE (KIP-890).
    """

    transactions: list[AddPartitionsToTxnTransaction] = array("4+", default_factory=list)
    v3_and_below_transactional_id: str = string("0-3", default="")
    v3_and_below_producer_id: int = int64("0-3", default=0)
    v3_and_below_producer_epoch: int = int16("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array("0-3", default_factory=list)

    @struct
    class AddPartitionsToTxnTransaction:
        transactional_id: str = string("4+")
        producer_id: int = int64("4+")
        producer_epoch: int = int16("4+")
        verify_only: bool = boolean("4+", default=False)
        topics: list[AddPartitionsToTxnTopic] = array("4+")


@struct
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: list[int] = array(of=int32())


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """The response has one result per partition, for one transaction (v0-3) or several (v4+).

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: PRODUCER_FENCED replaces INVALID_PRODUCER_EPOCH (T8).
    v3: flexible.
    v4: results_by_transaction, and an error of the entire request.
    v5: TRANSACTION_ABORTABLE is possible (KIP-890).

    Errors of a partition: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS (try again),
    OPERATION_NOT_ATTEMPTED (another partition was refused), UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = array("4+", default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array("0-3", default_factory=list)

    @struct
    class AddPartitionsToTxnResult:
        transactional_id: str = string("4+")
        topic_results: list[AddPartitionsToTxnTopicResult] = array("4+")


@struct
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array()


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: int = int16()
