"""Tests a network that delays traffic between brokers, while ZooKeeper and the clients reach all of them."""

from __future__ import annotations

import pytest
from final_state import settle_and_check
from peer_network import PeerNetwork
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster

from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)
REPLICAS = (1, 2, 3)


def lead_by_1(cluster: ReplicatedCluster, topic: str) -> Place:
    cluster.create_topic(topic, REPLICAS)
    assert cluster.part(topic).leader == 1, "the machine stopped the first leader"
    return Place(topic)


@LIBRARIES
def test_c14_a_follower_is_cut_off_from_the_leader(
    partitioned: ReplicatedCluster, network: PeerNetwork, history: History, topic: str, library: str
) -> None:
    """The follower leaves the ISR, the other replicas continue, and the follower returns to the ISR only with all
    records.
    """
    cluster, place = partitioned, lead_by_1(partitioned, topic)
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, place) as writer:
            writer.until_more(10)
            with network.held((2, 1)):
                cluster.until_isr(topic, {1, 3})
                writer.until_more(20)
                assert cluster.part(topic).isr == (1, 3)
            cluster.until_isr(topic, {1, 2, 3})
            writer.until_more(10)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)
