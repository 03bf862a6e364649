"""A cluster of six brokers and 500 partitions is measured: what a killed controller and a lost rack cost does not grow
faster than docs/guides/sizing.md says.
"""

import json
import os
import subprocess
import sys

import pytest

BROKERS, PARTITIONS, INTERNAL = 6, 500, 100
"""Two brokers in each of the three racks, so that each broker has as many replicas as any other."""
GROUPS, PRODUCERS = 20, 50
TOPICS = 5
ALL = PARTITIONS + INTERNAL
EPISODES = {
    "start",
    "topics",
    "groups",
    "producers",
    "idle",
    "controller killed",
    "that broker back",
    "rack lost",
    "groups after that",
    "rack back",
    "rolling restart",
    "store",
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The figures of the episodes, and the numbers of requests between brokers."""
    kept = tmp_path_factory.mktemp("scale") / "scale.json"
    numbers = ("--brokers", BROKERS, "--partitions", PARTITIONS, "--groups", GROUPS, "--producers", PRODUCERS)
    subprocess.run(
        [sys.executable, "-m", "oncelog_simulation", "scale", *map(str, numbers), "--keep", str(kept)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=True,
        timeout=300,
    )
    (found,) = json.loads(kept.read_text())
    assert found["episodes"].keys() == EPISODES
    return found


@pytest.mark.timeout(400)
def test_each_broker_reads_a_new_topic_once(measured):
    """With ten partitions more, each broker reads ten states more: neither fewer nor several times as many."""
    made = measured["episodes"]["topics"]
    assert BROKERS * PARTITIONS <= made["store: nodes read"] <= 2.5 * BROKERS * PARTITIONS
    assert made["store: operations written"] <= 2.2 * PARTITIONS
    assert made["store: watch notifications"] <= 2.2 * BROKERS * PARTITIONS


@pytest.mark.timeout(400)
def test_the_next_controller_writes_what_the_lost_brokers_had_and_no_more(measured):
    killed, lost = (measured["episodes"][name] for name in ("controller killed", "rack lost"))
    replicas = 3 * ALL / BROKERS
    assert replicas * 0.8 <= killed["store: operations written"] <= replicas * 1.3 + BROKERS
    assert ALL <= lost["store: operations written"] <= ALL * 1.3 + BROKERS
    assert lost["store: largest write, bytes"] < 100_000, "a write of at most 250 partitions"


@pytest.mark.timeout(400)
def test_leaders_are_elected_within_a_second_after_the_sessions_have_ended(measured):
    for name in ("controller killed", "rack lost"):
        assert 0 <= measured["episodes"][name]["seconds until a controller"] < 1
        assert measured["episodes"][name]["seconds until served"] < 2
    assert measured["episodes"]["rack back"]["seconds until in sync"] < 10


@pytest.mark.timeout(400)
def test_idle_followers_fetch_twice_a_second_from_each_leader(measured):
    requests = measured["requests"]["idle"]
    assert set(requests) == {"Fetch"}
    assert requests["Fetch"] <= 2.1 * 10 * BROKERS * (BROKERS - 1)


@pytest.mark.timeout(400)
def test_all_assignments_of_a_topic_are_in_the_largest_node(measured):
    assert measured["largest_node"].startswith("/brokers/topics/topic-")
    assert measured["episodes"]["store"]["largest node, bytes"] < 20 * PARTITIONS / TOPICS + 200


@pytest.mark.timeout(400)
def test_a_rolling_restart_moves_leaders_by_controlled_shutdowns(measured):
    assert measured["requests"]["rolling restart"]["ControlledShutdown"] >= 1
    assert measured["episodes"]["rolling restart"]["seconds for each start, until in sync"] < 10
