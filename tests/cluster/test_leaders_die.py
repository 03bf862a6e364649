"""Leaders that are killed while producers write: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import pytest
from final_state import settle_and_check
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster
from tests.support.history.events import Place
from tests.support.history.recorder import History

LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)


@LIBRARIES
def test_c1_the_leader_is_killed_under_waiting_batches(
    cluster: ReplicatedCluster, history: History, topic: str, library: str
) -> None:
    """The batches that wait for the followers are sent again: each is there once, and where it was acknowledged."""
    cluster.create_topic(topic, (1, 2, 3))
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, Place(topic)) as writer:
            writer.until_more(20)
            cluster.kill(cluster.part(topic).leader)
            writer.until_more(20)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)
