"""Partitions at the endpoints of members: the work grows with the answer, not with topics times tasks."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Final

from oncelog_broker.coordinator.group.streams.configured_topology import ConfiguredSubtopology, ConfiguredTopology
from oncelog_broker.coordinator.group.streams.endpoints import EndpointPartitions
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember
from oncelog_broker.coordinator.group.streams_tasks import CurrentTasks

TASKS: Final = 10_000
TOPICS: Final = 1_900
MAX_SECONDS: Final = 0.1
"""A tenth of this time is enough, and sorting all tasks for each topic takes several times this time."""


def test_many_small_topics_beside_a_large_one() -> None:
    small = [f"t{number:04}" for number in range(TOPICS)]
    of_group = ConfiguredSubtopology(TASKS, ("large", *small), (), ())
    configured = ConfiguredTopology(0, MappingProxyType({"0": of_group}))
    assigned = CurrentTasks(active={"0": dict.fromkeys(range(TASKS), 1)})
    member = StreamsMember("m", endpoint=("host", 1), assigned=assigned)
    began = time.thread_time()
    (entry,) = EndpointPartitions().of([member], configured, lambda name: TASKS if name == "large" else 1)
    assert time.thread_time() - began < MAX_SECONDS
    large, *others = entry.active_partitions
    assert large.partitions == list(range(TASKS))
    assert [each.topic for each in others] == small and all(each.partitions == [0] for each in others)
