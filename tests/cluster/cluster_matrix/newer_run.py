"""Runs the cells of the newer protocols: brokers of a cluster with three replicas die while a program consumes,
processes and produces, or while a share group accepts records.

Each cell has topics and a group of its own. The program first processes some records, and ends. Then the kill is
prepared, and the program starts again for the rest: so the steps of its start can be struck, too. The killed broker
returns after the program has ended.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from foreign_clients import eventually
from kill_matrix import worker
from kill_matrix.cluster_stage import RoutedClient
from kill_matrix.final_look import final_look
from kill_matrix.readers import write_values
from kill_matrix.share_cells import ShareCell, ShareFault
from kill_matrix.share_run import SETTINGS as SHARE_SETTINGS
from kill_matrix.share_run import ShareStage
from kill_matrix.streams_worker import Journal
from kill_matrix.worker import Job

from cluster_matrix.newer_cells import SHARES, STREAMS, BrokerRole, Kill, NewerCell, NewerOutcome
from oncelog import Admin, KafkaError
from oncelog.errors import PartialFailure
from oncelog_testing.cluster import Cluster
from oncelog_testing.control import Fault, NotStruck
from oncelog_testing.topics import run

SETTINGS = {
    **SHARE_SETTINGS,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.two.phase.commit.enable": "true",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "1500",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.streams.min.session.timeout.ms": "1500",
    "group.streams.session.timeout.ms": "1500",
    "group.streams.min.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
TARGETS = 3
"""The partitions of the output, of which each broker leads one."""
PER_TRANSACTION = 4
FIRST, INPUTS = 2 * PER_TRANSACTION, 4 * PER_TRANSACTION
"""The number of records that are processed before the kill is prepared, and the number of all records."""
STOPPED_MS = 60_000
"""A delay that ends when another broker is killed."""
WAIT_SECONDS = 90.0
"""Limit of each wait, far more than a failover takes."""
MAX_STARTS = 5
TRIES = 3
"""The maximum number of attempts to run one cell. The controller may move a leader or coordinator to its preferred
broker after the fault was set; then no broker was killed, and the run is repeated.
"""
LOOK_SECONDS = 2.0
"""The program is looked at so often while it has not reached the cell's fail point."""
SHARE_FAULTS = {
    Kill.EXECUTING: ShareFault.ABSENT,
    Kill.COORDINATOR: ShareFault.COORDINATOR_KILLED,
    Kill.CONTROLLER: ShareFault.CONTROLLER_KILLED,
}


class NewerStage:
    """Three brokers in which cells are run one after another; a context manager."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "workers.log"
        self.shares = ShareStage(directory, SETTINGS)
        self.cluster: Cluster = self.shares.cluster

    def __enter__(self) -> Self:
        self.shares.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shares.__exit__(kind, error, trace)

    def last_words(self) -> list[str]:
        """Return the last lines of the logs of the programs, the members of share groups, and the brokers."""
        logs = [self.log, self.shares.log, *(broker.log for broker in self.cluster)]
        return [f"{log.name}: {line}" for log in logs if log.exists() for line in log.read_text().splitlines()[-30:]]

    def run(self, cell: NewerCell) -> NewerOutcome:
        if cell.work == SHARES:
            found = self.shares.run(ShareCell(cell.point, SHARE_FAULTS[cell.kill]))
            return NewerOutcome(found.problems, str(found.deliveries), found.seconds)
        for _ in range(TRIES):
            attempt = NewerRun(self, cell)
            outcome = attempt.outcome()
            if not attempt.missed_its_point:
                break
        return outcome


class Missed(AssertionError):
    """The program has ended without reaching the cell's fail point at the broker that executed the step before."""


