"""Tests leaders that are killed while producers write: no acknowledged record is lost or duplicated."""

from __future__ import annotations

import pytest
from final_state import settle_and_check
from raw_client import produce_request
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster
from tests.support.storage import make_batch

from oncelog_protocol.api import ApiKey
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)


@LIBRARIES
def test_c1_the_leader_is_killed_under_waiting_batches(
    cluster: ReplicatedCluster, history: History, topic: str, library: str
) -> None:
    """The producer sends the batches that were waiting for the followers again; each batch is in the log once, at its
    acknowledged offset.
    """
    cluster.create_topic(topic, (1, 2, 3))
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, Place(topic)) as writer:
            writer.until_more(20)
            cluster.kill(cluster.part(topic).leader)
            writer.until_more(20)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)


@LIBRARIES
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("changes", [30])
def test_c16_leaders_change_again_and_again(
    cluster: ReplicatedCluster, history: History, topic: str, library: str, changes: int
) -> None:
    """Some records are written with acks=1, so that each new leader meets replicas with records of their own. All
    records are in the log, except records that were acknowledged with acks=1 and died with their leader, and the
    replicas are equal. Producers with acks=all lose nothing.
    """
    cluster.create_topic(topic, (1, 2, 3))
    place = Place(topic)
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, place) as writer:
            for number in range(changes):
                writer.until_more(5)
                leader = cluster.until_led(topic).leader
                write_alone(cluster, history, place, leader, b"alone/%d" % number)
                cluster.kill(leader)
                if number % 2:  # restart the broker immediately, before another broker has noticed its death
                    cluster.start(leader)
                else:
                    cluster.until_led(topic, but_by=leader)
                    cluster.start(leader)
                writer.until_more(5)
                cluster.until_whole(topic)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)


def write_alone(cluster: ReplicatedCluster, history: History, place: Place, leader: int, value: bytes) -> None:
    """Write a record with acks=1, which is lost if the leader dies; its outcome is unknown, whatever the
    response is.
    """
    history.send(value.decode(), place, value)
    try:
        with cluster.client(leader) as client:
            client.call(produce_request(*place, make_batch(value), acks=1), ApiKey.PRODUCE, 9)
    except OSError:
        pass
