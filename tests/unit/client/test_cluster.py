from dataclasses import replace
from typing import Any

import pytest

from oncelog.cluster import NO_NODE, Cluster, error_of
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.metadata import MetadataResponse

Topic = MetadataResponse.MetadataResponseTopic
ID_A, ID_B = b"a" * 16, b"b" * 16


def response(*topics: Any, nodes: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=node, host=f"h{node}", port=9) for node in nodes]
    return MetadataResponse(brokers=brokers, topics=list(topics), controller_id=1)


def topic(name: str, leader: int, epoch: int, *, topic_id: bytes = ID_A, error_code: int = 0) -> Any:
    partition = Topic.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1]
    )
    return Topic(name=name, error_code=error_code, topic_id=topic_id, partitions=[] if error_code else [partition])


def test_a_newer_leader_epoch_wins_and_an_older_one_does_not() -> None:
    cluster = Cluster().updated(response(topic("t", 1, 5)))
    assert cluster.leader("t", 0) == 1
    assert cluster.updated(response(topic("t", 2, 4))).leader("t", 0) == 1
    assert cluster.updated(response(topic("t", 2, 6))).leader("t", 0) == 2
    assert cluster.leader("t", 0) == 1  # a snapshot of the cluster does not change


def test_the_same_epoch_may_lose_its_leader() -> None:
    cluster = Cluster().updated(response(topic("t", 1, 5))).updated(response(topic("t", NO_NODE, 5)))
    assert cluster.leader("t", 0) == NO_NODE


def test_a_newer_epoch_without_a_leader_does_not_hold_us_for_ever() -> None:
    cluster = Cluster().updated(response(topic("t", 77, 2**31 - 1)))
    assert cluster.leader("t", 0) == NO_NODE
    assert cluster.updated(response(topic("t", 1, 5))).leader("t", 0) == 1


def test_a_re_created_topic_starts_over_with_its_epochs() -> None:
    cluster = Cluster().updated(response(topic("t", 1, 5)))
    assert cluster.updated(response(topic("t", 2, 0, topic_id=ID_B))).leader("t", 0) == 2


def test_a_leader_whose_broker_is_gone_is_none() -> None:
    assert Cluster().updated(response(topic("t", 2, 5), nodes=(1,))).leader("t", 0) == NO_NODE


def test_topics_not_named_stay_unless_all_are_named() -> None:
    cluster = Cluster().updated(response(topic("t", 1, 5)))
    assert "t" in cluster.updated(response(topic("u", 1, 0))).topics
    assert list(cluster.updated(response(topic("u", 1, 0)), is_complete=True).topics) == ["u"]


def test_a_deleted_topic_is_removed_and_one_with_errors_kept() -> None:
    cluster = Cluster().updated(response(topic("t", 1, 5)))
    gone = topic("t", 1, 5, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert cluster.updated(response(gone)).topics == {}
    unavailable = topic("t", 1, 5, error_code=ErrorCode.LEADER_NOT_AVAILABLE)
    assert cluster.updated(response(unavailable)).leader("t", 0) == 1


def test_a_newer_leader_hint_is_followed() -> None:
    cluster = Cluster().updated(response(topic("t", 1, 5)))
    assert cluster.with_leader("t", 0, 2, 6).leader("t", 0) == 2
    assert cluster.with_leader("t", 0, 2, 5) is cluster
    assert cluster.with_leader("t", 0, 9, 6) is cluster
    assert cluster.with_leader("u", 0, 2, 6) is cluster


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ([1, 3], "no broker holds its partitions 0, 2,"),
        ([9], "no broker holds its partitions 0, 1, 2, 3, 4, ..., so"),
        ([0, 0], "names its partitions wrongly"),
        ([-1, 0], "names its partitions wrongly"),
    ],
)
def test_a_topic_with_a_hole_says_what_is_missing_and_what_to_do(numbers: list[int], says: str) -> None:
    """The error must not say that an election is in progress."""
    answer = topic("t", 1, 5)
    (one,) = answer.partitions
    answer.partitions = [replace(one, partition_index=number) for number in numbers]
    known = Cluster().updated(response(answer)).topics["t"]
    assert known.partitions == {}
    assert known.error_code == error_of(answer) == ErrorCode.LEADER_NOT_AVAILABLE
    assert known.error_message is not None
    assert says in known.error_message
