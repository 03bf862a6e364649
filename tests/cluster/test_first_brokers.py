"""Tests a new cluster in which not all brokers have started yet."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from final_state import settle_and_check
from recording_clients import PRODUCERS, RecordingProducer
from replicated_cluster import ReplicatedCluster

from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

INTERNAL = "__transaction_state"


def test_c26_internal_topics_wait_for_enough_brokers(zookeeper: str, tmp_path: Path, history: History) -> None:
    """Transactional producers start while only one broker of the cluster is running. The internal topic of transactions
    is created only when three brokers are running, with three replicas, because it would otherwise have too few
    replicas for ever.
    """
    cluster = ReplicatedCluster(tmp_path, zookeeper)
    producers: dict[str, RecordingProducer] = {}

    def start(library: str) -> None:
        producers[library] = PRODUCERS[library](cluster.addresses, history, library, library)

    try:
        cluster.start(1)
        threads = [Thread(target=start, args=(library,), daemon=True) for library in PRODUCERS]
        for thread in threads:
            thread.start()
        cluster.until_registered(1)
        cluster.start(2)
        cluster.until_registered(1, 2)
        assert not cluster.parts(INTERNAL)
        assert not producers
        cluster.start(3)
        for thread in threads:
            thread.join(100)
        assert set(producers) == set(PRODUCERS)
        parts = cluster.parts(INTERNAL).values()
        assert parts
        assert all(sorted(part.replicas) == [1, 2, 3] for part in parts)
        cluster.create_topic("topic", (1, 2, 3))
        for producer in producers.values():
            producer.begin()
            producer.send(Place("topic"))
            producer.flush()
            producer.commit()
            producer.close()
        settle_and_check(cluster, history, "topic")
        cluster.check_logs()
    finally:
        cluster.__exit__()
