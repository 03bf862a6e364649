"""Adds to the fake broker the coordinator of a consumer group with one member; the test chooses the errors that the
coordinator returns.
"""

from __future__ import annotations

import asyncio
from typing import Any

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.subscription import encode_assignment
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from oncelog_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PLACES = (TopicPartition("topic", 0), TopicPartition("topic", 1))


class Coordinator:
    """Handles the requests of a classic group with one member. The errors in `errors[RequestType]` are returned first,
    one for each request of that type.
    """

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.errors: dict[type, list[int]] = {}
        self.generation = 0
        self.committed: dict[TopicPartition, int] = {}
        self.assigned = PLACES
        broker.topics["topic"] = 2
        for request in (FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest):
            broker.handlers[request] = getattr(self, request.__name__)
        for request in (LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest):
            broker.handlers[request] = getattr(self, request.__name__)

    def error(self, request: Any) -> int:
        left = self.errors.get(type(request))
        return left.pop(0) if left else ErrorCode.NONE

    def FindCoordinatorRequest(self, request: Any) -> Any:
        found = FindCoordinatorResponse.Coordinator(
            key=request.coordinator_keys[0],
            node_id=1,
            host="127.0.0.1",
            port=self.broker.port,
            error_code=self.error(request),
        )
        return FindCoordinatorResponse(coordinators=[found])

    def JoinGroupRequest(self, request: Any) -> Any:
        code = self.error(request)
        if not code and not request.member_id:
            code = ErrorCode.MEMBER_ID_REQUIRED
        if code:
            return JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id="me", members=[])
        self.generation += 1
        told = JoinGroupResponse.JoinGroupResponseMember(member_id="me", metadata=request.protocols[0].metadata)
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_name=request.protocols[0].name,
            leader="me",
            member_id="me",
            members=[told],
        )

    def SyncGroupRequest(self, request: Any) -> Any:
        return SyncGroupResponse(error_code=self.error(request), assignment=encode_assignment(self.assigned))

    def HeartbeatRequest(self, request: Any) -> Any:
        return HeartbeatResponse(error_code=self.error(request))

    def LeaveGroupRequest(self, request: Any) -> Any:
        return LeaveGroupResponse(error_code=0)

    def OffsetCommitRequest(self, request: Any) -> Any:
        code = self.error(request)
        answer = OffsetCommitResponse.OffsetCommitResponseTopic
        topics = []
        for topic in request.topics:
            places = []
            for place in topic.partitions:
                if not code:
                    self.committed[TopicPartition(topic.name, place.partition_index)] = place.committed_offset
                places.append(
                    answer.OffsetCommitResponsePartition(partition_index=place.partition_index, error_code=code)
                )
            topics.append(answer(name=topic.name, partitions=places))
        return OffsetCommitResponse(topics=topics)

    def OffsetFetchRequest(self, request: Any) -> Any:
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        topic = group.OffsetFetchResponseTopics
        topics = [
            topic(
                name=wanted.name,
                partitions=[
                    topic.OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=self.committed.get(TopicPartition(wanted.name, index), -1),
                        metadata="",
                        error_code=0,
                    )
                    for index in wanted.partition_indexes
                ],
            )
            for wanted in request.groups[0].topics
        ]
        return OffsetFetchResponse(groups=[group(group_id="g", topics=topics, error_code=self.error(request))])


class ConsumerCoordinator(Coordinator):
    """Handles the requests of a group of the consumer protocol (KIP-848) with one member.

    The member's target assignment is `assigned`; its epoch rises only after the member has revoked all other
    partitions. `heartbeats` are the received heartbeats, `reads` the partitions that the member last reported as owned.
    """

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self.epoch = 0
        self.heartbeats: list[ConsumerGroupHeartbeatRequest] = []
        self.has: frozenset[TopicPartition] = frozenset()
        self.has_left = asyncio.Event()
        broker.handlers[ConsumerGroupHeartbeatRequest] = self.ConsumerGroupHeartbeatRequest
        broker.handlers[MetadataRequest] = self.MetadataRequest

    def MetadataRequest(self, request: Any) -> Any:
        response = self.broker.on_metadata(request)
        for topic in response.topics:
            topic.topic_id = topic.name.encode().ljust(16, b"\0")
        return response

    def ConsumerGroupHeartbeatRequest(self, request: Any) -> Any:
        self.heartbeats.append(request)
        code = self.error(request)
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message="no")
        if request.member_epoch < 0:
            self.has_left.set()
            return ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=request.member_epoch)
        wanted, before = frozenset(self.assigned), self.has
        owned = None if request.topic_partitions is None else places_in(request.topic_partitions)
        joins = request.member_epoch == 0
        if joins:
            owned = self.has = before = frozenset()
        gone = self.has - wanted
        if gone and (owned is None or gone & owned):
            shown = self.has & wanted
        else:
            self.has = shown = wanted
            self.epoch += before != wanted or joins
        self.generation = self.epoch
        answer = ConsumerGroupHeartbeatResponse.Assignment
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=5,
            assignment=answer(
                topic_partitions=[
                    answer.TopicPartitions(topic_id=topic.encode().ljust(16, b"\0"), partitions=[index])
                    for topic, index in sorted(shown)
                ]
            ),
        )


def places_in(topics: Any) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_id.rstrip(b"\0").decode(), index) for topic in topics for index in topic.partitions
    )
