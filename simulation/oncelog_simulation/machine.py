"""The machines of a simulated world: hosts with a clock, an address, and processes that can be killed and paused.

A `BrokerMachine` has a disk and runs the real `Broker`. A `ClientHost` runs coroutines with oncelog's own clients, or
any asyncio code that opens its connections through the loop.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from oncelog_broker.assembly import running_coordinators  # noqa: F401 - a run must not depend on what is imported
from oncelog_broker.broker import Broker
from oncelog_broker.config.load import load_broker_config
from oncelog_broker.config.zookeeper_keys import ZOOKEEPER_SESSION_TIMEOUT_MS
from oncelog_broker.runtime.tasks import Tasks
from oncelog_simulation.clock import HostClock
from oncelog_simulation.disk import DiskTroubles, SimulatedDisk
from oncelog_simulation.network import HostNetwork
from oncelog_simulation.process import Process
from oncelog_simulation.sessions import EnsembleOpening
from oncelog_simulation.storage import Storage
from oncelog_simulation.surroundings import Surroundings

T = TypeVar("T")

PORT: Final = 9092
LEAST_PAUSE_SECONDS: Final = 0.5
"""The shortest pause of a broker's periodic work; in a run with leisure, all pauses are at least `Plan.leisure` times
as long.
"""
RESTART_SECONDS: Final = 1.0
"""Virtual seconds before a broker that has ended unexpectedly, or that failed to start, is restarted, as a service
manager would do.
"""


class Killed(Exception):
    """Raised by a wait for the result of a process, if the process is killed."""


class Machine:
    """A host with a clock and an address. `name` is unique in the machine's world."""

    def __init__(self, world: Surroundings, name: str, address: str) -> None:
        self.world = world
        self.name = name
        self.address = address
        self.clock = HostClock(world.loop.virtual)
        self.host = world.network.add_host(name, address)
        self.process: Process | None = None
        """The running process or, if none runs, the last one."""
        self._starts = 0
        self._waiting: list[asyncio.Future[Any]] = []
        """The results of the running process that the world awaits."""

    @property
    def is_running(self) -> bool:
        """Whether a process is alive, even if it is paused."""
        return self.process is not None and self.process.is_alive

    def _begin_process(self) -> Process:
        assert not self.is_running, f"{self.name} has a process"
        self._starts += 1
        name = f"{self.name}.{self._starts}"
        process = self.process = Process(
            name, self.world.next_process_number(), self.clock, self.world.random(f"process {name}")
        )
        self.world.network.place(process, self.host)
        return process

    async def _await(self, process: Process, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine in the process; returns its result. Raises Killed if the process is killed."""
        loop = self.world.loop
        done: asyncio.Future[T] = loop.create_future()
        self._waiting.append(done)

        def ended(task: asyncio.Task[T]) -> None:
            if done.done():
                return
            if task.cancelled():
                done.cancel()
            elif (error := task.exception()) is not None:
                done.set_exception(error)
            else:
                done.set_result(task.result())

        loop.spawn(process, work).add_done_callback(ended)
        try:
            return await done
        finally:
            if done in self._waiting:
                self._waiting.remove(done)

    def kill(self) -> None:
        """Kill the running process, if there is one, as `kill -9` does. None of its code runs any more, but data that
        it has written remains.
        """
        process = self.process
        if process is None or not process.is_alive:
            return
        self.world.note(self.name, "is killed")
        self._end_process()
        self.world.network.drop_process(self.host, process)

    def _end_process(self) -> None:
        assert self.process is not None
        self.world.loop.kill(self.process)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            if not done.done():
                done.set_exception(Killed(self.process.name))
                done.exception()

    def forget(self) -> None:
        """Release all objects of the processes, because the world ends."""
        self.process = None
        self._waiting.clear()

    def pause(self) -> None:
        """Pause the running process, if there is one, as SIGSTOP does."""
        if self.process is not None and self.process.is_alive:
            self.world.note(self.name, "is paused")
            self.world.loop.pause(self.process)

    def resume(self) -> None:
        """Let a paused process continue, as SIGCONT does."""
        if self.process is not None and self.process.is_paused:
            self.world.note(self.name, "goes on")
            self.world.loop.resume(self.process)


class BrokerMachine(Machine):
    """The machine of one broker. The machine keeps its disk and its port when its broker is restarted."""

    def __init__(
        self,
        world: Surroundings,
        number: int,
        settings: Mapping[str, str],
        directories: int = 1,
        leisure: float = 1.0,
    ) -> None:
        super().__init__(world, f"broker-{number}", f"10.0.0.{number}")
        self._least_pause_seconds = LEAST_PAUSE_SECONDS * leisure if leisure > 1 else 0.0
        self.number = number
        self.port = PORT
        self.directories = tuple(f"/data/{number}/{place}/" for place in range(1, directories + 1))
        """The broker's data directories."""
        self.settings = dict(settings)
        """The broker's settings by Kafka's keys; a change takes effect at the next start."""
        self.storage = Storage()
        """The machine's files, which every process on it sees."""
        self.disk_troubles = DiskTroubles()
        self.disk: SimulatedDisk | None = None
        """The disk of the running process or, if none runs, of the last one."""
        self.broker: Broker | None = None
        """The real broker object while it runs; None otherwise."""
        self.ended_broker: Callable[[], Broker | None] = lambda: None
        """Returns the real broker object of the last process that has ended, unless the object was released."""
        self.serves_since = 0.0
        """Virtual seconds at which the broker's last start ended."""
        self.power_cuts = 0
        """How often the machine has lost its power."""
        self.is_wanted = True
        """Whether `supervise` starts the broker when it does not run."""
        self.trouble = ""
        """Why the broker's last start failed; empty if it succeeded."""
        self._locks: dict[str, Process] = {}
        self._may_start = asyncio.Event()
        self._may_start.set()

    @property
    def bootstrap_server(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def is_serving(self) -> bool:
        """Whether the broker has started, is alive and is not paused."""
        return self.broker is not None and self.process is not None and not self.process.is_paused

    # --- restarts, as a service manager does them

    async def supervise(self) -> None:
        """Start the broker whenever it should run and does not, until this coroutine is cancelled."""
        while True:
            await self._may_start.wait()
            if not self.is_running:
                try:
                    await self.start()
                except Killed:
                    pass
                except Exception as error:
                    self.trouble = f"{type(error).__name__}: {error}"
                    await asyncio.sleep(RESTART_SECONDS)
                continue
            await self._until_ended()
            await asyncio.sleep(RESTART_SECONDS)

    async def _until_ended(self) -> None:
        """Return when the running process has ended, for whatever reason."""
        process, broker = self.process, self.broker
        if process is None or broker is None:
            return
        with suppress(Killed):
            await self._await(process, broker.failed.wait())
            self.world.note(self.name, "has failed, and stops")
            await self._await(process, broker.stop())
            self._exit(process)

    def hold(self) -> None:
        """Do not start the broker again until `let_start` is called."""
        self.is_wanted = False
        self._may_start.clear()

    def let_start(self) -> None:
        """Permit starts again after `hold`: `supervise` soon starts the broker, if it does not run."""
        self.is_wanted = True
        self._may_start.set()

    async def start(self) -> None:
        """Start the broker; returns when it serves. Raises the errors of `Broker.start`, or Killed."""
        if not self.host.is_up:
            self.world.network.raise_host(self.host)
        process = self._begin_process()
        process.is_watched = True
        self.world.note(self.name, "starts", process=process.name)
        disk = self.disk = SimulatedDisk(
            self.storage, self.disk_troubles, process, self.world.loop, self._die_at_a_write, self._locks
        )
        try:
            await self._await(process, self._start(process, disk))
        except Killed:
            raise
        except BaseException as error:
            self.world.note(self.name, "does not start", reason=f"{type(error).__name__}: {error}")
            self._exit(process)
            raise
        self.trouble = ""
        self.serves_since = self.world.now
        self.world.note(self.name, "serves")

    async def _start(self, process: Process, disk: SimulatedDisk) -> None:
        settings = {
            "node.id": str(self.number),
            "log.dirs": ",".join(self.directories),
            "listeners": f"PLAINTEXT://{self.address}:{self.port}",
            **self.settings,
        }
        config = load_broker_config(None, {}, [f"{key}={value}" for key, value in settings.items()])
        broker = Broker(
            config,
            clock=self.clock,
            disk=disk,
            network=HostNetwork(self.world.network),
            store=EnsembleOpening(self.world.store, process, config[ZOOKEEPER_SESSION_TIMEOUT_MS] / 1000),
            tasks=Tasks(self._least_pause_seconds),
        )
        await broker.start()
        self.broker = broker

    async def stop(self, *, leaves: bool = True) -> None:
        """Stop the broker by a controlled shutdown, as SIGTERM does; without `leaves` the broker does not move its
        leadership first. The stop cannot be undone: the broker stops even if the caller is cancelled. Killed.
        """
        stopping = asyncio.create_task(self._stop_process(leaves=leaves))
        stopping.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(stopping)

    async def _stop_process(self, *, leaves: bool) -> None:
        broker, process = self.broker, self.process
        if broker is None or process is None:
            return
        self.world.note(self.name, "gets the order to stop")
        await self._await(process, self._stop(broker, leaves=leaves))
        self.world.note(self.name, "has stopped")
        self._exit(process)

    async def _stop(self, broker: Broker, *, leaves: bool) -> None:
        if leaves:
            await broker.leave()
        await broker.stop()

    def _exit(self, process: Process) -> None:
        if process.is_alive:
            self._end_process()
            self.world.network.drop_process(self.host, process)

    def _end_process(self) -> None:
        super()._end_process()
        if self.broker is not None:
            self.ended_broker, self.broker = weakref.ref(self.broker), None

    def forget(self) -> None:
        super().forget()
        self.broker = self.disk = None
        self._locks.clear()

    def _die_at_a_write(self) -> None:
        self.world.note(self.name, "dies at a write")
        self.kill()

    def cut_power(self) -> None:
        """Cut the machine's power: data that was not synced may be lost. The next start of the broker restores the
        power.
        """
        if not self.host.is_up:
            return
        self.world.note(self.name, "loses its power")
        self.power_cuts += 1
        self.world.power_cuts += 1
        if self.is_running:
            self._end_process()
        self.world.network.drop_host(self.host)
        self.storage.cut_power(self.world.random(f"power cut {self.name} {self._starts}"))


class ClientHost(Machine):
    """A machine that runs a client application. Each call of `run` starts a process; only one process runs at a
    time.
    """

    def __init__(self, world: Surroundings, number: int, name: str) -> None:
        super().__init__(world, name, f"10.0.1.{number}")

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine in a process of this host; returns its result. Raises the errors of the coroutine, or
        Killed.
        """
        process = self._begin_process()
        try:
            return await self._await(process, work())
        finally:
            if process.is_alive:
                self._end_process()
                self.world.network.drop_process(self.host, process)
