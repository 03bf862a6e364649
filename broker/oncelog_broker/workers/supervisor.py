"""The supervisor of workers: starts the workers, serves their metadata store, and stops the workers one by one.

The order of a start: lock the data directories -> wait until the workers of an earlier supervisor have ended -> reserve
the ports -> open the metadata store -> start all workers. The order of a stop: the workers, in reverse order, each with
a controlled shutdown -> the store -> the ports -> the directories.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.store import SessionState
from oncelog_broker.metadata.stores.supervised.store_server import StoreServer
from oncelog_broker.runtime.disk import Disk
from oncelog_broker.runtime.file_lock import LockHeld
from oncelog_broker.workers.forked_worker import Template
from oncelog_broker.workers.worker_process import WorkerFailed, WorkerPlan, WorkerProcess

LEFT_OVER_SECONDS: Final = 15.0
"""Seconds for which a start waits until the workers of an earlier supervisor have ended; a worker kills its own process
ten seconds after its supervisor has ended.
"""
LEFT_OVER_TICK_SECONDS: Final = 0.1
STOP_SECONDS: Final = 300.0
"""Seconds within which a worker must end after its SIGTERM, which includes syncing its logs; then it is killed."""
KILL_SECONDS: Final = 10.0
"""Seconds between the second signal of a stop (which ends a slow stop) and SIGKILL."""

logger = logging.getLogger(__name__)


class Supervisor:
    """Runs workers: `await run()` returns when all workers have ended."""

    def __init__(self, plans: Sequence[WorkerPlan], store_file: str | None) -> None:
        """`store_file` is the path of the metadata store that the supervisor serves. None means that the workers use
        ZooKeeper.
        """
        self._plans = plans
        self._store_file = store_file
        self._lost = asyncio.Event()
        """An event that is set when the metadata store can no longer be used."""

    async def run(self, on_ready: Callable[[], None], stop: asyncio.Event, stop_at_once: asyncio.Event) -> int:
        """Run the workers until `stop` is set; setting `stop_at_once` during a slow stop ends the workers immediately.
        Calls `on_ready` when all workers serve. Returns the exit code. Raises StoreFileError, WorkerFailed, OSError;
        before an error is raised, all workers have ended.
        """
        async with AsyncExitStack() as undo:
            connect = None
            if self._store_file is not None:
                store = EmbeddedStore.open(Path(self._store_file))
                undo.push_async_callback(store.close)
                undo.callback(store.watch_session(self._on_session))
                server = StoreServer(store)
                undo.callback(server.close)
                connect = server.connect
            template = Template()
            undo.push_async_callback(template.close)
            workers = [WorkerProcess(plan, template, connect) for plan in self._plans]
            running = [asyncio.create_task(worker.run()) for worker in workers]
            undo.push_async_callback(_stop_in_order, workers, running, stop_at_once)
            serving = asyncio.create_task(_all_ready(workers))
            stopping, lost = asyncio.create_task(stop.wait()), asyncio.create_task(self._lost.wait())
            try:
                await asyncio.wait((serving, stopping, lost, *running), return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    on_ready()
                    await asyncio.wait((stopping, lost, *running), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (serving, stopping, lost):
                    each.cancel()
            for task in running:
                if task.done():
                    task.result()
            return 1 if self._lost.is_set() else 0

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            logger.error("the metadata store is lost: all workers stop")
            self._lost.set()


async def wait_for_left_over(disk: Disk, lock_files: Sequence[str]) -> None:
    """Wait until no process of an earlier supervisor has locked one of the directories. Raises LockHeld if a process
    still has a directory locked after LEFT_OVER_SECONDS; OSError.
    """
    deadline = asyncio.get_running_loop().time() + LEFT_OVER_SECONDS
    for path in lock_files:
        while disk.exists(path):
            try:
                disk.lock(path).release()
            except LockHeld:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(LEFT_OVER_TICK_SECONDS)
            else:
                break


async def _all_ready(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        await worker.ready.wait()


async def _stop_in_order(
    workers: Sequence[WorkerProcess], running: Sequence[asyncio.Task[None]], at_once: asyncio.Event
) -> None:
    """Stop the workers in reverse order, each after the previous worker has ended; if `at_once` is set, stop all
    workers immediately. A worker that has not ended after STOP_SECONDS is killed: its next start recovers its logs.
    """
    hurried = asyncio.create_task(at_once.wait())
    try:
        for worker, task in zip(reversed(workers), reversed(running), strict=True):
            if not hurried.done():
                worker.stop()
                done, _ = await asyncio.wait((task, hurried), return_when=asyncio.FIRST_COMPLETED, timeout=STOP_SECONDS)
                if not done:
                    number = worker.plan.role.number
                    logger.error("a worker did not stop in time and is killed", extra={"worker": number})
                    worker.kill()
                    await asyncio.wait((task,), timeout=KILL_SECONDS)  # a process that waits for a disk cannot end
        if hurried.done():
            for worker in workers:
                worker.stop()
                worker.stop()
            await asyncio.wait(running, timeout=KILL_SECONDS)
            for worker in workers:
                worker.kill()
        await asyncio.wait(running)
    finally:
        hurried.cancel()
    for worker, task in zip(workers, running, strict=True):
        error = task.exception()
        if error is not None and not isinstance(error, WorkerFailed):
            logger.error("a worker could not be run", extra={"worker": worker.plan.role.number}, exc_info=error)
