"""Build the response to a request that is refused entirely with one error; the response equals the result of Kafka's
`getErrorResponse`.

REFUSABLE lists the APIs that can be refused: application clients send these requests, and must handle the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from oncelog_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog_protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from oncelog_protocol.messages.end_txn import EndTxnResponse
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog_protocol.messages.heartbeat import HeartbeatResponse
from oncelog_protocol.messages.init_producer_id import InitProducerIdResponse
from oncelog_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog_protocol.messages.leave_group import LeaveGroupResponse
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from oncelog_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.messages.sync_group import SyncGroupResponse
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

NO_OFFSET: Final = -1
NO_NODE: Final = -1
FIRST_NULL_PROTOCOL: Final = 7
"""First version of JoinGroup in which a response without a generation has a null protocol name (KIP-559)."""
FIRST_FIND_OF_MANY: Final = 4
FIRST_FETCH_OF_MANY: Final = 8
FIRST_DELETE_BY_ID: Final = 6
FIRST_OF_BROKERS: Final = 4
"""First version of AddPartitionsToTxn that brokers send, whose response has a top-level error code."""


def refusal(api_key: int, version: int, request: Any, code: ErrorCode) -> Any:
    """Return the response of this API with error `code`; raises KeyError for an API that is not in REFUSABLE."""
    return _REFUSALS[ApiKey(api_key)](request, version, code)


def _produce(request: ProduceRequest, version: int, code: ErrorCode) -> ProduceResponse | None:
    if request.acks == 0:
        return None  # no response, because the client expects no response (acks=0)
    answer_type = ProduceResponse.TopicProduceResponse
    return ProduceResponse(
        responses=[
            answer_type(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    answer_type.PartitionProduceResponse(index=each.index, error_code=code, base_offset=NO_OFFSET)
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _list_offsets(request: ListOffsetsRequest, version: int, code: ErrorCode) -> ListOffsetsResponse:
    answer_type = ListOffsetsResponse.ListOffsetsTopicResponse
    return ListOffsetsResponse(
        topics=[
            answer_type(
                name=topic.name,
                partitions=[
                    answer_type.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_commit(request: OffsetCommitRequest, version: int, code: ErrorCode) -> OffsetCommitResponse:
    answer_type = OffsetCommitResponse.OffsetCommitResponseTopic
    return OffsetCommitResponse(
        topics=[
            answer_type(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    answer_type.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
    if version < FIRST_FETCH_OF_MANY:
        topic_type = OffsetFetchResponse.OffsetFetchResponseTopic
        return OffsetFetchResponse(
            error_code=code,
            topics=[  # version 1 has no error for the entire group, so each partition gets the error
                topic_type(
                    name=topic.name,
                    partitions=[
                        topic_type.OffsetFetchResponsePartition(
                            partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or ()
            ],
        )
    group_type = OffsetFetchResponse.OffsetFetchResponseGroup
    groups = [group_type(group_id=each.group_id, topics=[], error_code=code) for each in request.groups]
    return OffsetFetchResponse(groups=groups)


def _find_coordinator(request: FindCoordinatorRequest, version: int, code: ErrorCode) -> FindCoordinatorResponse:
    if version < FIRST_FIND_OF_MANY:
        return FindCoordinatorResponse(error_code=code, node_id=NO_NODE, host="", port=NO_NODE)
    answer_type = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(
        coordinators=[
            answer_type(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code)
            for key in request.coordinator_keys
        ]
    )


def _add_partitions(request: AddPartitionsToTxnRequest, version: int, code: ErrorCode) -> AddPartitionsToTxnResponse:
    if version >= FIRST_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _txn_offset_commit(request: TxnOffsetCommitRequest, version: int, code: ErrorCode) -> TxnOffsetCommitResponse:
    answer_type = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    return TxnOffsetCommitResponse(
        topics=[
            answer_type(
                name=topic.name,
                partitions=[
                    answer_type.TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _join_group(request: JoinGroupRequest, version: int, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= FIRST_NULL_PROTOCOL else "",
        leader="",
        member_id=request.member_id,
        members=[],
    )


def _offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, version: int, code: ErrorCode
) -> OffsetForLeaderEpochResponse:
    answer_type = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return OffsetForLeaderEpochResponse(
        topics=[
            answer_type(
                topic=topic.topic,
                partitions=[
                    answer_type.EpochEndOffset(partition=each.partition, error_code=code) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _create_topics(request: CreateTopicsRequest, version: int, code: ErrorCode) -> CreateTopicsResponse:
    answer_type = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(topics=[answer_type(name=each.name, error_code=code) for each in request.topics])


def _delete_topics(request: DeleteTopicsRequest, version: int, code: ErrorCode) -> DeleteTopicsResponse:
    answer_type = DeleteTopicsResponse.DeletableTopicResult
    if version < FIRST_DELETE_BY_ID:
        return DeleteTopicsResponse(responses=[answer_type(name=name, error_code=code) for name in request.topic_names])
    return DeleteTopicsResponse(
        responses=[answer_type(name=each.name, topic_id=each.topic_id, error_code=code) for each in request.topics]
    )


_REFUSALS: Final[Mapping[ApiKey, Callable[[Any, int, ErrorCode], Any]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: lambda request, version, code: HeartbeatResponse(error_code=code),
    ApiKey.LEAVE_GROUP: lambda request, version, code: LeaveGroupResponse(error_code=code),
    ApiKey.SYNC_GROUP: lambda request, version, code: SyncGroupResponse(error_code=code, assignment=b""),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.INIT_PRODUCER_ID: lambda request, version, code: InitProducerIdResponse(error_code=code, producer_epoch=-1),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda request, version, code: AddOffsetsToTxnResponse(error_code=code),
    ApiKey.END_TXN: lambda request, version, code: EndTxnResponse(error_code=code),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
}
REFUSABLE: Final = frozenset(_REFUSALS)
