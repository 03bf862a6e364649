"""Runs cells in several processes, each with its own cluster, which is replaced after some cells."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster_matrix.cells import Cell
from cluster_matrix.run import Outcome
from cluster_matrix.stage import Stage
from oncelog.fail_points.point import VARIABLE

CELLS_OF_A_CLUSTER = 25
"""The number of cells after which a cluster is replaced: each cell leaves a topic, which makes each start of a broker a
little slower.
"""
CELL_SECONDS = 300.0
"""Limit in seconds for one cell, far more than a cell takes with all restarts."""


class Job:
    """A process of `job`, and all processes that it has started."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        directory.mkdir()
        self.directory = directory
        self.left = CELLS_OF_A_CLUSTER
        self._log = (directory / "job.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cluster_matrix.job", str(directory), zookeeper],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, VARIABLE: Stage.client_points(directory)},
            start_new_session=True,
        )

    def run(self, cell: Cell) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.left -= 1
        line = ""
        try:
            self._process.stdin.write(json.dumps(cell) + "\n")
            self._process.stdin.flush()
            if select.select([self._process.stdout], [], [], CELL_SECONDS)[0]:
                line = self._process.stdout.readline()
        except OSError:
            pass  # empty output means that the process has died
        if not line:
            self.left = 0
            return Outcome([f"not at its end within {CELL_SECONDS:.0f} s, or the run died"], 0, 0, CELL_SECONDS)
        return Outcome(*json.loads(line))

    def end(self) -> None:
        """Kill the process with its brokers, even if the process hangs."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.communicate()
        self._log.close()


def run_all(
    cells: Sequence[Cell],
    directory: Path,
    new_chroot: Callable[[], str],
    *,
    jobs: int,
    told: Callable[[Cell, Outcome], None],
) -> Mapping[Cell, Outcome]:
    """Run all cells of the matrix in several processes, and call the function `told` with the result of each cell. The
    directory of a job is kept if one of its cells has failed.
    """
    waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    for cell in cells:
        waiting.put(cell)
    outcomes: dict[Cell, Outcome] = {}

    def work(number: int) -> None:
        job: Job | None = None
        clusters = 0
        try:
            while not waiting.empty():
                if job is None:
                    clusters += 1
                    job = Job(directory / f"{number}-{clusters}", new_chroot())
                try:
                    cell = waiting.get_nowait()
                except queue.Empty:
                    break
                outcomes[cell] = outcome = job.run(cell)
                told(cell, outcome)
                # A client that clings to a coordinator never ends its call, so the process of this client is replaced.
                if outcome.problems or outcome.clung or not job.left:
                    job.end()
                    job = None
        finally:
            if job is not None:
                job.end()

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for done in [pool.submit(work, number) for number in range(jobs)]:
                done.result()
        except BaseException:  # this process shall end, after each running job has finished its present cell
            _empty(waiting)
            raise
    return {cell: outcomes[cell] for cell in cells}


def _empty(waiting: queue.SimpleQueue[Cell]) -> None:
    try:
        while True:
            waiting.get_nowait()
    except queue.Empty:
        pass
