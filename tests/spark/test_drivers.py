"""Tests drivers, executors and brokers that are killed at every point; the application is started again, and each
record is written once.

Each test starts at least one JVM of its own, so `make spark-tests` runs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerFactory
from driver_process import Application, dies, succeeds
from dying import has_died
from foreign_clients import eventually
from raw_client import RawClient
from raw_transactions import RawTransactions
from replicated_cluster import ReplicatedCluster
from reviving import reviving
from standalone_cluster import StandaloneCluster
from streams import Stream, committed_values, create, open_transactions, produce, values

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

ROWS = 600
BATCH = 300


def made(address: str, topic: str, checkpoint: str) -> Stream:
    """Return a stream of 600 records in batches of 300, which three tasks read and write."""
    create(address, topic, f"{topic}-out")
    produce(address, topic, values(ROWS))
    reads = {"maxOffsetsPerTrigger": str(BATCH), "minPartitions": "3"}
    return Stream(address, topic, f"{topic}-out", checkpoint, reads)


@pytest.fixture
def stream(address: str, topic: str, checkpoint: str) -> Stream:
    return made(address, topic, checkpoint)


@pytest.fixture
def died(tmp_path: Path) -> Path:
    return tmp_path / "died"


def dying(stream: Stream, died: Path, **options: str) -> Stream:
    return replace(stream, writes=dict(stream.writes) | {"dieFile": str(died)} | options)


def check(stream: Stream) -> None:
    assert committed_values(stream.address, stream.target) == Counter(values(ROWS))


@pytest.mark.parametrize(
    ("point", "seen"),
    [
        pytest.param("rows flushed", 0, id="K9"),
        pytest.param("decision", 0, id="K10"),
        pytest.param("decided", 0, id="K11"),
        pytest.param("all ended", BATCH, id="K13"),
    ],
)
def test_a_killed_driver_loses_nothing(stream: Stream, died: Path, point: str, seen: int) -> None:
    """If the driver is killed before the decision, the batch is replayed. If it is killed after the decision, the next
    driver completes the batch, and no task writes anything.
    """
    part = {"diePart": "0"} if point == "rows flushed" else {}
    dies(Application(dying(stream, died, dieAt=point, dieHow="driver", **part)))
    assert has_died(died) == 1
    succeeds(Application(stream))
    check(stream)


def test_k12_a_driver_killed_between_two_ends_loses_nothing(stream: Stream, died: Path) -> None:
    dies(Application(dying(stream, died, dieAt="one ended", dieHow="driver")))
    assert has_died(died) == 1
    succeeds(Application(stream))
    check(stream)


def test_k14_a_decided_timed_out_batch_is_written_again(stream: Stream, died: Path) -> None:
    """The coordinator has aborted all transactions of the batch; the replay notices the aborts and writes the batch
    again.
    """
    timed = replace(stream, writes={"kafka.transaction.timeout.ms": "30000"})
    dies(Application(dying(timed, died, dieAt="decided", dieHow="driver")))
    assert has_died(died) == 1
    eventually(lambda: not open_transactions(stream.address), "transactions time out")
    assert not committed_values(stream.address, stream.target)
    succeeds(Application(stream))
    check(stream)


def test_s123_k27_a_driver_away_longer_than_the_timeout_loses_nothing(
    broker_factory: BrokerFactory, topic: str, checkpoint: str, died: Path
) -> None:
    """The broker has two-phase commit: the decided transactions remain open, and the next driver commits them."""
    broker = broker_factory({"transaction.two.phase.commit.enable": "true"}).start()
    stream = made(broker.address, topic, checkpoint)
    timed = replace(stream, writes={"kafka.transaction.timeout.ms": "30000"})
    dies(Application(dying(timed, died, dieAt="decided", dieHow="driver")))
    assert has_died(died) == 1
    kept = open_transactions(stream.address)
    assert kept
    with RawClient(broker.port) as client:
        later = RawTransactions(client, f"{topic}-later")
        later.take_over(timeout_ms=31_000)
        assert later.add(topic) == 0
        eventually(lambda: later.transactional_id not in open_transactions(stream.address), "a later one times out")
    assert open_transactions(stream.address) == kept
    succeeds(Application(stream))
    check(stream)


def test_k24_a_batch_inside_foreach_batch_is_written_once(stream: Stream, tmp_path: Path) -> None:
    application = Application(stream, foreach_batch=str(tmp_path / "foreach"))
    dies(application)
    assert sum(committed_values(stream.address, stream.target).values()) == BATCH
    succeeds(application)
    check(stream)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_batch_write_without_a_write_id_is_retried(stream: Stream, died: Path, is_late: bool) -> None:
    """S2: the driver is killed after it has ended one transaction and before it ends the next. The second attempt
    writes the rows of the transactions that have timed out, and nothing else.
    """
    writes = {"kafka.transaction.timeout.ms": "30000"} if is_late else {}
    dies(
        Application(
            dying(replace(stream, writes=writes), died, dieAt="one ended", dieHow="driver"), is_batch_write=True
        )
    )
    assert has_died(died) == 1
    if is_late:
        eventually(lambda: not open_transactions(stream.address), "transactions time out")
        assert 0 < sum(committed_values(stream.address, stream.target).values()) < ROWS
    succeeds(Application(stream, is_batch_write=True))
    check(stream)


def test_k16_a_killed_executor_loses_nothing(stream: Stream, died: Path) -> None:
    """The test uses a cluster whose executors are separate JVMs, and kills one of these JVMs."""
    settings = {"spark.executor.memory": "512m", "spark.ui.enabled": "false"}
    told = dying(stream, died, dieAt="rows flushed", dieHow="executor", diePart="0")
    succeeds(Application(told, "local-cluster[2,1,512]", settings))
    assert has_died(died) == 1
    check(stream)


def test_single_use_workers_write_once(stream: Stream, died: Path) -> None:
    told = dying(stream, died, dieAt="rows flushed", diePart="0")
    succeeds(Application(told, settings={"spark.python.worker.reuse": "false"}))
    assert has_died(died) == 1
    check(stream)


def test_k19_a_query_stopped_in_mid_batch_loses_nothing(spark: Any, stream: Stream, died: Path) -> None:
    query = dying(stream, died, dieAt="rows flushed", dieHow="stand", diePart="0").start(spark)
    eventually(lambda: has_died(died), "the task stands")
    query.stop()
    stream.run(spark)
    check(stream)


@pytest.mark.parametrize("point", ["rows flushed", "decided", "one ended"])
def test_k20_a_killed_broker_loses_nothing(
    spark: Any, broker_factory: BrokerFactory, topic: str, checkpoint: str, died: Path, point: str
) -> None:
    """The broker is restarted during the commit, which either continues, or fails and is completed by the next
    start.
    """
    broker = broker_factory(None)
    broker.start()
    stream = made(broker.address, topic, checkpoint)
    with reviving(broker, died):
        try:
            dying(stream, died, dieAt=point, dieHow="broker", diePid=str(broker.pid)).run(spark)
        except Exception as error:  # the query may fail or survive; in both cases the next start completes the batch
            print(error)
    assert has_died(died) == 1
    stream.run(spark)
    check(stream)


@pytest.mark.parametrize("point", ["rows flushed", "decided"])
def test_k20_a_killed_broker_of_three_loses_nothing(
    spark: Any,
    chroots: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
    topic: str,
    checkpoint: str,
    died: Path,
    point: str,
) -> None:
    """The killed broker leads a partition of the target; the other brokers take over, and the killed broker returns at
    the end.
    """
    with ReplicatedCluster(tmp_path_factory.mktemp("replicated"), chroots()) as cluster:
        stream = made(cluster.addresses, topic, checkpoint)
        leader = cluster.until_led(stream.target).leader
        pid = str(cluster.brokers[leader].pid)
        try:
            dying(stream, died, dieAt=point, dieHow="broker", diePid=pid).run(spark)
        except Exception as error:  # the query may fail or survive this kill
            print(error)
        assert has_died(died) == 1
        cluster.note_death()
        cluster.mend()
        stream.run(spark)
        check(stream)


def test_k18_speculation_on_two_hosts_writes_once(stream: Stream, died: Path, two_hosts: str) -> None:
    """An attempt of a task hangs after all its rows are written. A speculative attempt on the other host completes the
    task, and the rows of the first attempt are aborted.
    """
    settings = {
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.executor.cores": "2",
    }
    told = dying(stream, died, dieAt="rows flushed", dieHow="stand", diePart="0")
    succeeds(Application(told, two_hosts, settings))
    assert has_died(died) == 1
    check(stream)


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[str]:
    """Start a standalone master with two workers, each on its own host."""
    with StandaloneCluster(tmp_path) as cluster:
        yield cluster.url
