"""Measures what a large group of the consumer protocol costs the broker (KIP-848): joining, heartbeats, and the delay
of other requests during its assignment.

All members use one connection.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import broker_cost as cost
from raw import RawClient, decoded, prepared

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.effects import Job
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.consumer.heartbeat import Heartbeat
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.runtime.garbage import keep_collections_short
from oncelog_broker.runtime.slices import SLICE_SECONDS
from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

FIND_VERSION, HEARTBEAT_VERSION = 3, 1
GROUP = "large"
WINDOW = 16
TopicPartitions = ConsumerGroupHeartbeatRequest.TopicPartitions


class Costs(NamedTuple):
    join_us: float
    heartbeat_us: float
    assignment_seconds: float


class Member:
    def __init__(self, number: int) -> None:
        self.member_id = f"member-{number}"
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    def request(self, **said: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, **said)

    def believe(self, frame: bytes) -> int:
        """Store the values of a response, and return the member's epoch."""
        answer = decoded(frame, ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION)
        if answer.error_code:
            raise RuntimeError(f"{self.member_id}: error {answer.error_code}: {answer.error_message}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [
                TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in answer.assignment.topic_partitions
            ]
        return self.epoch


def consumer_groups_cost(port: int, pid: int, members: int, topics: int, partitions: int, heartbeats: int) -> Costs:
    """Let `members` members join a group that reads `topics` topics of `partitions` partitions each, wait for the
    assignment, and send heartbeats of each member.
    """
    client = RawClient(port)
    client.call(FindCoordinatorRequest(key=GROUP), ApiKey.FIND_COORDINATOR, FIND_VERSION)
    names = [f"large-{number}" for number in range(topics)]
    for name in names:
        cost.create_topic(client, name, partitions)
    all_members = [Member(number) for number in range(members)]
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names, "topic_partitions": []}
    joined = cost.measured(pid, lambda: (_send(client, all_members, joins), 0))
    began = time.perf_counter()
    while (
        len({_beat(client, member) for member in all_members}) > 1
        or sum(len(topic.partitions) for member in all_members for topic in member.owned) < topics * partitions
    ):
        if time.perf_counter() - began > 60:
            raise RuntimeError("the group is not assigned within a minute")
    took = time.perf_counter() - began
    beats = [prepared(m.request(), ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION) for m in all_members]

    def beat_all() -> tuple[int, int]:
        sent = [beats[number % members] for number in range(heartbeats)]
        return sum(1 for _ in client.pipeline_all(sent, WINDOW)), 0

    beat_all()  # meanwhile the broker completes the creation of the topics
    beaten = cost.measured(pid, beat_all)
    client.close()
    return Costs(joined.cpu_us_per_request, beaten.cpu_us_per_request, took)


def _send(client: RawClient, members: list[Member], said: dict[str, Any]) -> int:
    requests = [prepared(m.request(**said), ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION) for m in members]
    for member, frame in zip(members, client.pipeline_all(requests, WINDOW), strict=True):
        member.believe(frame)
    return len(members)


def _beat(client: RawClient, member: Member) -> int:
    request = prepared(
        member.request(topic_partitions=member.owned), ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION
    )
    client.socket.sendall(request)
    return member.believe(client.read_frame())


def longest_turn_ms(members: int, topics: int, partitions: int) -> float:
    """Return the longest time in ms for which the assignment of such a group blocks a broker's event loop: in one slice
    of the job, or in the step that logs and replays the job's result. The coordinator's own classes run in this
    process, without a log, and processor time is measured.
    """
    all_topics = [
        Topic(name, name.encode().ljust(16), {n: PartitionState((1,)) for n in range(partitions)})
        for name in (f"large-{number}" for number in range(topics))
    ]
    view = TopicView(ClusterImage("").with_topics(all_topics))
    now = [1_700_000_000_000]
    machine = GroupMachine(GroupConfig(), lambda: now[0], lambda: "id", topics=lambda: view)
    client, jobs = Client("bench", "/127.0.0.1"), list[Job]()
    for number in range(members):
        request = Member(number).request(
            rebalance_timeout_ms=60_000, subscribed_topic_names=[t.name for t in all_topics], topic_partitions=[]
        )
        effects = machine.consumer_heartbeat(Heartbeat(request, client, None))
        for record in effects.records:
            machine.replay(record, 0, -1)
        jobs += effects.jobs
    undo = keep_collections_short()  # set up garbage collection as a broker process does
    longest, result = _slices(jobs[-1].steps())
    began = time.thread_time()
    effects = machine.on_job(GROUP, result)
    batch = build_batch(
        (Record(0, now[0], *machine.encode(record), []) for record in effects.records), compression=Compression.NONE
    )
    for record in effects.records:
        machine.replay(record, 0, -1)
    longest = max(longest, time.thread_time() - began)
    undo()
    assert len(batch) > members
    return longest * 1000


def _slices(steps: Steps[Any]) -> tuple[float, Any]:
    """Run the steps as `Slices` does; return the seconds of the longest slice, and the result."""
    longest, began = 0.0, time.thread_time()
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return max(longest, time.thread_time() - began), finished.value
        took = time.thread_time() - began
        if took >= SLICE_SECONDS:
            longest, began = max(longest, took), time.thread_time()
