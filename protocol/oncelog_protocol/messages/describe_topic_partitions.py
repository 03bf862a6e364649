"""DescribeTopicPartitions (75): describes topics page by page (KIP-966)."""

from __future__ import annotations

from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.schema import Request, array, boolean, int16, int32, message, nested, string, struct, uuid


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    """Describe topics in the order of their names, beginning at a cursor. An empty list stands for all topics."""

    topics: list[TopicRequest] = array()
    response_partition_limit: int = int32(default=2000)  # maximum partitions per page; the broker may send fewer
    cursor: Cursor | None = nested(nullable="0+", default=None)  # start of the page; None: the first topic

    @struct
    class TopicRequest:
        name: str = string()

    @struct
    class Cursor:
        """The first topic and partition to describe."""

        topic_name: str = string()
        partition_index: int = int32()


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """One page of the description, and the start of the next page.

    Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED. Errors of a
    partition: LEADER_NOT_AVAILABLE. INVALID_REQUEST is the error for a cursor that no earlier page has returned.
    """

    throttle_time_ms: int = int32(default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = array()
    # the start of the next page; None means that this was the last page
    next_cursor: Cursor | None = nested(nullable="0+", default=None)

    @struct
    class DescribeTopicPartitionsResponseTopic:
        error_code: int = int16()
        name: str | None = string(nullable="0+")
        topic_id: bytes = uuid()
        is_internal: bool = boolean(default=False)
        partitions: list[DescribeTopicPartitionsResponsePartition] = array()
        topic_authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_OMITTED)

        @struct
        class DescribeTopicPartitionsResponsePartition:
            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()  # node id of the leader; -1 if the partition has no leader
            leader_epoch: int = int32(default=-1)
            replica_nodes: list[int] = array(of=int32())
            isr_nodes: list[int] = array(of=int32())
            # replicas outside the ISR that have all committed records
            eligible_leader_replicas: list[int] | None = array(of=int32(), nullable="0+", default=None)
            # replicas that an operator may choose as leader in an unclean election
            last_known_elr: list[int] | None = array(of=int32(), nullable="0+", default=None)
            offline_replicas: list[int] = array(of=int32())

    @struct
    class Cursor:
        topic_name: str = string()
        partition_index: int = int32()
