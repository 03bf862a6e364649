"""Tests the pipeline of examples/orders, killed at every step: librdkafka reads each window and each dead letter once,
and late orders are counted.

Tests that kill drivers, brokers and machines start their own Spark each time, so `make spark-tests` runs them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerFactory, BrokerProcess
from dying import Death, DyingDataSource, has_died
from examples.orders import pipeline
from examples.orders.order import AVRO, DEAD_LETTERS, JSON, REVENUE
from examples.orders.send import BROKEN_EVERY, send
from orders_program import PYTHON_PATH, Program, check, late_rows, verdict, wanted
from reviving import reviving
from standalone_cluster import StandaloneCluster
from streams import again_if_late

ORDERS = 600
BATCH = 300
LATE = 2


def mortal(called: str, deaths: dict[str, Death]) -> type[DyingDataSource]:
    """Return a source and sink with the name `called`; a query dies if it writes to one of the topics in `deaths`."""

    class Mortal(DyingDataSource):
        def __init__(self, options: Any) -> None:
            super().__init__(options)
            self.death = deaths.get(options.get("topic"), Death())

        @classmethod
        def name(cls) -> str:
            return called

    return Mortal


@pytest.fixture
def own_broker(broker_factory: BrokerFactory) -> BrokerProcess:
    """A broker for this test alone, because the example's topics have fixed names."""
    broker = broker_factory(None)
    broker.start()
    return broker


@pytest.fixture
def address(own_broker: BrokerProcess) -> str:
    return own_broker.address


@pytest.fixture
def own_session(spark: Any) -> Iterator[Any]:
    """A session of the same Spark context with its own settings. Spark searches for data sources in the active session,
    and makes the newest session the active one, so the old session is made active again at the end.
    """
    yield spark.newSession()
    of_jvm = spark._jvm.org.apache.spark.sql.classic.SparkSession
    of_jvm.setActiveSession(spark._jsparkSession)
    of_jvm.setDefaultSession(spark._jsparkSession)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("form", [JSON, pytest.param(AVRO, marks=pytest.mark.soak)])
def test_a_killed_task_and_a_killed_commit_lose_nothing(
    own_session: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The task that writes dead letters (rows that the query could not process) is killed after its rows are flushed,
    and Spark retries it. The process that commits windows is killed after it has written its decision, which ends the
    query; the next start of the query completes the batch. The late orders arrive after that batch is complete.
    """
    asyncio.run(send(address, 0, ORDERS, LATE, form))
    task, commit = tmp_path / "task", tmp_path / "commit"
    deaths = {
        DEAD_LETTERS: Death("rows flushed", str(task), part=0),
        REVENUE: Death("decided", str(commit)),
    }
    name = f"mortal-{form}"
    own_session.dataSource.register(mortal(name, deaths))
    monkeypatch.setattr(pipeline, "FORMAT", name)
    settings = pipeline.Settings(address, str(tmp_path), form=form, batch=BATCH, available_now=True)
    lines: list[str] = []

    def run() -> None:
        queries = pipeline.start(own_session, settings)
        try:
            lines.extend(pipeline.follow(queries))
        finally:
            for query in queries:
                query.stop()

    with pytest.raises(Exception, match=r"."):
        again_if_late(run)
    assert has_died(commit) == 1
    assert verdict(address, known := wanted(address, form)).wrong == []
    again_if_late(run)
    assert has_died(task) == 1
    assert check(address, form) == known
    assert (known.orders + len(known.dead), known.late) == (ORDERS, LATE)
    late = [int(line.split()[-2]) for line in lines if line.startswith("revenue")]
    assert sum(late) == LATE, lines


POINTS = ("before the rows", "rows sent", "rows flushed", "decision", "decided", "one ended", "all ended")
"""All steps of a batch; after the last one Spark writes its commit log entry."""


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("topic", [REVENUE, DEAD_LETTERS])
def test_a_driver_killed_at_any_step_loses_nothing(address: str, tmp_path: Path, topic: str) -> None:
    """The pipeline is killed at each of its steps, one step in each run. The pipeline's output is correct after each
    run, and complete at the end.
    """
    asyncio.run(send(address, 0, 200 * (len(POINTS) + 2), LATE))
    program, known = Program(address, tmp_path, batch=200), wanted(address)
    for point in POINTS:
        program.dies(topic, Death(point, how="jvm"))
        assert verdict(address, known).wrong == [], point
    program.when_it_prints("revenue: ", lambda pid: os.killpg(pid, signal.SIGKILL))
    assert verdict(address, known).wrong == []
    output = program.succeeds()
    assert check(address) == known
    assert late_rows(output) == LATE, output


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_killed_broker_loses_nothing(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """The broker is killed while tasks write, and while a decided batch is committed; it is restarted immediately.
    The program may survive the kill or end; in both cases every record is written once at the end.
    """
    address = own_broker.address
    program = Program(address, tmp_path, batch=200)
    steps = ((REVENUE, "rows flushed"), (DEAD_LETTERS, "decided"), (REVENUE, "one ended"))
    for index, (topic, point) in enumerate(steps):
        asyncio.run(send(address, 400 * index, 400))
        program.died.unlink(missing_ok=True)
        with reviving(own_broker, program.died):
            program.dies(topic, Death(point, how="broker", pid=own_broker.pid))
        assert verdict(address, wanted(address)).wrong == [], point
    program.succeeds()
    assert check(address).orders == 1200 - 1200 // BROKEN_EVERY


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_the_pipeline_runs_on_two_machines(address: str, tmp_path: Path) -> None:
    """The test runs the same program with another master. The driver dies after its decision and is started again. Then
    an executor dies while it writes, and after that one of the two machines is lost.
    """
    asyncio.run(send(address, 0, 1000, LATE))
    known = wanted(address)
    with StandaloneCluster(tmp_path, PYTHON_PATH) as cluster:
        settings = {"spark.executor.memory": "512m"}
        program = Program(address, tmp_path, 200, master=cluster.url, settings=settings)
        program.dies(REVENUE, Death("decided", how="jvm"))
        assert verdict(address, known).wrong == []
        program.died.unlink()
        executor = Death("rows flushed", how="jvm", part=0)
        output = program.when_it_prints("revenue: ", lambda _: cluster.kill_worker(), REVENUE, executor)
        assert has_died(program.died) == 1
    assert "everything is written" in output
    assert check(address) == known
