"""Tests the command `oncelog cluster` with a real ZooKeeper: the processes that it starts, and its error messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.support.zookeeper.shared_server import ROOT
from warm_commands import run_oncelog_text

from oncelog_broker.local_cluster.cluster import LocalCluster, MemberStatus
from oncelog_broker.local_cluster.ports import is_free, own_ports
from oncelog_broker.local_cluster.process import HAS_PROC, LocalProcess, started_at

COMMAND = str(Path(sys.executable).parent / "oncelog")
TIMEOUT_SECONDS = 100
MOST_BROKERS = 3

STAND_IN = """
import sys
from oncelog_broker.local_cluster import broker_process
broker_process.COMMAND = (sys.executable, "-m", "tests.support.stand_in_broker")
"""

KILLED_AS_IT_STARTS = """
import os, signal, subprocess

class Popen(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if any({command!r} in each for each in command):
            os.kill(os.getpid(), signal.SIGKILL)

subprocess.Popen = Popen
"""


class Cluster:
    """Runs `oncelog cluster` in a separate directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._own_ports = own_ports(MOST_BROKERS)
        self.port = self._own_ports[0].number
        """The port of the first broker; the other brokers have the following ports."""

    def run(self, command: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """`code` is the expected exit code; no command may ever print a traceback."""
        done = subprocess.run(
            [COMMAND, "cluster", command, *arguments, "--data", str(self.directory)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == code, done.stderr
        return done

    def up(self, *arguments: str) -> str:
        return self.run("up", *arguments).stdout.strip()

    def status(self) -> dict[str, MemberStatus]:
        """Return the status that the command would print, without starting another process."""
        return {member.name: member for member in LocalCluster(self.directory, lambda _: None).status()}

    def states(self) -> dict[str, str]:
        return {name: member.state for name, member in self.status().items()}

    @contextmanager
    def zookeeper(self) -> Iterator[KazooClient]:
        client = KazooClient(self.status()["zookeeper-1"].address, timeout=10)
        client.start(30)
        try:
            yield client
        finally:
            client.stop()
            client.close()


def oncelog(address: str, *arguments: str, stdin: str = "") -> str:
    """Run a command of the client, and return its output."""
    done = run_oncelog_text(*arguments, "--bootstrap-server", address, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster, and stop all processes that a test leaves running."""
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    if (cluster.directory / "cluster.json").exists():
        cluster.run("down")
        assert set(cluster.states().values()) <= {"stopped"}


@pytest.fixture
def stand_ins(sabotage: Callable[[str], None]) -> None:
    """Replace the brokers by stand-in processes, because these tests only check processes."""
    sabotage(STAND_IN)


@pytest.mark.usefixtures("stand_ins")
def test_a_cluster_is_created_grown_and_removed(cluster: Cluster) -> None:
    first = cluster.port
    addresses = cluster.up("--brokers", "2", "--port", str(first))
    assert addresses == f"127.0.0.1:{first},127.0.0.1:{first + 1}"
    before = cluster.status()
    assert set(cluster.states().values()) == {"running"}
    with cluster.zookeeper() as client:
        client.create("/kept", b"")

    cluster.run("kill", "2")
    assert cluster.states() == {"zookeeper-1": "running", "broker-1": "running", "broker-2": "stopped"}
    cluster.run("start", "2")
    cluster.run("stop", "2")
    assert cluster.states()["broker-2"] == "stopped"
    assert "is not running" in cluster.run("stop", "2", code=1).stderr
    cluster.run("start", "2")
    cluster.run("pause", "broker-1")
    assert cluster.states() == {"zookeeper-1": "running", "broker-1": "paused", "broker-2": "running"}

    # `oncelog cluster start` starts only the processes that do not run
    cluster.run("kill", "2")
    assert cluster.up() == addresses
    after = cluster.status()
    assert set(cluster.states().values()) == {"running"}
    assert [name for name in after if after[name].pid == before[name].pid] == ["zookeeper-1", "broker-1"]

    cluster.run("down")
    shown = json.loads(cluster.run("status", "--output", "json").stdout)
    assert [(row["name"], row["state"], row["pid"]) for row in shown] == [
        (name, "stopped", None) for name in ("zookeeper-1", "broker-1", "broker-2")
    ]
    assert is_free(first)
    assert cluster.up("--brokers", "3") == f"{addresses},127.0.0.1:{first + 2}", "it may grow"
    with cluster.zookeeper() as client:
        assert client.exists("/kept"), "its data stays"


@pytest.mark.skipif(not HAS_PROC, reason="processes are found in /proc")
def test_processes_just_started_by_a_killed_command_end(cluster: Cluster, sabotage: Callable[[str], None]) -> None:
    try:
        sabotage(STAND_IN + KILLED_AS_IT_STARTS.format(command="QuorumPeerMain"))
        cluster.run("up", "--brokers", "1", "--port", str(cluster.port), code=-signal.SIGKILL)
        cluster.run("down")
        assert all(process.wait(TIMEOUT_SECONDS / 10) for process in processes_of(cluster.directory))
        sabotage(STAND_IN + KILLED_AS_IT_STARTS.format(command="stand_in_broker"))
        cluster.run("up", code=-signal.SIGKILL)
        cluster.run("down")
        assert all(process.wait(TIMEOUT_SECONDS / 10) for process in processes_of(cluster.directory))
    finally:
        for process in processes_of(cluster.directory):
            process.kill()


def processes_of(directory: Path) -> Iterator[LocalProcess]:
    """Yield the processes whose command line names the directory."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # the process has just ended
        if os.fsencode(directory) in command and (started := started_at(int(entry.name))) is not None:
            yield LocalProcess(int(entry.name), started)


def test_a_broker_of_a_cluster_has_its_records_after_a_kill(cluster: Cluster) -> None:
    address = cluster.up("--brokers", "1", "--port", str(cluster.port))
    oncelog(address, "produce", "greetings", stdin="hello\n")
    cluster.run("kill", "1")
    cluster.run("start", "1")
    assert oncelog(address, "consume", "greetings", "--from", "earliest", "--count", "1") == "hello\n"


def test_brokers_are_restarted_in_turn_and_serve_what_they_had(cluster: Cluster) -> None:
    address = cluster.up("--brokers", "1", "--port", str(cluster.port))
    oncelog(address, "produce", "greetings", stdin="hello\n")
    before = cluster.status()["broker-1"].pid
    told = cluster.run("restart").stderr
    assert "broker 1: stopped and serving again" in told
    assert "preferred leaders" in told
    assert cluster.status()["broker-1"].pid != before
    assert oncelog(address, "consume", "greetings", "--from", "earliest", "--count", "1") == "hello\n"
    assert "a ZooKeeper server is restarted by kill and start" in cluster.run("restart", "zookeeper-1", code=1).stderr


@pytest.mark.usefixtures("stand_ins")
def test_a_cluster_that_grows_says_who_does_not_know_yet(cluster: Cluster) -> None:
    cluster.up("--brokers", "1", "--port", str(cluster.port))
    told = cluster.run("up", "--brokers", "3").stderr
    assert "broker 1 runs with older settings (default.replication.factor, " in told
    assert "oncelog cluster restart 1" in told
    assert "broker 2 runs" not in told
    cluster.run("kill", "1")
    assert "older settings" not in cluster.run("up").stderr, "it was started with the new ones"


@pytest.mark.usefixtures("stand_ins")
def test_a_process_that_took_the_pid_of_another_is_left_alone(cluster: Cluster) -> None:
    cluster.up("--brokers", "1", "--port", str(cluster.port))
    cluster.run("down")
    stranger = LocalProcess.start(["sleep", "1000"], cluster.directory / "stranger.log")
    state = json.loads((cluster.directory / "cluster.json").read_text())
    state["brokers"][0] |= {"pid": stranger.pid, "started": "before"}
    (cluster.directory / "cluster.json").write_text(json.dumps(state))
    assert "is not running" in cluster.run("kill", "1", code=1).stderr
    cluster.run("down")
    assert stranger.is_running
    stranger.kill()


def test_a_missing_cluster_is_named_in_the_error(cluster: Cluster) -> None:
    for command in (["status"], ["kill", "1"]):
        said = cluster.run(*command, code=1).stderr
        assert said == f"oncelog: no cluster in {cluster.directory} (oncelog cluster up)\n"


def test_a_broker_that_does_not_start_is_named_with_its_output(cluster: Cluster) -> None:
    arguments = ("--brokers", "1", "--port", str(cluster.port), "--set", "log.dirs=/proc/nothing")
    said = cluster.run("up", *arguments, code=1).stderr
    assert "oncelog: broker 1 ended: " in said
    assert "/proc/nothing" in said
    assert cluster.states() == {"zookeeper-1": "running", "broker-1": "stopped"}
