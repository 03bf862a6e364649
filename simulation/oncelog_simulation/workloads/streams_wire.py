"""Sends requests of members of a streams group (KIP-1071), because oncelog's client has no such members.

The application of the group has two subtopologies: the first reads INPUT and writes to the repartition topic SHUFFLE;
the second reads SHUFFLE and has a state store with the changelog CHANGELOG. The broker creates the last two topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicInfo,
)
from oncelog_simulation.workloads.wire import Wire
from oncelog_testing.history.events import Place

Task = tuple[str, int]
"""Id of the subtopology, and partition number."""
Tasks = frozenset[Task]

STREAMS_GROUP: Final = "streamers"
INPUT, SHUFFLE, CHANGELOG = "stream-input", "stream-shuffle", "stream-store-changelog"
SOURCES: Final[Mapping[str, str]] = {"0": INPUT, "1": SHUFFLE}
"""The source topic of each subtopology."""
PARTITIONS: Final = 3
ALL_TASKS: Final[Tasks] = frozenset((name, number) for name in SOURCES for number in range(PARTITIONS))
HEARTBEAT, COMMIT = 0, 9
JOINING, LEAVING = 0, -1
REBALANCE_MS: Final = 6_000
"""Milliseconds that a member has for giving up tasks before the coordinator fences it."""

Topology = StreamsGroupHeartbeatRequest.Topology
Subtopology = Topology.Subtopology


class StreamsWire:
    """Sends the requests of one member to the coordinator of STREAMS_GROUP. A request is repeated until a coordinator
    accepts or refuses it; the methods raise KafkaError REQUEST_TIMED_OUT if none does so in time.
    """

    def __init__(self, wire: Wire, member_id: str, process_id: str) -> None:
        self._wire = wire
        self.member_id = member_id
        self._process_id = process_id

    async def join(self) -> StreamsGroupHeartbeatResponse:
        """Send the first heartbeat, which has all fields and claims no tasks."""
        request = self._request(JOINING, active_tasks=[], standby_tasks=[], warmup_tasks=[])
        request.rebalance_timeout_ms, request.process_id = REBALANCE_MS, self._process_id
        request.topology = _topology()
        return await self._heartbeat(request)

    async def beat(self, epoch: int, active: Tasks, standby: Tasks) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat that claims these tasks; all other tasks of the member are thereby given up."""
        request = self._request(epoch, active_tasks=_ids(active), standby_tasks=_ids(standby), warmup_tasks=[])
        return await self._heartbeat(request)

    async def leave(self) -> ErrorCode:
        """Leave the group."""
        return ErrorCode.of((await self._heartbeat(self._request(LEAVING))).error_code)

    async def commit(self, epoch: int, place: Place, offset: int) -> ErrorCode:
        """Commit the offset of one source partition."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        committed = topic.OffsetCommitRequestPartition(
            partition_index=place.index, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=STREAMS_GROUP,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            topics=[topic(name=place.topic, partitions=[committed])],
        )
        send = partial(self._wire.to_coordinator, STREAMS_GROUP, request, COMMIT, CoordinatorType.GROUP)
        answer = await self._wire.until_decided(
            send, lambda answer: ErrorCode.of(answer.topics[0].partitions[0].error_code)
        )
        return ErrorCode.of(answer.topics[0].partitions[0].error_code)

    def _request(
        self,
        epoch: int,
        *,
        active_tasks: list[TaskIds] | None = None,
        standby_tasks: list[TaskIds] | None = None,
        warmup_tasks: list[TaskIds] | None = None,
    ) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=STREAMS_GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            endpoint_information_epoch=0,
            active_tasks=active_tasks,
            standby_tasks=standby_tasks,
            warmup_tasks=warmup_tasks,
        )

    async def _heartbeat(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        send = partial(self._wire.to_coordinator, STREAMS_GROUP, request, HEARTBEAT, CoordinatorType.GROUP)
        return await self._wire.until_decided(send, lambda answer: ErrorCode.of(answer.error_code))


def place_of(task: Task) -> Place:
    """Return the source partition that the task reads."""
    name, number = task
    return Place(SOURCES[name], number)


def tasks_in(listed: Iterable[TaskIds]) -> Tasks:
    """Return the tasks that a message lists."""
    return frozenset((ids.subtopology_id, number) for ids in listed for number in ids.partitions)


def _ids(tasks: Tasks) -> list[TaskIds]:
    numbers: dict[str, list[int]] = {}
    for name, number in sorted(tasks):
        numbers.setdefault(name, []).append(number)
    return [TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in numbers.items()]


def _topology() -> Topology:
    return Topology(
        epoch=0,
        subtopologies=[
            _subtopology("0", sources=[INPUT], sinks=[SHUFFLE]),
            _subtopology("1", repartition=[_internal(SHUFFLE, "delete")], changelogs=[_internal(CHANGELOG, "compact")]),
        ],
    )


def _subtopology(
    name: str,
    sources: Iterable[str] = (),
    sinks: Iterable[str] = (),
    repartition: Iterable[TopicInfo] = (),
    changelogs: Iterable[TopicInfo] = (),
) -> Subtopology:
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=list(changelogs),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(repartition),
        copartition_groups=[],
    )


def _internal(name: str, cleanup_policy: str) -> TopicInfo:
    """Return an internal topic for which the broker chooses the numbers of partitions and replicas."""
    configs = [KeyValue(key="cleanup.policy", value=cleanup_policy)]
    return TopicInfo(name=name, partitions=0, replication_factor=0, topic_configs=configs)
