"""Members of streams groups (KIP-1071) that send heartbeats and commit offsets over a connection of `raw_client`."""

from __future__ import annotations

from typing import Any

from foreign_clients import eventually
from raw_client import RawClient
from tests.support.streams_groups import Topology, internal, subtopology, tasks_in, topology

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

QUICK = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "100",
}
"""Broker settings with which a member gets its tasks immediately."""


def word_count(source: str, application: str) -> Topology:
    repartition = internal(f"{application}-repartition", cleanup_policy="delete")
    changelog = internal(f"{application}-changelog", cleanup_policy="compact")
    return topology(
        subtopology("0", source, sinks=[repartition.name]),
        subtopology("1", repartition=[repartition], changelogs=[changelog]),
    )


class StreamsMember:
    """One member, which sends heartbeats as Kafka Streams does."""

    def __init__(self, client: RawClient, group: str, name: str, asked: Topology) -> None:
        self.client = client
        self.group = group
        self.name = name
        self.topology = asked
        self.epoch = 0
        self.active: set[tuple[str, int]] = set()

    def beat(self, **said: Any) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=self.epoch,
            endpoint_information_epoch=-1,
            **said,
        )
        answer = self.client.call(request, ApiKey.STREAMS_GROUP_HEARTBEAT, 0)
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.active = set(tasks_in(answer.active_tasks))
        return answer

    def join(self) -> Any:
        return self.beat(
            rebalance_timeout_ms=30_000,
            topology=self.topology,
            process_id=self.name,
            client_tags=[],
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )

    def until_it_has(self, count: int) -> None:
        """Send heartbeats until the member has that many active tasks, because the broker first creates internal
        topics.
        """

        def has_them() -> bool:
            self.beat()
            return len(self.active) == count

        eventually(has_them, f"{self.name} has {count} tasks")


def commit(member: StreamsMember, topic: str, offset: int) -> None:
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic_type.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.name,
        topics=[topic_type(name=topic, partitions=[partition])],
    )
    answer = member.client.call(request, ApiKey.OFFSET_COMMIT, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
