"""DescribeProducers (61): describes the producer state of partitions (KIP-664), to find hanging transactions."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, int64, message, string, struct


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    """Describe the producer state of partitions; the request goes to their leader."""

    topics: list[TopicRequest] = array()

    @struct
    class TopicRequest:
        name: str = string()
        partition_indexes: list[int] = array(of=int32())


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """The state of every producer id that has not expired.

    Errors of a partition: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResponse] = array()

    @struct
    class TopicResponse:
        name: str = string()
        partitions: list[PartitionResponse] = array()

        @struct
        class PartitionResponse:
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            active_producers: list[ProducerState] = array()

            @struct
            class ProducerState:
                producer_id: int = int64()
                producer_epoch: int = int32()
                # sequence number of the producer's last record; -1 if there is none
                last_sequence: int = int32(default=-1)
                # timestamp in ms of the producer's newest records; -1 if there are none
                last_timestamp: int = int64(default=-1)
                coordinator_epoch: int = int32()  # coordinator epoch of the last marker; -1 if there is no marker
                # first offset of the open transaction; -1 if no transaction is open
                current_txn_start_offset: int = int64(default=-1)
