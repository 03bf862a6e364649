"""An asyncio event loop with virtual time, in which several simulated processes run; the seed of the run determines
their order.

Invariants:
- Callbacks of one process run in asyncio's order. An iteration runs all callbacks of one process that are ready; at any
  time only one process runs.
- Time advances only from one event to the next one. An iteration of a process takes virtual time, which delays its next
  iteration.
- Callbacks of dead or paused processes do not run.
- Nothing depends on memory addresses: tasks and futures hash by their number.

The world may kill a process between its iterations or while it runs, see `process`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

from oncelog_simulation.clock import HostClock
from oncelog_simulation.process import PROCESS, Process, ProcessIsDead

T = TypeVar("T")

TURN_SECONDS: Final = 0.00006
"""Maximum seconds that one iteration takes, not counting the time for reading clocks."""
CLOCK_SECONDS: Final = (0.000001, 0.000001, 0.000001, 0.000001, 0.000001, 0.000001, 0.00002, 0.0004)
"""Virtual seconds that one reading of the clock may take; one value is drawn for each iteration. With the largest
values, code that loops until a deadline ends after a few readings.
"""
CLOCK_CHOICES: Final = len(CLOCK_SECONDS)
JOB_SECONDS: Final = 0.002
"""Mean virtual seconds until a worker thread has done a job."""
SHARED_THREADS: Final = 32
"""Number of worker threads in each process for jobs that name no executor."""


_WAKE: Final[Callable[..., object]] = asyncio.futures._set_result_unless_cancelled  # type: ignore[attr-defined]
"""The callback at the end of `asyncio.sleep`: it completes a future and runs no other code."""


_NEW_TASKS: Final = count(1)
"""Numbers of tasks that the loop has not numbered yet."""


class NothingLeft(RuntimeError):
    """Raised if the run has not ended, but no event is left that could continue it."""


class _Future(asyncio.Future[Any]):
    """A future that hashes by its number."""

    __slots__ = ("number",)

    number: int

    def __hash__(self) -> int:
        return self.number


class Task(asyncio.Task[Any]):
    """A task that hashes by its number, and knows its process."""

    number: int
    process: Process

    def __new__(cls, *arguments: Any, **options: Any) -> Task:  # noqa: ARG004 - __init__ takes them
        """Give the task a hash of its own before `__init__` adds it to asyncio's set of all tasks. With equal hashes,
        each new task would be compared with all others in this set.
        """
        task = super().__new__(cls)
        task.number = -next(_NEW_TASKS)
        return task

    def __hash__(self) -> int:
        return self.number


class _Handle(asyncio.Handle):
    """A callback that is ready to run. Like asyncio's handle, without the parts for debugging, because a run creates a
    hundred thousand handles.
    """

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: Any, loop: asyncio.AbstractEventLoop, context: Context
    ) -> None:
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class _Timer(asyncio.TimerHandle):
    """A timer, which stays in the loop's heap until its time, even if it is cancelled."""

    __slots__ = ("process",)

    process: Process

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Any,
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class _Event:
    """An event that belongs to the simulated world instead of a process."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one run. `director` is the process of the simulation itself; all callbacks belong to it that
    are scheduled outside simulated processes.
    """

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.now = 0.0
        """Virtual seconds at the start of the current iteration."""
        self._ahead = 0.0
        """Seconds that the current iteration has taken so far."""
        self._clock_seconds = CLOCK_SECONDS[0]
        self._random = random
        self._draw = random.random
        self._heap: list[tuple[float, int, _Timer | Process | _Event]] = []
        self._numbers = count(1)
        self._is_over = False
        self._remains: list[Any] = []
        self._threads: dict[tuple[Process, int], list[float]] = {}
        """For each pool of worker threads, the virtual times at which its threads become free."""
        self.turns = 0
        """The number of iterations of all processes so far."""
        self.fingerprint = 0
        """Hash of all iterations so far; two runs of one seed have the same hash."""
        self.after_turn: Callable[[Process, bool], None] | None = None
        """A function that is called after each iteration of a watched process. The second argument is whether the
        iteration has run code of the process. It is False if the iteration has only completed futures, whose tasks
        continue in the next iteration (`_WAKE`, `_set_result`).
        """
        self.connector: Callable[..., Coroutine[Any, Any, Any]] | None = None
        """The function that implements `create_connection`; set by the network."""
        self.resolver: Callable[[str | None], str | None] | None = None
        """A function that returns the address of the host with a given name, or None if no host has this name; set by
        the network.
        """
        self.director = Process("director", 0, HostClock(self.virtual), random)
        self.current = self.director
        """The process to which the running code belongs."""
        self._running: Process | None = None
        """The process whose iteration runs; None between iterations."""
        self.set_task_factory(self._make_task)
        self.set_debug(False)
        self.get_debug = bool  # type: ignore[method-assign]  # returns False; each new future calls this

    # --- time

    def virtual(self) -> float:
        """Virtual seconds since the world began. Reading this time takes some virtual time."""
        self._ahead += self._clock_seconds
        return self.now + self._ahead

    def time(self) -> float:
        """Return the time on the clock of the running process."""
        self._ahead += self._clock_seconds
        clock = self.current.clock
        return (self.now + self._ahead) * clock.rate + clock.base

    @property
    def here(self) -> float:
        """Return the same time as `virtual`, for the simulation itself: reading it takes no virtual time."""
        return self.now + self._ahead

    def spend(self, seconds: float) -> None:
        """Make the running code take `seconds` longer."""
        self._ahead += seconds

    # --- callbacks

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            process, context = self.current, copy_context()
        else:
            process = context.get(PROCESS, self.director)
        handle = _Handle(callback, args, self, context)
        if not process.is_alive or self._is_over:
            process.remains.append(handle)
            return handle
        process.ready.append(handle)
        if not process.has_turn and process is not self._running and not process.is_paused:
            self._schedule_turn(process)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """`when` is a time on the clock of the running process."""
        if context is None:
            process, context = self.current, copy_context()
        else:
            process = context.get(PROCESS, self.director)
        clock = self.current.clock
        timer = _Timer(when, callback, args, self, context)
        timer.process = process
        if not self._is_over and process.is_alive:
            heappush(self._heap, ((when - clock.base) / clock.rate, next(self._numbers), timer))
        return timer

    def call_in(self, process: Process, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Call a function in a process at a virtual time, unless the process is dead by then."""
        timer = _Timer(when, callback, args, self, process.context)
        timer.process = process
        if not self._is_over and process.is_alive:
            heappush(self._heap, (when, next(self._numbers), timer))

    def happen(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Call a function at a virtual time, even if the running process dies."""
        if not self._is_over:
            heappush(self._heap, (when, next(self._numbers), _Event(callback, args)))

    def post(self, process: Process, callback: Callable[..., object], *args: Any) -> None:
        """Call a function in the next iteration of a process; a dead process never calls it."""
        if process.is_alive and not self._is_over:
            process.ready.append(_Handle(callback, args, self, process.context))
            if not process.has_turn and process is not self._running and not process.is_paused:
                self._schedule_turn(process)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _schedule_turn(self, process: Process) -> None:
        process.has_turn = True
        when, busy_until = self.now + self._ahead, process.busy_until
        heappush(self._heap, (when if when >= busy_until else busy_until, next(self._numbers), process))

    # --- the heap of events

    def _run_once(self) -> None:
        """Run events until the loop is stopped."""
        heap, run_turn = self._heap, self._turn
        while not self._stopping:  # type: ignore[attr-defined]
            if not heap:
                raise NothingLeft("the world waits, and no event is left")
            when, _, what = heappop(heap)
            if when > self.now:
                self.now = when
            kind = type(what)
            if kind is Process:
                process: Process = what  # type: ignore[assignment]
                process.has_turn = False
                if process.is_alive and not process.is_paused:
                    run_turn(process)
            elif kind is _Event:
                event: _Event = what  # type: ignore[assignment]
                event.callback(*event.args)
                self._ahead = 0.0
            else:
                timer: _Timer = what  # type: ignore[assignment]
                if timer._cancelled:
                    continue
                process = timer.process
                if not process.is_alive:
                    process.remains.append(timer)
                    continue
                process.ready.append(timer)
                if process.has_turn or process.is_paused:
                    continue
                if process.busy_until <= self.now:
                    run_turn(process)
                else:
                    self._schedule_turn(process)

    def _turn(self, process: Process) -> None:
        """Run all ready callbacks of a process."""
        self.turns += 1
        self.current = self._running = process
        self._ahead = 0.0
        draw, ready = self._draw, process.ready
        self._clock_seconds = CLOCK_SECONDS[int(draw() * CLOCK_CHOICES)]
        count, has_run_code = len(ready), False
        self.fingerprint = hash((self.fingerprint, self.now, process.number, count))
        while count:
            count -= 1
            handle = ready.popleft()
            if handle._cancelled:
                continue
            callback = handle._callback  # type: ignore[attr-defined]
            if callback is not _WAKE and callback is not _set_result:
                has_run_code = True
            try:
                handle._context.run(callback, *handle._args)  # type: ignore[attr-defined]
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._callback_failed(handle, error)
            if not process.is_alive:
                break
        process.busy_until = self.now + self._ahead + draw() * TURN_SECONDS
        self.current, self._running = self.director, None
        self._ahead = 0.0
        self._clock_seconds = CLOCK_SECONDS[0]
        if process.is_watched and self.after_turn is not None:
            self.after_turn(process, has_run_code)
        if ready and process.is_alive and not process.has_turn and not process.is_paused:
            self._schedule_turn(process)

    def _callback_failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        self.call_exception_handler({"message": f"Exception in {handle!r}", "exception": error, "handle": handle})

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    # --- processes

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of `process`."""
        return self.create_task(coroutine, context=process.context.copy())

    def kill(self, process: Process) -> None:
        """Kill the process as `kill -9` does: none of its code runs any more. The process's objects are kept until the
        run is over.
        """
        if not process.is_alive:
            return
        process.is_alive = False
        process.remains.extend(process.ready)
        process.ready.clear()
        for task in asyncio.all_tasks(self):
            if isinstance(task, Task) and task.process is process:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                process.remains.append(task)
        self._remains.append(process)

    def pause(self, process: Process) -> None:
        """Pause the process as SIGSTOP does: its callbacks wait until `resume`."""
        process.is_paused = True

    def resume(self, process: Process) -> None:
        """Let a paused process continue, as SIGCONT does."""
        process.is_paused = False
        if process.ready and process.is_alive and not process.has_turn:
            self._schedule_turn(process)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None, **options: Any
    ) -> asyncio.Task[Any]:
        task = Task(coroutine, loop=loop, context=context, **options)
        task.number = next(self._numbers)
        task.process = self.current if context is None else context.get(PROCESS, self.director)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        future = _Future(loop=self)
        future.number = next(self._numbers)
        return future

    # --- worker threads

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the entire job in a later iteration of the process, where a real loop would use a thread of the executor.
        Jobs of an executor with one thread run in order, jobs of an executor with more threads in any order.
        """
        process = self.current
        done: asyncio.Future[T] = self.create_future()
        threads = self._threads.get((process, id(executor)))
        if threads is None:
            number = SHARED_THREADS if executor is None else int(getattr(executor, "_max_workers", 1))
            threads = self._threads[process, id(executor)] = [0.0] * number
            self._remains.append(executor)  # keeps the executor alive, so that no other executor gets its id
        free = threads.index(min(threads))
        now = self.now + self._ahead
        threads[free] = max(now, threads[free]) + process.random.expovariate(1 / JOB_SECONDS)
        self.call_in(process, threads[free], self._run_job, done, func, args)
        return done

    def _run_job(self, done: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        """Run the job at once. The virtual time that it takes delays its result, but not other callbacks of the
        process.
        """
        began, process = self._ahead, self.current
        end: Callable[..., None] = _set_result
        outcome: object
        try:
            outcome = func(*args)
        except ProcessIsDead:
            raise
        except BaseException as error:
            outcome = RuntimeError(f"a job raised {error!r}") if isinstance(error, StopIteration) else error
            end = _set_exception
        taken, self._ahead = self._ahead - began, began
        self.call_in(process, self.now + began + taken, end, done, outcome)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass

    # --- network

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect like asyncio's method, but over the simulated network, and without TLS. Raises OSError."""
        assert self.connector is not None, "the loop has no network"
        return await self.connector(protocol_factory, host, port, **options)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Return the address of a simulated host by its name. Raises socket.gaierror."""
        import socket

        address = None if self.resolver is None else self.resolver(host)
        if address is None:
            raise socket.gaierror(socket.EAI_NONAME, f"no host of this world is called {host}")
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, int(port or 0)))]

    # --- errors and the end

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._is_over or isinstance(context.get("exception"), ProcessIsDead):
            return
        super().call_exception_handler(context)

    def end(self) -> None:
        """Release all objects of the processes. The `finally` blocks of their coroutines run, but have no effect any
        more. Call `collect_remains` when no reference to the world is left.
        """
        self._is_over = True
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        with complaints_ignored():
            for task in sorted(asyncio.all_tasks(self), key=hash):
                with suppress(BaseException):  # raised by a `finally` block that awaits, or whose objects are released
                    task.get_coro().close()
            self._heap.clear()
            for process in [self.director, *(each for each in self._remains if isinstance(each, Process))]:
                process.ready.clear()
                process.remains.clear()
            self._remains.clear()
            self._threads.clear()
        self.close()


def collect_remains() -> None:
    """Collect the remaining objects of worlds that have ended, because a later collection would log errors that their
    loop is closed.
    """
    with complaints_ignored():
        gc.collect()


@contextmanager
def complaints_ignored() -> Iterator[None]:
    """Suppress the messages that Python prints when a coroutine awaits something while it is closed or collected."""
    before, sys.unraisablehook = sys.unraisablehook, _ignore
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = before


def _set_result(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _set_exception(done: asyncio.Future[Any], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


def _ignore(unraisable: object) -> None:
    """Suppress the message about a coroutine that awaits something in its `finally` block while it is collected."""
