"""`oncelog reassign` on three brokers: a plan, its way, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from foreign_clients import Record
from librdkafka_client import Librdkafka
from replicated_cluster import ReplicatedCluster

from oncelog.cli.main import cli

Oncelog = Callable[..., Result]


@pytest.fixture
def reassign(cluster: ReplicatedCluster) -> Oncelog:
    """Run a command of it, in this process. `code` is the exit code that is expected."""

    def run(*arguments: str, stdin: str = "", code: int = 0) -> Result:
        environment = {"ONCELOG_BOOTSTRAP_SERVER": cluster.addresses}
        done = CliRunner().invoke(cli, ["reassign", *arguments], input=stdin, env=environment)
        assert done.exit_code == code, (done.output, done.exception)
        return done

    return run


def replicas(cluster: ReplicatedCluster, topic: str) -> dict[int, tuple[int, ...]]:
    return {index: part.replicas for index, part in cluster.parts(topic).items()}


def test_there_and_back(cluster: ReplicatedCluster, reassign: Oncelog, topic: str, tmp_path: Path) -> None:
    before = {0: (1, 2), 1: (2, 1), 2: (1, 2)}
    cluster.create_topic(topic, *before.values())
    way_back, plan = str(tmp_path / "back.json"), str(tmp_path / "plan.json")
    made = reassign("generate", topic, "--to", "2,3", "--current", way_back)
    assert "3 partitions of 3 would change" in made.stderr
    Path(plan).write_text(made.stdout)
    assert all(set(each["replicas"]) == {2, 3} for each in json.loads(made.stdout)["partitions"])

    done = reassign("execute", plan, "--throttle", "10000000")
    assert "3 of 3 partitions arrived" in done.stderr
    assert done.stderr.endswith("done\n")
    cluster.until(lambda: {frozenset(each) for each in replicas(cluster, topic).values()} == {frozenset((2, 3))}, "so")
    lines = reassign("verify", plan).stdout.splitlines()
    assert [line.split("\t")[:3] for line in lines] == [[topic, str(index), "done"] for index in before]

    reassign("execute", "-", stdin=Path(way_back).read_text())
    cluster.until(lambda: replicas(cluster, topic) == before, "all are where they were")
    assert reassign("list").stdout == ""


def test_a_throttle_is_seen_and_taken_back(cluster: ReplicatedCluster, reassign: Oncelog, topic: str) -> None:
    """A byte a second, beyond the first answer, which does not hold everything: it takes until it is called back."""
    cluster.create_topic(topic, (1, 2))
    client = Librdkafka(cluster.addresses)
    for _ in range(3):
        client.produce(topic, [Record(bytes(600_000))], partition=0)
    client.close()
    moved = {"topic": topic, "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]}
    plan = json.dumps({"version": 1, "partitions": [moved]})
    reassign("execute", "-", "--no-wait", "--throttle", "1", stdin=plan)
    (line,) = reassign("verify", "-", stdin=plan, code=1).stdout.splitlines()
    assert line.split("\t")[:5] == [topic, "0", "moving", "3,1,2", "3,1"]
    assert settings(cluster, topic) == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    called_back = reassign("cancel", "--all").stderr.splitlines()
    assert called_back == ["the throttle is taken back", "1 partition called back"]
    cluster.until(lambda: settings(cluster, topic) == {}, "all know of it")
    assert replicas(cluster, topic) == {0: (1, 2)}


def settings(cluster: ReplicatedCluster, topic: str) -> dict[str, str]:
    """What the topic's own settings say of throttles."""
    done = CliRunner().invoke(cli, ["topics", "describe", topic, "--output", "json", "-b", cluster.addresses])
    return {key: value for key, value in json.loads(done.stdout)[0]["configs"].items() if "throttled" in key}
