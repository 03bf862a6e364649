"""Tests a cluster of two releases: some brokers get a setting to behave like the previous release, or the next one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_client import RawClient
from recording_clients import PRODUCERS, RecordingProducer
from replicated_cluster import BROKERS, ReplicatedCluster

from oncelog_broker.metadata.membership.feature_levels import FEATURE
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

RELEASES = """
from pathlib import Path
from oncelog_broker.metadata.membership import feature_levels

command = Path("/proc/self/cmdline").read_bytes().decode().split("\\0")
node_id = next((word.removeprefix("node.id=") for word in command if word.startswith("node.id=")), "")
release = Path(__file__).with_name(f"release-of-{node_id}")
if release.exists():
    feature_levels.LOWEST, feature_levels.HIGHEST = map(int, release.read_text().split())
    if feature_levels.HIGHEST == 0:  # as before there were levels
        feature_levels.LOWEST = feature_levels.HIGHEST = 1
        feature_levels.supported = dict
"""
"""A module that makes a broker announce the release that a file named after the broker contains."""
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "listener.security.protocol.map": "PEER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}
"""With these settings a busy machine does not look like the death of the old broker, whose release would then no longer
count. The test sends requests in the way a broker does.
"""
BEFORE_LEVELS, NEXT, TOO_NEW = "0 0", "1 2", "2 2"


def test_releases_agree_on_common_feature_levels(
    chroots: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    history: History,
    topic: str,
) -> None:
    """The feature level is 1 while the old broker runs, and 2 without it; meanwhile a broker that supports no level
    below 2 cannot join.
    """
    (tmp_path / "sitecustomize.py").write_text(RELEASES)
    for node_id, release in zip(BROKERS, (BEFORE_LEVELS, NEXT, NEXT), strict=True):
        (tmp_path / f"release-of-{node_id}").write_text(release)
    path = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    with ReplicatedCluster(tmp_path, chroots(), SETTINGS) as cluster:
        cluster.create_topic(topic, BROKERS)
        with PRODUCERS["oncelog"](cluster.addresses, history, "anna") as producer:
            write(producer, topic)
        assert producer.acknowledged == producer.sent
        until_level(cluster, 1)
        cluster.kill(3)
        (tmp_path / "release-of-3").write_text(TOO_NEW)
        with pytest.raises(AssertionError, match="the broker ended"):
            cluster.brokers[3].start()
        assert cluster.brokers[3].wait_ended() == 1
        assert f"broker 1 supports {FEATURE} up to level 1" in cluster.brokers[3].log.read_text()
        cluster.kill(1)
        until_level(cluster, 2)
    cluster.check_logs()


def write(producer: RecordingProducer, topic: str) -> None:
    for _ in range(5):
        producer.send(Place(topic))
    producer.flush()


def until_level(cluster: ReplicatedCluster, level: int) -> None:
    """Wait until each live broker announces this finalised feature level."""
    for node_id in cluster.up:
        cluster.until(lambda: level_of(cluster, node_id) == level, f"broker {node_id} is at level {level}")  # noqa: B023


def level_of(cluster: ReplicatedCluster, node_id: int) -> int:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with RawClient(cluster.peer_ports[node_id]) as client:
        features = client.call(request, ApiKey.API_VERSIONS, 4).finalized_features
    return next(feature.max_version_level for feature in features if feature.name == FEATURE)
