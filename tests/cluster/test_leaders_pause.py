"""Tests processes that are paused and then continue as former leaders and controllers."""

from __future__ import annotations

import time

import pytest
from final_state import settle_and_check
from raw_client import produce_request
from recording_clients import PRODUCERS, Writer
from replicated_cluster import SESSION_MS, ReplicatedCluster
from tests.support.storage import make_batch

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)
FRACTIONS = (0.5, 0.8, 1.0, 1.5, 4.0)
"""Lengths of the pauses, as fractions of the session timeout. The effect of shorter pauses depends on the machine;
every possible outcome must be correct.
"""


@LIBRARIES
@pytest.mark.parametrize("pauses", [2, pytest.param(250, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
def test_c6_a_former_leader_serves_no_request_as_leader(
    cluster: ReplicatedCluster, history: History, topic: str, library: str, pauses: int
) -> None:
    """A leader is paused until another broker leads. When the old leader continues, it finds a produce request with
    acks=1 in its socket, and must refuse it: its lease (the time for which its ZooKeeper session certainly lasts) has
    ended, whether or not it knows the new leader. Meanwhile the producers with acks=all lose no record.
    """
    cluster.create_topic(topic, (1, 2, 3))
    place = Place(topic)
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, place) as writer:
            for number in range(pauses):
                fraction = FRACTIONS[number % len(FRACTIONS)]
                writer.until_more(5)
                leader = cluster.until_led(topic).leader
                with cluster.client(leader, 60) as client:
                    with cluster.paused(leader):
                        time.sleep(fraction * SESSION_MS / 1000)
                    writer.until_more(5)
                    with cluster.paused(leader):
                        if cluster.part(topic).leader == leader:
                            cluster.until_led(topic, but_by=leader)
                            is_past = True
                        else:
                            is_past = leader not in cluster.part(topic).isr
                        value = b"late/%d" % number
                        late = history.send(f"late-{number}", place, value)
                        client.send(produce_request(*place, make_batch(value), acks=1), ApiKey.PRODUCE, 9)
                    answer = client.receive().responses[0].partition_responses[0]
                if is_past:
                    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                if answer.error_code == 0:
                    history.acknowledged(late, answer.base_offset)
                elif answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    history.failed(late)
                writer.until_more(5)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)


def test_c12_a_former_controller_changes_nothing(cluster: ReplicatedCluster, topic: str) -> None:
    """The controller is paused, and another broker takes over. When the former controller continues, it finds a request
    to create a topic in its socket.
    """
    cluster.create_topic(f"{topic}-before", (1, 2, 3))
    old = cluster.controller()
    wanted = CreateTopicsRequest.CreatableTopic(
        name=f"{topic}-late", num_partitions=1, replication_factor=3, assignments=[], configs=[]
    )
    with cluster.client(old, 60) as client:
        with cluster.paused(old):
            new = cluster.until(
                lambda: (found := cluster.metadata().controller_id) not in (old, -1) and found, "another controls"
            )
            cluster.until_led(f"{topic}-before", but_by=old)
            before = cluster.part(f"{topic}-before")
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=5000)
            client.send(request, ApiKey.CREATE_TOPICS, 5)
        (answer,) = client.receive().topics
    # If the broker's connection to ZooKeeper is not restored yet, the broker cannot know which broker is the
    # controller.
    assert answer.error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT), answer
    cluster.until_registered(1, 2, 3)
    cluster.until_whole(f"{topic}-before")
    for node_id in (1, 2, 3):
        cluster.until(
            lambda: cluster.metadata(node_id=node_id).controller_id == new,  # noqa: B023
            "all know the new controller",
        )
    after = cluster.part(f"{topic}-before")
    assert (after.leader, after.epoch) == (before.leader, before.epoch), "its coming back changed a leader"
    assert cluster.metadata(f"{topic}-late").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