class NewerRun:
    """One run of a program that consumes, processes and produces."""

    def __init__(self, stage: NewerStage, cell: NewerCell) -> None:
        self._stage = stage
        self._cluster = stage.cluster
        self._cell = cell
        name = uuid.uuid4().hex[:8]
        partitions = 2 if cell.work == STREAMS else 1
        self._job = Job(
            self._cluster.bootstrap_servers, f"in-{name}", f"out-{name}", TARGETS, INPUTS, PER_TRANSACTION, False,
            partitions,
        )  # fmt: skip
        self._processes: list[subprocess.Popen[bytes]] = []
        self.missed_its_point = False

    def outcome(self) -> NewerOutcome:
        began = time.monotonic()
        problems, committed, aborted = [], set[str](), set[str]()
        try:
            self._prepare()
            self._work(FIRST)
            self._work_and_kill()
            self._cluster.mend()
            problems, committed, aborted = asyncio.run(final_look(self._job, range(1), self._with_client, WAIT_SECONDS))
        except Missed as error:
            self.missed_its_point = True
            problems.append(str(error))
        except Exception as error:  # an error in a run makes one cell fail, and the matrix continues
            problems.append(str(error) or repr(error))
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
            self._cluster.mend()
            Journal(self._job.transactional_id).remove()
        return NewerOutcome(problems, f"{len(committed)}/{len(aborted)}", time.monotonic() - began)

    # --- the run

    def _prepare(self) -> None:
        """Let the preferred leaders lead, so that the roles are spread over the brokers; create the topics."""
        run(self._elect)
        self._cluster.create_topic(self._job.source, self._job.source_partitions)
        self._cluster.create_topic(self._job.target, TARGETS)

    async def _elect(self) -> None:
        async with Admin(self._cluster.bootstrap_servers) as admin:
            with suppress(KafkaError, PartialFailure):  # a role may also be where it is
                await admin.elect_leaders()

    def _write(self, begin: int, end: int) -> None:
        partitions = self._job.source_partitions

        def write(client: Any) -> None:
            for index in range(partitions):
                write_values(
                    client, self._job.source, index, *(b"%d" % n for n in range(begin + index, end, partitions))
                )

        asyncio.run(self._with_client(write))

    def _work(self, inputs: int) -> None:
        """Write the inputs up to this number, and let the program process them."""
        self._write(0, inputs)
        self._until_ended(self._start(inputs), inputs)

    def _work_and_kill(self) -> None:
        self._write(FIRST, INPUTS)
        cell, broker = self._cell, self._cluster[self._struck()]
        action: dict[str, Any] = {"crash": True} if cell.kill is Kill.EXECUTING else {"delay": STOPPED_MS}
        if cell.is_after:
            action["after"] = True
        with ExitStack() as stack:
            failing = stack.enter_context(broker.fail(cell.point, **action))
            process = self._until_struck(failing)
            if cell.kill is not Kill.EXECUTING:
                self._cluster[self._victims[cell.kill]].kill()
                failing.remove()
            self._until_ended(process, INPUTS)

    def _until_struck(self, failing: Fault) -> subprocess.Popen[bytes]:
        """Start the program, and start it again if it gives up, until the fault has struck; return its process. Raises
        Missed if the program has processed all inputs without that, NotStruck if it does not end.
        """
        process, starts, deadline = self._start(INPUTS), 1, time.monotonic() + WAIT_SECONDS
        while True:
            try:
                failing.wait(LOOK_SECONDS)
            except NotStruck:
                code = process.poll()
                if code == 0:
                    raise Missed("the point was not reached") from None
                if time.monotonic() > deadline:
                    raise
                if code is not None:
                    assert starts < MAX_STARTS, f"the program has failed {starts} times"
                    starts += 1
                    process = self._start(INPUTS)
            else:
                return process

    def _start(self, inputs: int) -> subprocess.Popen[bytes]:
        job = json.dumps(self._job._replace(inputs=inputs)._asdict())
        with self._stage.log.open("ab") as log:
            command = [sys.executable, str(worker.__file__), self._cell.work, job]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def _until_ended(self, process: subprocess.Popen[bytes], inputs: int) -> None:
        """Wait until the program has processed all inputs; start it again if it gives up."""
        deadline, starts = time.monotonic() + WAIT_SECONDS, 1
        while process.wait(max(deadline - time.monotonic(), 0.1)):
            assert starts < MAX_STARTS, f"the program has failed {starts} times"
            starts += 1
            process = self._start(inputs)

    # --- the roles

    def _struck(self) -> int:
        """Return the number of the broker that executes the step, and find the other brokers that a cell may kill. The
        struck leader of an output partition is no coordinator, if there is such a leader.
        """
        coordinators = {
            BrokerRole.GROUP: self._leader_of(OFFSETS),
            BrokerRole.TRANSACTION: self._leader_of(TRANSACTIONS),
        }
        self._victims = {
            Kill.COORDINATOR: coordinators[BrokerRole.GROUP],
            Kill.CONTROLLER: run(self._find_controller),
        }
        if (role := BrokerRole(self._cell.role)) in coordinators:
            return coordinators[role]
        leaders = [self._leader_of(self._job.target, index) for index in range(TARGETS)]
        return next((each for each in leaders if each not in coordinators.values()), leaders[0])

    async def _find_controller(self) -> int:
        async with Admin(self._cluster.bootstrap_servers) as admin:
            return (await admin.describe_cluster()).controller_id

    def _leader_of(self, topic: str, index: int = 0) -> int:
        def leader() -> int:
            with suppress(KafkaError):  # a broker may not have heard of the new topic yet
                return max(self._cluster.leader_of(topic, index), 0)
            return 0

        return eventually(leader, f"{topic}-{index} is led", WAIT_SECONDS)

    async def _with_client(self, work: Callable[[Any], object]) -> None:
        def call() -> None:
            client = RoutedClient({number: broker.port for number, broker in self._cluster.brokers.items()})
            try:
                work(client)
            finally:
                client.close()

        await asyncio.to_thread(call)
