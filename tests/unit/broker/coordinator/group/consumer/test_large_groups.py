"""A group of a thousand members and ten thousand partitions does not block the event loop while its assignment is
computed (S87).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from tests.support.consumer_groups import topic
from tests.support.loop_turns import Turns, shortest

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from oncelog_broker.coordinator.group.consumer.heartbeat import Heartbeat
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_broker.coordinator.runtime import CoordinatorRuntime
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.garbage import keep_collections_short
from oncelog_broker.runtime.slices import Slices
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

MEMBERS, TOPICS, PARTITIONS = 1000, 10, 1000
MAX_TURN_SECONDS = 0.01
MAX_HEARTBEAT_SECONDS = 100e-6
"""Seconds of CPU time that one heartbeat may take even on a busy machine; `bench/consumer_groups.py` shows the typical
time.
"""
NAMES = [f"t{number}" for number in range(TOPICS)]


@pytest.fixture(autouse=True)
def as_in_a_broker() -> Iterator[None]:
    undo = keep_collections_short()
    yield
    undo()


class LargeGroup:
    """The runtime, and the members with their last responses."""

    def __init__(self, internal_topic: Any) -> None:
        view = TopicView(ClusterImage("").with_topics([topic(name, PARTITIONS) for name in NAMES]))
        ids = count()
        self.clock = internal_topic.clock
        self.runtime = CoordinatorRuntime(
            "__consumer_offsets",
            lambda index: GroupMachine(
                GroupConfig(), internal_topic.clock.now_ms, lambda: str(next(ids)), topics=lambda: view
            ),
            internal_topic,
            replace(internal_topic.host, slices=Slices(SystemClock(), internal_topic.tasks)),
        )
        self.runtime.on_image(internal_topic.lead())
        self.epochs: dict[str, int] = {}

    @property
    def group(self) -> ConsumerGroup:
        group = next(self.runtime.machines()).groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group

    def beat(self, member: str, **said: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member, member_epoch=self.epochs.get(member, 0), **said
        )
        client = Client("c", "/127.0.0.1")
        response = self.runtime.write(
            "g", lambda machine, waiter: machine.consumer_heartbeat(Heartbeat(request, client, waiter)), failed
        )
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        assert response.error_code == ErrorCode.NONE, response.error_message
        self.epochs[member] = response.member_epoch
        return response

    def join(self, member: str) -> None:
        self.beat(member, rebalance_timeout_ms=1000, subscribed_topic_names=NAMES, topic_partitions=[])


def failed(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


async def test_s87_a_large_assignment_lets_other_work_run(internal_topics: Any) -> None:
    longest = await shortest(lambda: longest_turn_of_two_assignments(next(internal_topics)), MAX_TURN_SECONDS)
    assert longest < MAX_TURN_SECONDS


async def longest_turn_of_two_assignments(internal_topic: Any) -> float:
    """Return the CPU seconds of the longest turn while a new group, and later one with a new member, gets its targets.
    Also assert what the targets are, and that the heartbeat of a stable member is quick.
    """
    large = LargeGroup(internal_topic)
    members = [f"member-{number:04}" for number in range(MEMBERS)]
    for member in members:
        large.join(member)
    longest = 0.0
    for assigned in (MEMBERS, MEMBERS + 1):
        internal_topic.clock.advance_ms(1000)
        large.beat(members[0])
        turns = Turns()
        await turns.until(lambda: large.group.assignment_epoch == large.group.epoch)
        longest = max(longest, turns.longest)
        assert len(large.group.targets) == assigned
        if assigned == MEMBERS:
            members.append("late")
            large.join("late")
    for _ in range(4):
        for member in members:
            large.beat(member, topic_partitions=[])
    assert large.group.state is ConsumerGroupState.STABLE
    assert sum(len(parts) for target in large.group.targets.values() for parts in target.values()) == 10_000
    began = time.thread_time()
    for member in members:
        assert large.beat(member).assignment is None
    assert (time.thread_time() - began) / len(members) < MAX_HEARTBEAT_SECONDS
    return longest
