"""Models Spark as the sink sees it: drivers, tasks and attempts may be killed, paused, or continue as zombies.

A driver runs a query batch after batch, starting after the last batch in Spark's own log. For each batch the driver
runs the tasks, with further attempts for a task that fails or is slow. The driver then commits the batch, or aborts it
if the commit fails, and writes Spark's log. A test may start another driver while the first one still runs.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from random import Random
from typing import Any, NamedTuple

from tests.support.pipeline.simulated_cluster import Row, SimulatedCluster, SimulatedProducer, turn

from oncelog_pipeline.sink import exactly_once, per_task
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.operations import BatchDiffers
from oncelog_pipeline.sink.state import Batch, TaskMessage

QUERY = Query("q")
ATTEMPTS = 4
BATCHES = 3
PARTITIONS = 3
MANY = 20_000
"""The number of steps within which an undisturbed driver must finish."""


class Delivery(Enum):
    EXACTLY_ONCE = auto()
    PER_TASK = auto()
    AT_LEAST_ONCE = auto()


class Chaos(NamedTuple):
    """The possible events; each number is the frequency of the event per thousand steps."""

    kill: int = 5
    stop: int = 30
    wake: int = 30
    kill_driver: int = 4
    second_driver: int = 4
    speculate: int = 20
    repeat_stage: int = 4
    time_out: int = 0
    set_back: int = 0
    """Of a thousand driver starts, the number that use a checkpoint which is some batches older than the newest."""


CHAOS = Chaos()
QUIET = Chaos(*[0] * len(Chaos._fields))


@dataclass(eq=False)
class Actor:
    """A simulated process (a driver or an attempt of a task) that the test runs step by step; `has_failed` is also true
    if the process was killed.
    """

    name: str
    work: Coroutine[Any, Any, Any]
    driver: Actor | None = None
    is_stopped: bool = False
    is_over: bool = False
    has_failed: bool = False
    result: Any = None
    failure: type[Exception] | None = None


class TaskResult(NamedTuple):
    message: TaskMessage
    rows: list[Row] | None
    """The rows that the task wrote; None if the batch did not need them."""


@dataclass
class Spark:
    """`committed` is the number of the last batch in Spark's own log. `are_rows_the_same` means that a replay of a
    batch produces the rows of the first attempt.

    `violations` describes rows that a reader saw and that no reader should ever see.
    """

    rng: Random
    cluster: SimulatedCluster
    delivery: Delivery = Delivery.EXACTLY_ONCE
    are_rows_the_same: bool = True
    chaos: Chaos = CHAOS
    batches: int = BATCHES
    committed: int = -1
    actors: list[Actor] = field(default_factory=list)
    dead: list[Actor] = field(default_factory=list)
    offered: list[tuple[int, list[Row]]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    started: int = 0
    refused: int = 0
    """Number of replays that the sink refused, because the batch's commit was decided and the replay produced other
    rows.
    """

    # what happens

    def play(self, steps: int) -> None:
        """Run this many steps of the simulated processes; between two steps any event, such as a kill, may happen."""
        for _ in range(steps):
            if not any(actor.driver is None for actor in self.actors):
                if self.committed == self.batches - 1:
                    return
                self._start_driver()
            self._something_happens()
            running = [actor for actor in self.actors if not actor.is_stopped]
            if running:
                self._step(self.rng.choice(running))

    def settle(self) -> None:
        """Kill all running processes, and let undisturbed drivers finish the remaining batches and one more."""
        for actor in list(self.actors):
            self._kill(actor)
        self.batches += 1
        self.chaos = QUIET  # an attempt that starts after the sweep is aborted only by the next sweep
        for _ in range(MANY):
            if not self.actors:
                if self.committed == self.batches - 1:
                    return
                self._start_driver()
            self._step(self.rng.choice(self.actors))
        self.violations.append("the query does not come to an end")
        for actor in list(self.actors):
            self._kill(actor)

    def check(self) -> None:
        """Check that the rows that are visible at the end are correct."""
        for number in range(self.batches):
            self._check_batch(number)
        if self.delivery is Delivery.EXACTLY_ONCE and self.cluster.open_now():
            self.violations.append(f"left open: {self.cluster.open_now()}")

    def _something_happens(self) -> None:
        chaos, chance = self.chaos, self.rng.randrange
        drivers = [actor for actor in self.actors if actor.driver is None]
        if chance(1000) < chaos.kill:
            self._kill(self.rng.choice(self.actors))
        if chance(1000) < chaos.kill_driver and drivers:
            driver = self.rng.choice(drivers)
            for actor in list(self.actors):
                if actor is driver or (actor.driver is driver and self.rng.random() < 0.5):
                    self._kill(actor)
        if chance(1000) < chaos.second_driver and len(drivers) < 3:
            self._start_driver()
        if chance(1000) < chaos.stop and self.actors:
            self.rng.choice(self.actors).is_stopped = True
        if chance(1000) < chaos.wake or all(actor.is_stopped for actor in self.actors):
            for actor in self.actors:
                actor.is_stopped = actor.is_stopped and self.rng.random() < 0.5
        if chance(1000) < chaos.time_out and (opened := self.cluster.open_now()):
            late = self.rng.choice(opened)
            self.trace.append(f"{late} times out")
            self.cluster.time_out(late)

    def _start_driver(self) -> None:
        run = f"{self.started:08d}-run"
        self.started += 1
        self._spawn(f"driver {self.started - 1}", self._drive(run), None)

    def _spawn(self, name: str, work: Coroutine[Any, Any, Any], driver: Actor | None) -> Actor:
        actor = Actor(name, work, driver)
        self.actors.append(actor)
        self.trace.append(f"{name} starts")
        return actor

    def _step(self, actor: Actor) -> None:
        self.current = actor
        try:
            actor.work.send(None)
        except StopIteration as stop:
            actor.result = stop.value
            self._over(actor, "is done")
        except Exception as error:
            actor.has_failed = True
            # The exception itself is not kept, because its traceback would keep dead objects in a reference cycle.
            actor.failure = type(error)
            self._over(actor, f"fails: {error!r}")

    def _kill(self, actor: Actor) -> None:
        actor.has_failed = True
        self._over(actor, "is killed")
        if inspect.getcoroutinestate(actor.work) == inspect.CORO_CREATED:
            actor.work.close()
        # keep a reference to the killed process's coroutine: Python runs the `finally` blocks of a coroutine that is
        # freed
        self.dead.append(actor)

    def _over(self, actor: Actor, how: str) -> None:
        actor.is_over = True
        self.actors.remove(actor)
        self.trace.append(f"{actor.name} {how}")

    # --- the behaviour of Spark

    async def _drive(self, run: str) -> None:
        driver = self.current
        number = self.committed + 1
        is_set_back = bool(self.chaos.set_back) and self.rng.randrange(1000) < self.chaos.set_back
        if is_set_back:
            number = self.rng.randint(0, number)
        while number < self.batches:
            batch = Batch(QUERY, run, number)
            tasks = await self._stage(batch, driver)
            messages = [task.message for task in tasks if task is not None]
            is_done = None not in tasks
            if is_done and self.delivery is Delivery.EXACTLY_ONCE:
                self._offer(batch, [task for task in tasks if task is not None])
                work = exactly_once.commit(self.cluster, batch, messages)
                commit = self._spawn(f"commit {batch}", work, driver)
                is_done = await self._succeeds(commit)
                if commit.failure is BatchDiffers:
                    await self._succeeds(self._spawn(f"operator {batch}", self._accept(batch), driver))
                    return
            if not is_done:
                if self.delivery is Delivery.EXACTLY_ONCE:
                    work = exactly_once.abort(self.cluster, batch, messages)
                    await self._succeeds(self._spawn(f"abort {batch}", work, driver))
                return
            if number <= self.committed and not is_set_back:
                return  # another driver has written the log entry, so Spark stops this driver
            self.committed = max(number, self.committed)
            self.trace.append(f"Spark has batch {number}")
            self._check_batch(number)
            number += 1

    async def _stage(self, batch: Batch, driver: Actor) -> list[TaskResult | None]:
        """Return the result of each task's first successful attempt; None for a task that failed too often."""
        results: dict[int, TaskResult | None] = {}
        running: dict[int, list[Actor]] = {}
        counts: Counter[int] = Counter()
        failures: Counter[int] = Counter()

        def start(partition: int) -> None:
            attempt, counts[partition] = counts[partition], counts[partition] + 1
            name = f"task {batch} {partition}.{attempt}"
            running.setdefault(partition, []).append(
                self._spawn(name, self._task(batch, partition, attempt, len(self.trace)), driver)
            )

        partitions = range(PARTITIONS if self.are_rows_the_same else 1 + self.rng.randrange(PARTITIONS))
        for partition in partitions:
            start(partition)
        while len(results) < len(partitions):
            await turn()
            for partition in partitions:
                if partition in results:
                    continue
                for actor in [actor for actor in running[partition] if actor.is_over]:
                    running[partition].remove(actor)
                    if not actor.has_failed:
                        results[partition] = actor.result
                        break
                    failures[partition] += 1
                    if failures[partition] == ATTEMPTS:
                        results[partition] = None
                        break
                if partition not in results:
                    if self.rng.randrange(1000) < self.chaos.repeat_stage:
                        counts[partition] = 0
                        start(partition)
                    elif not running[partition] or self.rng.randrange(1000) < self.chaos.speculate:
                        start(partition)
        return [results[partition] for partition in partitions]

    async def _task(self, batch: Batch, partition: int, attempt: int, unique: int) -> TaskResult:
        count = (batch.number + partition) % 3 if self.are_rows_the_same else self.rng.randrange(3)
        version = "same" if self.are_rows_the_same else f"{batch.run} {partition} {attempt} {unique}"
        rows = [Row(batch.number, partition, number, count, version) for number in range(count)]
        wanted: list[Row] | None = None

        async def write(producer: SimulatedProducer) -> None:
            nonlocal wanted
            for row in rows:
                await producer.send(row)
            wanted = rows

        message = await self._write(batch, partition, attempt, unique, write)
        return TaskResult(message, wanted)

    async def _write(
        self,
        batch: Batch,
        partition: int,
        attempt: int,
        unique: int,
        write: Callable[[SimulatedProducer], Awaitable[None]],
    ) -> TaskMessage:
        if self.delivery is Delivery.EXACTLY_ONCE:
            return await exactly_once.write_task(self.cluster, batch, partition, attempt, unique, write)
        if self.delivery is Delivery.PER_TASK:
            return await per_task.write_task(self.cluster, batch, partition, write)
        producer = await self.cluster.open_task(f"once {unique}")
        await write(producer)
        if producer.has_rows:
            self.cluster.ended(producer.transactional_id, commits=True)
            await turn()
        return TaskMessage(batch, partition, None)

    async def _accept(self, batch: Batch) -> None:
        """Act as an operator who reads why a replay was refused, and who then keeps the rows that were decided."""
        self.refused += 1
        seen = await self.cluster.read_state(batch.query)
        if seen is not None and seen.batch == batch.number and not seen.lost:
            await exactly_once.reset(self.cluster, seen, replace(batch, run=f"{self.refused:08d}-operator"))

    async def _succeeds(self, actor: Actor) -> bool:
        while not actor.is_over:
            await turn()
        return not actor.has_failed

    # --- the required outcome

    def _offer(self, batch: Batch, tasks: list[TaskResult]) -> None:
        """Before the commit of a batch is decided, store the batch's rows for later checks, unless its tasks only
        counted rows.
        """
        if all(task.rows is not None for task in tasks):
            self.offered.append((batch.number, sorted(row for task in tasks for row in task.rows or ())))

    def _check_batch(self, number: int) -> None:
        """Check that all rows of the batch are visible once; if replays produce different rows, check that all rows are
        of the same attempt.
        """
        seen = sorted(self.cluster.rows_of(number))
        if self.are_rows_the_same:
            right = [
                [
                    Row(number, partition, index, (number + partition) % 3, "same")
                    for partition in range(PARTITIONS)
                    for index in range((number + partition) % 3)
                ]
            ]
        else:
            right = [rows for batch, rows in self.offered if batch == number]
        if seen not in right:
            self.violations.append(f"batch {number}: {seen} is seen")

    @property
    def has_duplicates(self) -> bool:
        return any(count > 1 for count in Counter(self.cluster.visible).values())
