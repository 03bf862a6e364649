"""Tests the metrics of brokers in a cluster in which one broker dies and returns; the others remain ready meanwhile."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

from broker_process import BrokerProcess
from prometheus_client.parser import text_string_to_metric_families
from raw_client import RawClient, produce_request
from replicated_cluster import BROKERS, ReplicatedCluster
from tests.support.prometheus import OF_THE_MACHINE, firing
from tests.support.storage import make_batch

from oncelog_protocol.api import ApiKey

Told = dict[tuple[str, frozenset[tuple[str, str]]], float]
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
LAG = "oncelog_follower_lag_records"
CONTROLLERS = "kafka_controller_kafkacontroller_activecontrollercount"
NOTICED = (
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_server_replicamanager_underminisrpartitioncount",
    UNDER_REPLICATED,
)
"""Metrics that change at the live brokers when one broker is dead."""


def read(broker: BrokerProcess, path: str) -> tuple[int, str]:
    match = re.search(r"http on (\S+?)\)", broker.start_line)
    assert match, broker.start_line
    try:
        with urllib.request.urlopen(f"http://{match[1]}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def told(broker: BrokerProcess) -> Told:
    status, text = read(broker, "/metrics")
    assert status == 200, text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(found: Told, name: str) -> float:
    return found[name, frozenset()]


def test_a_dead_broker_is_seen_in_the_metrics_of_the_others_until_it_is_back(
    chroots: Callable[[], str], tmp_path: Path
) -> None:
    topic = f"told-{uuid.uuid4().hex[:8]}"
    with ReplicatedCluster(tmp_path, chroots(), {"http.listener": "0"}) as cluster:
        cluster.create_topic(topic)
        leader = cluster.until_led(topic).leader
        follower = next(each for each in BROKERS if each != leader)
        cluster.create_topic(f"{topic}-on-one", [follower])
        cluster.create_topic(f"{topic}-on-all", BROKERS, min_insync_replicas="3")
        at = cluster.brokers[leader]
        with RawClient(at.port) as client:
            assert client.call(produce_request(topic, 0, make_batch()), ApiKey.PRODUCE, 9).responses
        found = told(at)
        lags = {dict(labels)["follower"] for name, labels in found if name == LAG}
        assert lags == {str(each) for each in BROKERS if each != leader}
        cluster.until(lambda: controllers(cluster) == 1, "one says that it is the controller")

        cluster.kill(follower)
        cluster.until(lambda: total(told(at), UNDER_REPLICATED) > 0, "the leader tells of it")
        assert read(at, "/health/live")[0] == 200
        cluster.until(lambda: read(at, "/health/ready")[0] == 200, "with one replica less it is ready")
        check_alerts(cluster, tmp_path)

        cluster.start(follower)
        found = cluster.until(lambda: is_whole(told(at)), "all are in sync again")
        assert total(found, "kafka_server_replicamanager_isrexpands_total") >= 1
        cluster.until(lambda: json.loads(read(cluster.brokers[follower], "/health/ready")[1])["reasons"] == [], "ready")
        cluster.check_logs()


def check_alerts(cluster: ReplicatedCluster, directory: Path) -> None:
    """Check the alerts while one broker is dead: it had the only replica of one partition, and one of three replicas of
    a partition that requires three in-sync replicas.
    """
    texts = cluster.until(lambda: texts_that_tell_all(cluster), "all is told")
    expected = ["OncelogBrokerDown", "OncelogUnderReplicated", "OncelogUnderMinIsr", "OncelogPartitionsOffline"]
    down = {f"broker-{node_id}": [] for node_id in BROKERS if node_id not in texts}
    scrapes = directory / "scrapes"
    scrapes.mkdir()
    brokers = {f"broker-{node_id}": [text] for node_id, text in texts.items()} | down
    assert firing(brokers, expected, scrapes, apart_from=OF_THE_MACHINE) == ""
    # Check the metrics that would be reported if the controller did not respond either.
    without = {name: texts if not has_controller(texts) else [] for name, texts in brokers.items()}
    expected = ["OncelogBrokerDown", "OncelogNoController"]
    also = [*OF_THE_MACHINE, "OncelogUnderReplicated", "OncelogUnderMinIsr"]
    assert firing(without, expected, scrapes, apart_from=also) == ""


def has_controller(texts: list[str]) -> bool:
    return any(f"{CONTROLLERS} 1.0" in text for text in texts)


def texts_that_tell_all(cluster: ReplicatedCluster) -> dict[int, str] | None:
    """Return the metrics of the live brokers when one of them is the controller and has noticed the death; None before
    that time.
    """
    texts = {node_id: read(cluster.brokers[node_id], "/metrics")[1] for node_id in cluster.up}
    if sum(has_controller([text]) for text in texts.values()) != 1:
        return None
    return texts if all(any(counts(text, name) for text in texts.values()) for name in NOTICED) else None


def counts(text: str, name: str) -> bool:
    return re.search(rf"^{name} [1-9]", text, re.MULTILINE) is not None


def is_whole(found: Told) -> Told | None:
    return found if total(found, UNDER_REPLICATED) == 0 else None


def controllers(cluster: ReplicatedCluster) -> int:
    return sum(int(total(told(broker), CONTROLLERS)) for broker in cluster.brokers.values())
