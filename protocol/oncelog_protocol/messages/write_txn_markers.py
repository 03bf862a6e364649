"""WriteTxnMarkers (27): a coordinator requests that markers are appended to the partitions of a transaction (S39).
Brokers only.
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, int8, int16, int32, int64, message, string, struct


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    """Append a control batch to each partition.

    v1: flexible.
    v2: transaction_version, which determines how the leader checks the epoch (KIP-1228).
    """

    markers: list[WritableTxnMarker] = array()

    @struct
    class WritableTxnMarker:
        producer_id: int = int64()
        producer_epoch: int = int16()
        # True if the marker commits the transaction, False if it aborts the transaction
        transaction_result: bool = boolean()
        topics: list[WritableTxnMarkerTopic] = array()
        # coordinator epoch; the partition's leader refuses epochs below the highest so far (S40)
        coordinator_epoch: int = int32()
        transaction_version: int = int8("2+", default=0)

        @struct
        class WritableTxnMarkerTopic:
            name: str = string()
            partition_indexes: list[int] = array(of=int32())


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """The response has one result per marker and partition.

    v1: flexible.

    Errors of a partition: TRANSACTION_COORDINATOR_FENCED, INVALID_PRODUCER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT,
    KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, CLUSTER_AUTHORIZATION_FAILED.
    """

    markers: list[WritableTxnMarkerResult] = array()

    @struct
    class WritableTxnMarkerResult:
        producer_id: int = int64()
        topics: list[WritableTxnMarkerTopicResult] = array()

        @struct
        class WritableTxnMarkerTopicResult:
            name: str = string()
            partitions: list[WritableTxnMarkerPartitionResult] = array()

            @struct
            class WritableTxnMarkerPartitionResult:
                partition_index: int = int32()
                error_code: int = int16()
