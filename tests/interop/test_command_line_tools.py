"""Runs Apache Kafka's own command line tools against three brokers, in the order of the list in `tools.toml`.

One test runs all commands, because each depends on the results of those before it. The test names every command that
ended otherwise than the list says, and writes their output to `tools.txt` in its directory. docs/reference/tools.md
shows its outcome.
"""

from __future__ import annotations

import shlex
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import or_skip
from raw_client import RawClient
from replicated_cluster import ReplicatedCluster
from tool_runner import RELEASE, Result, ToolRunner

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.metadata import MetadataRequest

LIST: dict[str, Any] = tomllib.loads((Path(__file__).parent / "tools.toml").read_text())
AGAIN_SECONDS = 60.0
READING = {"--describe", "--list", "describe", "describe-producers", "list"}
"""Commands with these words only read; they are repeated, because a broker learns of other brokers' changes a moment
later."""
SETTINGS = {
    "zookeeper.session.timeout.ms": "18000",  # no broker is killed here, and a busy machine must not cause elections
    "auto.create.topics.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReplicatedCluster]:
    chroot = request.getfixturevalue("chroots")()
    with ReplicatedCluster(tmp_path, chroot, SETTINGS) as started:
        yield started
    started.check_logs()


def follower_of_orders(cluster: ReplicatedCluster) -> int:
    """Return a broker that does not lead the first partition."""
    with RawClient(cluster.brokers[1].port) as client:
        topic = MetadataRequest.MetadataRequestTopic(name="orders")
        answer = client.call(MetadataRequest(topics=[topic]), ApiKey.METADATA, 9)
    (leader,) = [part.leader_id for part in answer.topics[0].partitions if part.partition_index == 0]
    return next(broker for broker in cluster.brokers if broker != leader)


def fault(command: dict[str, Any], result: Result) -> str | None:
    """Return how the result of a command differs from its entry in tools.toml, as text; None if it does not differ."""
    if result.code != command.get("code", 0):
        return f"exit code {result.code}"
    for key in ("says", "also"):
        if command.get(key, "") not in result.text:
            return f"does not say {command[key]!r}"
    if "never" in command and command["never"] in result.text:
        return f"says {command['never']!r}"
    if command.get("outcome") != "refused" and not command.get("code") and "\tat org.apache.kafka" in result.text:
        return "a stack trace"
    return None


@pytest.mark.timeout(900)
def test_kafkas_command_line_tools_do_what_the_list_says(cluster: ReplicatedCluster, tmp_path: Path) -> None:
    assert LIST["release"] == RELEASE
    for name, text in LIST["files"].items():
        (tmp_path / name).write_text(text)
    brokers = ["--bootstrap-server", ",".join(broker.address for broker in cluster.brokers.values())]
    faults = []
    with or_skip(lambda: ToolRunner(tmp_path / "tools.log")) as runner:
        for command in LIST["commands"]:
            arguments: list[str] = []
            for word in shlex.split(command["arguments"]):
                if word == "{brokers}":
                    arguments += brokers
                elif word == "{follower}":
                    arguments.append(str(follower_of_orders(cluster)))
                elif word.startswith("{file:"):
                    arguments.append(str(tmp_path / word[len("{file:") : -1]))
                else:
                    arguments.append(word)
            deadline, may_repeat = time.monotonic() + AGAIN_SECONDS, command.get("again") or READING & set(arguments)
            while True:
                result = runner.run(LIST["classes"][command["tool"]], arguments, command.get("input", ""))
                wrong = fault(command, result)
                if wrong is None or not may_repeat or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            with (tmp_path / "tools.txt").open("a") as written:
                written.write(f"$ {command['tool']} {command['arguments']}\n{result.text}\n")
            if wrong is not None:
                faults.append(f"{command['tool']} {command['arguments']}: {wrong}\n{result.text[-1500:]}\n")
            if "writes" in command:
                lines = [line for line in result.text.splitlines() if line.count(",") == 2]
                (tmp_path / command["writes"]).write_text("\n".join(lines) + "\n")
    assert not faults, f"{len(faults)} of {len(LIST['commands'])}:\n" + "\n".join(faults)
