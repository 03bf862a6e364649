"""`oncelog ping --in-sync` reads from a Metadata response which replicas lag."""

from __future__ import annotations

import pytest

from oncelog.cli.ping import replicas_behind
from oncelog_protocol.messages.metadata import MetadataResponse

Topic = MetadataResponse.MetadataResponseTopic
Partition = Topic.MetadataResponsePartition


def answer(*partitions: tuple[list[int], list[int]]) -> MetadataResponse:
    """Return a Metadata response for a topic with these (replicas, ISR) of each partition."""
    described = [
        Partition(error_code=0, partition_index=index, leader_id=isr[0], replica_nodes=replicas, isr_nodes=isr)
        for index, (replicas, isr) in enumerate(partitions)
    ]
    return MetadataResponse(brokers=[], topics=[Topic(error_code=0, name="topic", partitions=described)])


@pytest.mark.parametrize(
    ("node_id", "behind"),
    [
        (None, ["topic-0 on 3", "topic-1 on 1", "topic-1 on 2"]),
        (1, ["topic-1 on 1"]),
        (3, ["topic-0 on 3"]),
        (4, []),
    ],
)
def test_a_replica_is_behind_that_is_not_in_sync(node_id: int | None, behind: list[str]) -> None:
    assert replicas_behind(answer(([1, 2, 3], [1, 2]), ([3, 1, 2], [3])), node_id) == behind


def test_no_replica_is_behind_when_all_are_in_sync() -> None:
    assert replicas_behind(answer(([1, 2, 3], [3, 1, 2])), None) == []
