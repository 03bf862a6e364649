"""The request of a StreamsGroupHeartbeat with its sender, the checks of the request, and the result (response and
topics to create). Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.effects import Waiter
from oncelog_broker.coordinator.group.streams.configured_topology import WantedTopic
from oncelog_broker.coordinator.group.streams.streams_member import JOINING_EPOCH, LEAVING_EPOCH
from oncelog_broker.coordinator.group.streams.streams_topology import check_topology
from oncelog_broker.coordinator.group.streams_tasks import NO_TARGET, TaskSet, owned_of
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

STATIC_LEAVING_EPOCH: Final = -2
NOT_SAID: Final = -1
"""Value of the rebalance timeout in requests that do not change the timeout."""


class StreamsHeartbeat(NamedTuple):
    """One StreamsGroupHeartbeat request with its sender."""

    request: StreamsGroupHeartbeatRequest
    client: Client
    waiter: Waiter

    @property
    def joins(self) -> bool:
        return self.request.member_epoch == JOINING_EPOCH

    @property
    def leaves(self) -> bool:
        return self.request.member_epoch == LEAVING_EPOCH

    @property
    def owned(self) -> TaskSet | None:
        """The tasks that the member claims to own; no tasks if the member joins. The result is None if the request does
        not list owned tasks.
        """
        request = self.request
        claimed = owned_of(request.active_tasks, request.standby_tasks, request.warmup_tasks)
        return NO_TARGET if claimed is None and self.joins else claimed


class StreamsAnswer(NamedTuple):
    """The response, and the internal topics that this broker must create with the rights of the sender.
    `keep_errors_ms` is the number of milliseconds for which later responses contain the error of a failed topic
    creation.
    """

    response: StreamsGroupHeartbeatResponse
    topics: tuple[WantedTopic, ...] = ()
    keep_errors_ms: int = 0


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Check the parts of a request that are independent of the group. Raises KafkaError INVALID_REQUEST,
    STREAMS_INVALID_TOPOLOGY."""
    for is_given, what in (
        (request.instance_id is not None, "Static membership is not yet supported."),
        (request.task_offsets is not None, "TaskOffsets are not supported yet."),
        (request.task_end_offsets is not None, "TaskEndOffsets are not supported yet."),
        (bool(request.warmup_tasks), "WarmupTasks are not supported yet."),
    ):
        if is_given:
            raise invalid(what)
    for name, text in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            raise invalid(f"{name} can't be empty.")
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.member_epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == NOT_SAID:
            raise invalid("RebalanceTimeoutMs must be provided in first request.")
        if any(each is None or each for each in lists):
            raise invalid("ActiveTasks, StandbyTasks and WarmupTasks must be empty when (re-)joining.")
        if request.topology is None:
            raise invalid("Topology must be non-null when (re-)joining.")
        check_topology(request.topology)
    elif request.topology is not None:
        raise invalid("Topology can only be provided when (re-)joining.")
    elif request.member_epoch == STATIC_LEAVING_EPOCH:
        raise invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVING_EPOCH:
        raise invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    if any(each is None for each in lists) and any(each is not None for each in lists):
        raise invalid("If one task-type is non-null, all must be non-null.")


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
