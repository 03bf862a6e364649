"""The guard of a run: redirects each access to the real machine to the simulated one, or raises `RealAccess`.

The standard library, applications and oncelog's client get the virtual time and the entropy (from the seed) of the
process that is running. The broker must access time, entropy and other resources through its interfaces (`runtime/`). A
call that bypasses them raises RealAccess, even if its value would be right in the simulation, because in production it
would bypass them, too. Sockets, files, threads, processes and sleeping raise RealAccess for all code. The garbage
collector is off, because it would finalize objects of dead processes at arbitrary moments.

The guard cannot replace a function that a module has imported by name before a run (`from time import monotonic`), so
`tests/unit/simulation/test_guard.py` searches the code for such imports.

Only the thread of the run is guarded: other threads of the process (for example of an earlier test) keep the real
machine, and draw nothing from the seed.
"""

from __future__ import annotations

import builtins
import gc
import io
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Final

from oncelog_simulation.loop import SimulatedLoop

BROKER: Final = "oncelog_broker."
SEAMS: Final = ("oncelog_broker.runtime.",)
"""Prefixes of the names of broker modules that may access the machine."""
READERS_OF_SOURCE: Final = (
    "linecache",
    "tokenize",
    "importlib",
    "traceback",
    "inspect",
    "zipimport",
    "pkgutil",
    "warnings",
)
"""Modules that may read files, because they import modules or show source lines of errors."""
RANDOM_FUNCTIONS: Final = (
    *("random", "uniform", "triangular", "randint", "choice", "randrange", "sample", "shuffle", "choices"),
    *("normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "gauss", "betavariate"),
    *("paretovariate", "weibullvariate", "getrandbits", "randbytes"),
)
FILE_FUNCTIONS: Final = (
    *("open", "stat", "lstat", "listdir", "scandir", "mkdir", "makedirs", "rename", "replace", "unlink", "remove"),
    *("rmdir", "link", "symlink", "truncate", "statvfs", "chmod", "utime", "pipe", "dup"),
)
PROCESS_FUNCTIONS: Final = ("fork", "system", "kill", "execv", "posix_spawn", "popen")


class RealAccess(RuntimeError):
    """Raised when code in a simulated world would access the real machine."""


class _Patches:
    """Replaced attributes of modules, with their original values."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []
        self._thread = get_ident()

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Replace a function for this thread alone, or a class for all threads."""
        real = getattr(owner, name)
        self._before.append((owner, name, real))
        setattr(owner, name, value if isinstance(value, type) else _in_thread(self._thread, value, real))

    def undo(self) -> None:
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)
        self._before.clear()


@contextmanager
def guarded(loop: SimulatedLoop) -> Iterator[None]:
    """Prevent all code in the loop from using the real machine, until the end of the `with` statement."""
    patches, collects = _Patches(), gc.isenabled()
    gc.disable()
    try:
        _replace_time(patches, loop)
        _replace_entropy(patches, loop)
        _forbid(patches)
        patches.replace(socket, "gethostname", lambda: loop.current.name.partition(".")[0])
        yield
    finally:
        patches.undo()
        if collects:
            gc.enable()


def _in_thread(thread: int, simulated: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is `simulated` in one thread, and `real` in all others."""

    def chosen(*arguments: Any, **named: Any) -> Any:
        return (simulated if get_ident() == thread else real)(*arguments, **named)

    return chosen


def _replace_time(patches: _Patches, loop: SimulatedLoop) -> None:
    def wall() -> float:
        _check_broker("time.time")
        return loop.current.clock.wall_ms_at(loop.here) / 1000

    def wall_ns() -> int:
        _check_broker("time.time_ns")
        return loop.current.clock.wall_ms_at(loop.here) * 1_000_000

    def monotonic() -> float:
        _check_broker("time.monotonic")
        return loop.time()

    def monotonic_ns() -> int:
        _check_broker("time.monotonic_ns")
        return int(loop.time() * 1e9)

    def processor(*_: int) -> float:
        _check_broker("time.thread_time")
        return loop.time()

    patches.replace(time, "time", wall)
    patches.replace(time, "time_ns", wall_ns)
    for name in ("monotonic", "perf_counter"):
        patches.replace(time, name, monotonic)
        patches.replace(time, f"{name}_ns", monotonic_ns)
    for name in ("thread_time", "process_time", "clock_gettime"):
        patches.replace(time, name, processor)
    patches.replace(time, "sleep", _refuse("time.sleep"))


def _replace_entropy(patches: _Patches, loop: SimulatedLoop) -> None:
    thread = get_ident()

    def urandom(count: int) -> bytes:
        _check_broker("os.urandom")
        return loop.current.random.randbytes(count)

    patches.replace(os, "urandom", urandom)
    patches.replace(random, "_urandom", urandom)
    for name in RANDOM_FUNCTIONS:
        patches.replace(random, name, _of_process(loop, name))

    class SeededRandom(random.Random):
        """A random generator. Without a given seed it is seeded from the entropy of the simulated process; in threads
        outside the run it seeds itself as usual.
        """

        def __init__(self, seed: Any = None) -> None:
            if seed is None and get_ident() == thread:
                seed = loop.current.random.getrandbits(64)
            super().__init__(seed)

    patches.replace(random, "Random", SeededRandom)


def _of_process(loop: SimulatedLoop, name: str) -> Callable[..., Any]:
    def draw(*arguments: Any, **named: Any) -> Any:
        return getattr(loop.current.random, name)(*arguments, **named)

    return draw


def _forbid(patches: _Patches) -> None:
    for owner, names in ((os, (*FILE_FUNCTIONS, *PROCESS_FUNCTIONS)), (io, ("open",)), (builtins, ("open",))):
        for name in names:
            patches.replace(owner, name, _refuse(f"{owner.__name__}.{name}", getattr(owner, name)))
    for name in ("getaddrinfo", "gethostbyname", "create_connection", "socketpair"):
        patches.replace(socket, name, _refuse(f"socket.{name}"))
    patches.replace(socket.socket, "__init__", _refuse("socket.socket"))
    patches.replace(threading.Thread, "start", _refuse("threading.Thread.start"))
    patches.replace(subprocess.Popen, "__init__", _refuse("subprocess.Popen"))


def _refuse(what: str, real: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a function that raises RealAccess, except that it calls `real` for modules that read source lines."""

    def refused(*arguments: Any, **named: Any) -> Any:
        caller = _module(3)
        if real is not None and caller.startswith(READERS_OF_SOURCE):
            return real(*arguments, **named)
        raise RealAccess(f"{caller} called {what}{arguments[:1] if real is not None else ''} in a simulated world")

    return refused


def _check_broker(what: str) -> None:
    """Raise RealAccess if the caller is a module of the broker, other than the interfaces of `runtime/`."""
    caller = _module(4)
    if caller.startswith(BROKER) and not caller.startswith(SEAMS):
        raise RealAccess(f"{caller} called {what}: the broker reaches it through oncelog_broker.runtime")


def _module(depth: int) -> str:
    """Return the module of the function that is `depth` calls above this one."""
    return str(sys._getframe(depth).f_globals.get("__name__", ""))
