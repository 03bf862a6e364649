"""Runs one cell of the matrix: a run with a fault, until its end, and checks the result."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from broker_process import BrokerProcess
from raw_client import RawClient
from warm_commands import CLIENT, Child, Program

from kill_matrix.cells import Cell, Fault, requests_at
from kill_matrix.final_look import final_look
from kill_matrix.questions import GO, Hit
from kill_matrix.readers import write_values
from kill_matrix.stage import OFFSETS_PARTITIONS, Stage
from kill_matrix.streams_worker import Journal
from kill_matrix.worker import Job
from oncelog.fail_points.point import VARIABLE

PARTITIONS = 2
PER_TRANSACTION = 4
TRANSACTIONS = 4
MAX_STARTS = 5
SOURCE_PARTITIONS = {"oncelog-streams": 2}
"""The numbers of source partitions other than 1: a streams group has a task for each."""
WORKER = (str(Path(__file__).with_name("worker.py")),)
WORKERS = {
    "aiokafka": Program(WORKER, ("aiokafka",)),
    "oncelog": Program(WORKER, CLIENT),
    "oncelog-v1": Program(WORKER, CLIENT),
    "oncelog-consumer": Program(WORKER, CLIENT),
    "oncelog-2pc": Program(WORKER, CLIENT),
    "oncelog-streams": Program(WORKER, CLIENT),
}


class Outcome(NamedTuple):
    """The result of a cell; `problems` is empty if the run was correct."""

    problems: list[str]
    committed: int
    aborted: int
    worker_starts: int
    seconds: float


class Run:
    """A run in progress. `decide` is called at every fail point that any process reaches."""

    def __init__(self, stage: Stage, cell: Cell) -> None:
        self._stage = stage
        self._cell = cell
        name = uuid.uuid4().hex[:8]
        self._job = Job(
            stage.address,
            f"in-{name}",
            f"out-{name}",
            PARTITIONS,
            TRANSACTIONS * PER_TRANSACTION,
            PER_TRANSACTION,
            cell.aborts,
            SOURCE_PARTITIONS.get(cell.library, 1),
        )
        self._hits: Counter[Hit] = Counter()
        self._lost_before, self._swallowed_before = stage.proxy.lost, stage.proxy.swallowed
        self._is_armed = False
        self._has_struck = False
        self._worker: Child | None = None
        self._starts = 0
        self._restart: asyncio.Task[None] | None = None

    async def outcome(self) -> Outcome:
        began = time.monotonic()
        problems, committed, aborted = [], set[str](), set[str]()
        try:
            async with asyncio.timeout(self._stage.run_seconds):
                await self._stage.start_broker()  # start the broker again if it died in the previous run
                await self._stage.with_client(self._prepare)
                await self._work()
                problems, committed, aborted = await self._look()
        except TimeoutError:
            problems.append(f"not at its end within {self._stage.run_seconds:.0f} s")
        except Exception as error:  # an error in a run makes one cell fail, and the matrix continues
            problems.append(str(error) or repr(error))
        finally:
            await self._clear()
        problems += self._stage.complaints()
        return Outcome(problems, len(committed), len(aborted), self._starts, time.monotonic() - began)

    # --- the run

    def _prepare(self, client: RawClient) -> None:
        partitions = self._job.source_partitions
        client.create_topic(self._job.source, partitions)
        client.create_topic(self._job.target, PARTITIONS)
        for index in range(partitions):
            values = (b"%d" % number for number in range(index, self._job.inputs, partitions))
            write_values(client, self._job.source, index, *values)

    async def _work(self) -> None:
        """Start the worker, and start it again whenever it dies, until it has completed its work."""
        self._stage.decide = self._decide
        environment = {VARIABLE: self._stage.fail_points}
        with self._stage.log.open("a") as log:
            while self._starts < MAX_STARTS:
                self._starts += 1
                self._worker = Child(
                    WORKERS[self._cell.library],
                    self._cell.library,
                    json.dumps(self._job._asdict()),
                    environment=environment,
                    log=log,
                )
                with closing(self._worker):
                    code = await self._worker.ended()
                if code == 0:
                    return
        raise AssertionError(f"the worker died {MAX_STARTS} times")

    async def _decide(self, hit: Hit, broker: BrokerProcess) -> str:
        """Count how often the second transaction reaches the cell's fail point; at the chosen time, cause the fault."""
        if not self._is_armed:
            self._is_armed = hit == Hit("after", "complete-logged")
            return GO
        self._hits[hit] += 1
        moment = self._cell.moment
        if not self._has_struck and hit == moment.hit and self._hits[hit] == moment.nth:
            self._has_struck = True
            await self._strike(broker)
        return GO

    async def _strike(self, broker: BrokerProcess) -> None:
        match self._cell.fault:
            case Fault.BROKER_KILLED:
                broker.kill()
                self._restart = asyncio.ensure_future(self._stage.start_broker())
            case Fault.CLIENT_KILLED:
                assert self._worker is not None
                self._worker.process.kill()
                await self._worker.ended()
            case Fault.CONNECTION_CUT:
                self._stage.cut()
            case Fault.REPLY_LOST:
                self._stage.proxy.lose_answer(requests_at(self._cell.moment.hit.point))
            case Fault.REQUEST_DUPLICATED:
                self._stage.proxy.send_twice(requests_at(self._cell.moment.hit.point))

    def _check_struck(self) -> None:
        assert self._has_struck, "the point was not reached"
        proxy = self._stage.proxy
        match self._cell.fault:
            case Fault.REPLY_LOST:
                assert proxy.lost == self._lost_before + 1, "no reply was lost"
            case Fault.REQUEST_DUPLICATED:
                assert proxy.swallowed == self._swallowed_before + 1, "no request was answered twice"

    async def _clear(self) -> None:
        self._stage.reset()
        if self._worker is not None:
            self._worker.process.kill()
            await self._worker.ended()
        if self._restart is not None:
            await self._restart
        Journal(self._job.transactional_id).remove()

    # --- the end of a run, and its check

    async def _look(self) -> tuple[list[str], set[str], set[str]]:
        """Return the problems, the committed transactions, and the aborted transactions."""
        self._check_struck()
        self._stage.reset()
        return await final_look(self._job, range(OFFSETS_PARTITIONS), self._stage.with_client)


async def run_cell(stage: Stage, cell: Cell) -> Outcome:
    return await Run(stage, cell).outcome()
