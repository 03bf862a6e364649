"""Runs the soak with Spark once: three brokers, a writer of orders, the Spark query, and the kills."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil
from foreign_clients import eventually
from replicated_cluster import ReplicatedCluster
from streams import open_transactions

from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.local_cluster.java import find_java
from oncelog_broker.local_cluster.server_config import Timing
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars
from spark_soak.driver import Driver
from spark_soak.judge import Verdict, judged
from spark_soak.orders import BASE_MS, Order, Window
from spark_soak.plan import Death, Kind, plan
from spark_soak.query import Query, milliseconds
from spark_soak.topics import OrderWriter, committed_values

SOURCE, TARGET = "orders", "sums"
PARTITIONS: Final = 4
SETTINGS: Final = {"zookeeper.session.timeout.ms": "4000", "zookeeper.connection.timeout.ms": "60000"}
PAUSE_SECONDS: Final = 0.2
"""Seconds between two rounds (batches of orders) of the writer."""
PASSED_BATCHES: Final = 3
"""The number of batches after which late orders are certainly dropped, because their watermark has passed the first
orders.
"""
TASKS: Final = "worker"
"""The module that the Python processes of tasks run."""
TASKS_SHARE: Final = 0.5
"""The share of worker deaths that strike the worker of a task, if there is one; the other deaths strike any worker."""
END_SECONDS: Final = 300.0


@dataclass
class Result:
    seed: int
    pyspark: str = ""
    """Its version."""
    minutes: float = 0.0
    deaths: Counter[Kind] = field(default_factory=Counter)
    workers: Counter[str] = field(default_factory=Counter)
    """How many workers died, counted by the module that they ran."""
    failures: int = 0
    """How often the query failed and the program restarted it."""
    batches: int = 0
    """The highest batch number that the query has completed."""
    late: int = 0
    aborted: int = 0
    verdict: Verdict | None = None
    problems: list[str] = field(default_factory=list)


class Run:
    """One run of the soak, which `play` starts. `deaths` gives for each kind of death how many there are."""

    def __init__(
        self, seed: int, deaths: Mapping[Kind, int], minutes: float, directory: Path, say: Callable[[str], None]
    ) -> None:
        self._directory, self._say = directory, say
        self._plan = plan(seed, deaths)
        self._began = time.monotonic()
        self._deadline = self._began + minutes * 60
        self._result = Result(seed)
        self._passed = 0
        self._revived: Future[None] | None = None
        """Completed when the broker that died last is running again."""

    def play(self) -> Result:
        with ExitStack() as stack:
            self._timeline = stack.enter_context((self._directory / "timeline.txt").open("a", buffering=1))
            self._hands = stack.enter_context(ThreadPoolExecutor(1))
            ensemble = Ensemble(
                self._directory / "zookeeper",
                find_java(),
                provide_jars(self._say),
                size=1,
                timing=Timing(tick=250, least_session=500),
                is_synced=False,
                dies_with_us=True,
            )
            ensemble.start()
            stack.callback(ensemble.kill)
            self._cluster = stack.enter_context(ReplicatedCluster(self._directory, ensemble.connect_string, SETTINGS))
            for topic in (SOURCE, TARGET):
                replicas = [[(index + each) % 3 + 1 for each in range(3)] for index in range(PARTITIONS)]
                self._cluster.create_topic(topic, *replicas)
            query = Query(self._cluster.addresses, SOURCE, TARGET, str(self._directory / "checkpoint"))
            self._writer = OrderWriter(query.addresses, SOURCE, PARTITIONS, self._result.seed, PAUSE_SECONDS)
            self._driver = Driver(query, self._directory, self._hear)
            stack.callback(self._driver.end)
            stack.callback(self._writer.ending.set)
            self._writer.start()
            self._driver.start()
            try:
                self._strike_all()
                self._finish()
            except Exception as error:  # check the topics also after an error that has ended the run early
                self._problem(f"{type(error).__name__}: {error}")
            self._result.minutes = (time.monotonic() - self._began) / 60
        return self._result

    # --- deaths

    def _strike_all(self) -> None:
        kill = {Kind.DRIVER: self._kill_driver, Kind.WORKER: self._kill_worker, Kind.BROKER: self._kill_broker}
        for death in self._plan:
            if time.monotonic() > self._deadline:
                self._problem(f"time is up after {self._result.deaths.total()} of {len(self._plan)} deaths")
                return
            kill[death.kind](death)
            self._result.deaths[death.kind] += 1

    def _kill_driver(self, death: Death) -> None:
        if death.is_early:
            self._sleep(self._driver.started_at + death.after_s - time.monotonic())
        else:
            self._driver.until("batch")
            self._sleep(death.after_s)
        self._note(f"driver {self._driver.lives - 1} dies{' early' if death.is_early else ''}")
        self._driver.kill_and_start()

    def _kill_worker(self, death: Death) -> None:
        if not death.is_early:
            self._driver.until("batch")
        self._sleep(death.after_s)
        while True:
            workers = eventually(self._driver.workers, "there are Python workers", END_SECONDS)
            dice = random.Random(death.pick)
            module = TASKS if TASKS in workers and dice.random() < TASKS_SHARE else dice.choice(sorted(workers))
            victim: psutil.Process = dice.choice(sorted(workers[module], key=lambda each: each.pid))
            with suppress(psutil.NoSuchProcess):
                victim.kill()
                break
        self._result.workers[module] += 1
        self._note(f"worker {victim.pid} dies: {module}")

    def _kill_broker(self, death: Death) -> None:
        self._sleep(death.after_s)
        self._await_revival()
        victim = self._cluster.up[int(death.pick * len(self._cluster.up))]
        self._note(f"broker {victim} dies, for {death.away_s:.1f} s")
        self._cluster.kill(victim)

        def revive() -> None:
            time.sleep(death.away_s)
            self._cluster.start(victim)
            self._note(f"broker {victim} is back")

        self._revived = self._hands.submit(revive)

    def _await_revival(self) -> None:
        """Wait for the broker that died last: only one broker is down at a time, and it must be in sync again before
        another broker dies.
        """
        if self._revived is not None:
            self._revived.result(END_SECONDS)
            self._cluster.until_whole(SOURCE, TARGET)
            self._revived = None

    @staticmethod
    def _sleep(seconds: float) -> None:
        """Wait a random time before a kill; this is the only wait of this module that waits for time instead of an
        event.
        """
        time.sleep(max(0.0, seconds))

    # --- the end

    def _finish(self) -> None:
        self._await_revival()
        self._writer.finish(END_SECONDS)
        self._driver.until("done")
        source = [Order.from_value(value) for value in committed_values(self._cluster.addresses, SOURCE)]
        target = [Window.from_value(value) for value in committed_values(self._cluster.addresses, TARGET)]
        verdict = judged(source, target, self._writer.committed, self._writer.aborted)
        self._result.verdict = verdict
        self._result.late = sum(order.is_late for order in source)
        self._result.aborted = len(self._writer.aborted)
        if not verdict.is_right:
            self._problem("\n".join([str(verdict), *verdict.examples]))
        left = open_transactions(self._cluster.addresses)
        if left:
            self._problem(f"transactions are still open: {left}")
        self._cluster.check_logs()

    def _hear(self, said: dict[str, Any]) -> None:
        """Handle the driver's output, in the thread that reads it."""
        if "pyspark" in said:
            self._result.pyspark = said["pyspark"]
        if "failed" in said:
            self._result.failures += 1
        if "batch" in said:
            self._result.batches = max(self._result.batches, said["batch"])
            if milliseconds(said["watermark"]) > BASE_MS:
                self._passed += 1
                if self._passed == PASSED_BATCHES:
                    self._writer.with_late.set()
        self._note(json.dumps(said))

    def _note(self, what: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._timeline.write(f"{now} {what}\n")

    def _problem(self, what: str) -> None:
        self._result.problems.append(what)
        self._note(f"PROBLEM {what}")
        self._say(what)
