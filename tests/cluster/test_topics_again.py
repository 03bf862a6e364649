"""Tests topics that are deleted and created again under the same name while a broker is down."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from final_state import settle_and_check
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)


@pytest.fixture(scope="module")
def patient_cluster(
    chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicatedCluster]:
    """Yield a cluster with long sessions, so that the absence of a dead broker that returns soon is not noticed."""
    settings = {"zookeeper.session.timeout.ms": "20000"}
    with ReplicatedCluster(tmp_path_factory.mktemp("patient"), chroots(), settings) as cluster:
        yield cluster
    cluster.check_logs()


@LIBRARIES
def test_c19_a_topic_is_re_created_while_a_broker_is_down(
    patient_cluster: ReplicatedCluster, history: History, topic: str, library: str
) -> None:
    """The broker still has the log of the old topic, which is longer than that of the new topic. The old log is
    renamed, and no broker serves it or fetches from it; the new topic has only its own records.
    """
    cluster, place = patient_cluster, Place(topic)
    cluster.mend()
    cluster.create_topic(topic, (1, 2, 3))
    with PRODUCERS[library](cluster.addresses, History(), "of-the-past") as producer, Writer(producer, place) as writer:
        writer.until_more(40)
    cluster.until_whole(topic)
    controller = cluster.controller()
    away = next(node_id for node_id in (3, 2) if node_id != controller)
    cluster.kill(away)
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
    (deleted,) = cluster.ask(request, ApiKey.DELETE_TOPICS, 4, controller).responses
    assert deleted.error_code == 0, deleted
    first = next(node_id for node_id in (1, 2, 3) if node_id != away)
    others = [node_id for node_id in (1, 2, 3) if node_id not in (away, first)]
    cluster.create_topic(topic, (first, *others, away), waits=False)
    cluster.start(away)
    cluster.until_whole(topic)
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, place) as writer:
            writer.until_more(20)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)
