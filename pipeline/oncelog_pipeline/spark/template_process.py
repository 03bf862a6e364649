"""The template process imports PySpark and oncelog once, and forks the Python processes that Spark starts.

The launcher (`pipeline/scripts/oncelog_spark_python.py`, installed as `oncelog-spark-python`) starts one template
process for each JVM. The launcher sends the arguments (`-m MODULE ...`), the environment and the standard streams for
the forked process.

Invariants:

- The template process forks only for its own user (SO_PEERCRED), and has no Python threads.
- A forked process has the working directory, environment, streams, arguments and module path that plain Python would
  have; only archives without modules of their own are missing on the path (`is_left_out`). If that is impossible,
  because the environment asks for other interpreter settings (`INTERPRETER`), the template process refuses before it
  forks, and the launcher becomes plain Python.
- The template process tells the launcher how the forked process has ended. If the launcher ends first, the template
  process terminates the forked process. The launcher also gets a pidfd of the forked process, so that the launcher can
  terminate that process if the template process is killed.
- If a launcher's request fails (no process or no descriptor is left), the template process refuses only that launcher
  and continues, because all other launchers depend on it.
- The template process ends with the JVM.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from typing import Final, NamedTuple, NoReturn

MODULES: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark_oncelog",
    "oncelog.admin",
    "oncelog_pipeline.arrow.splitting",
    "oncelog_pipeline.spark.warm_up",
    "pyarrow.compute",
)
"""The modules that Spark's Python processes import, and that the template process imports in advance. Modules that the
installed PySpark does not have are skipped.
"""
MAX_MESSAGE_BYTES: Final = 128 * 1024
STARTED: Final = b"started"
REFUSED: Final = b"refused"
MAX_CONNECTIONS: Final = 200
"""The maximum number of simultaneous launchers; a further launcher becomes plain Python. Each launcher takes two file
descriptors of this process.
"""
INTERPRETER: Final = ("PYTHON", "LD_", "LANG", "LC_", "GLIBC_", "MALLOC_", "OMP_", "OPENBLAS_", "MKL_", "ARROW_")
"""Prefixes of the environment variables that an interpreter or a library reads once, when it starts."""
OF_A_PROCESS: Final = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHON_")
"""Prefixes of environment variables that take effect in a forked process, too: PySpark's own variables, and those that
the forked process applies itself.
"""
JAR_OF_SPARK: Final = "spark-core_*.jar"
DEFAULTS: Final = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""Environment variables that the launcher sets if they are not set: Spark sets them for the Python of its tasks, but
not for the Python that plans batches.
"""


class Wanted(NamedTuple):
    """The process to fork: `python ARGUMENTS` in this directory, with these file descriptors as streams 0, 1, 2."""

    directory: str
    arguments: list[str]
    environment: dict[str, str]
    streams: list[int]


class TemplateProcess:
    """Forks for the launchers that connect to `listener`, as long as the process with the id `jvm` lives."""

    def __init__(self, listener: socket.socket, jvm: int) -> None:
        self._listener = listener
        self._jvm = os.pidfd_open(jvm)
        self._settings = interpreter_settings(os.environ)
        self._controls: dict[int, socket.socket] = {}
        """File descriptor -> connection of a launcher whose process is running or not yet forked."""
        self._processes: dict[int, int] = {}
        """File descriptor of a launcher's connection -> process id of the forked process."""
        self._ends: dict[int, int] = {}
        """pidfd of a forked process -> file descriptor of the connection to its launcher."""
        self._poll = select.poll()

    def serve(self) -> Wanted | None:
        """Serve launchers until the JVM ends. Returns the request to run in each forked process, and None in this
        process when the JVM ends.
        """
        self._poll.register(self._jvm, select.POLLIN)
        self._poll.register(self._listener, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._jvm:
                    return None
                if descriptor == self._listener.fileno():
                    self._accept()
                elif descriptor in self._ends:
                    self._ended(descriptor)
                elif descriptor in self._processes:
                    self._left_alone(descriptor)
                elif descriptor in self._controls and (wanted := self._asked(descriptor)) is not None:
                    return wanted

    def _accept(self) -> None:
        try:
            control, _ = self._listener.accept()
        except OSError:  # the launcher has ended, or no descriptor is left
            return
        credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if int.from_bytes(credentials[4:8], sys.byteorder) != os.getuid() or len(self._controls) >= MAX_CONNECTIONS:
            control.close()
            return
        control.setblocking(False)
        self._controls[control.fileno()] = control
        self._poll.register(control, select.POLLIN)

    def _asked(self, descriptor: int) -> Wanted | None:
        """Fork the process that a launcher has requested. Returns the request in the forked process, and None in this
        process.
        """
        wanted = self._received(descriptor)
        if wanted is None:
            self._close(descriptor)
            return None
        pid = fork()
        if pid == 0:
            self._leave()
            return wanted
        for stream in wanted.streams:
            os.close(stream)
        if pid is None:
            with suppress(OSError):
                self._controls[descriptor].send(REFUSED)
            self._close(descriptor)
            return None
        self._processes[descriptor] = pid
        ends = os.pidfd_open(pid)
        self._ends[ends] = descriptor
        self._poll.register(ends, select.POLLIN)
        with suppress(OSError):
            socket.send_fds(self._controls[descriptor], [STARTED], [ends])
        return None

    def _received(self, descriptor: int) -> Wanted | None:
        """Receive the request of a launcher. Returns None if no process is to be forked: the launcher was refused, or
        has ended.
        """
        control, streams = self._controls[descriptor], list[int]()
        with suppress(OSError):
            message, streams, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 3)
            wanted = read(message, streams)
            if wanted is not None and interpreter_settings(wanted.environment) == self._settings:
                return wanted
            control.send(REFUSED)
        for stream in streams:
            os.close(stream)
        return None

    def _leave(self) -> None:
        """Close all descriptors of the template process. Call this method in the forked process."""
        self._listener.close()
        for control in self._controls.values():
            control.close()
        for descriptor in (self._jvm, *self._ends):
            os.close(descriptor)

    def _ended(self, ends: int) -> None:
        descriptor = self._ends[ends]
        pid, status = os.waitpid(self._processes[descriptor], os.WNOHANG)
        if not pid:
            return  # ignore a stale event: its descriptor was closed since then, and the number was reused
        del self._ends[ends], self._processes[descriptor]
        self._poll.unregister(ends)
        os.close(ends)
        code = os.waitstatus_to_exitcode(status)
        if descriptor in self._controls:
            with suppress(OSError):
                self._controls[descriptor].send(b"%d" % (code if code >= 0 else 128 - code))
            self._close(descriptor)

    def _left_alone(self, descriptor: int) -> None:
        """Terminate a forked process whose launcher has ended."""
        with suppress(ProcessLookupError):
            os.kill(self._processes[descriptor], signal.SIGTERM)
        self._poll.unregister(descriptor)
        # The descriptor stays open until the process has ended, so that no other connection gets its number.

    def _close(self, descriptor: int) -> None:
        with suppress(KeyError):
            self._poll.unregister(descriptor)
        self._controls.pop(descriptor).close()


def fork() -> int | None:
    """Fork like `os.fork`; return None if memory or the limit of processes is exhausted."""
    with suppress(OSError):
        return os.fork()
    return None


def interpreter_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an interpreter reads when it starts, and whose values a forked process therefore
    inherits.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name.startswith(INTERPRETER) and not name.startswith(OF_A_PROCESS)
    }
    return DEFAULTS | kept


def read(message: bytes, streams: list[int]) -> Wanted | None:
    """Parse the message of a launcher, which contains the directory, the number of arguments, the arguments, and the
    environment. Returns None if the message is malformed.
    """
    try:
        directory, count, *rest = map(os.fsdecode, message.split(b"\0"))
        arguments, variables = rest[: int(count)], rest[int(count) :]
        environment = dict(each.split("=", 1) for each in variables)
    except ValueError:
        return None
    is_whole = len(streams) == 3 and len(arguments) >= 2
    return Wanted(directory, arguments, environment, streams) if is_whole else None


def become(wanted: Wanted) -> NoReturn:
    """Run `python -m MODULE` in this process, then end the process."""
    os._exit(exit_code(lambda: run_module(wanted)))


def exit_code(run: Callable[[], object]) -> int:
    """Call `run` and Python's exit handlers, and return the exit code, 0 to 255.

    The interpreter is not finalised. Finalising would write to all imported objects, and so copy the memory that this
    process shares with the template process, which takes 40 ms of CPU.
    """
    code: object = None
    try:
        run()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are not daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    return (code or 0) & 0xFF


def run_module(wanted: Wanted) -> None:
    """Set up streams, directory, environment and module path, and run the module. Raises what the module raises."""
    for number, stream in enumerate(wanted.streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(wanted.directory)
    os.environ.clear()
    os.environ.update(wanted.environment)
    time.tzset()  # without this call the TZ of the template process would remain in effect
    draw_anew()
    found = [wanted.directory, *wanted.environment.get("PYTHONPATH", "").split(os.pathsep)]
    sys.path[:0] = [each for each in found if each and each not in sys.path and not is_left_out(each)]
    sys.argv = wanted.arguments[1:]
    warnings.filterwarnings("ignore", message=".* found in sys.modules", category=RuntimeWarning)
    runpy.run_module(wanted.arguments[1], run_name="__main__", alter_sys=True)


def draw_anew() -> None:
    """Reseed numpy's global generator, if numpy was imported, because otherwise all forked processes would draw the
    same numbers. Python itself reseeds `random` after a fork.
    """
    if (of_numpy := sys.modules.get("numpy.random")) is not None:
        of_numpy.seed()


def is_left_out(path: str) -> bool:
    """Return whether the forked processes need not search this entry of PYTHONPATH for modules: an archive of PySpark
    whose modules are also installed, and were imported from the installation; or Spark's own jar.
    """
    import pyspark

    is_installed_zip = os.path.dirname(path) == os.path.join(os.path.dirname(pyspark.__file__), "python", "lib")
    return is_installed_zip or is_jar_of_spark(path)


def is_jar_of_spark(path: str) -> bool:
    """Return whether this path is the jar that Spark itself puts on PYTHONPATH. It contains no Python modules."""
    return fnmatch(os.path.basename(path), JAR_OF_SPARK)


def leave_out_jar() -> None:
    """Remove Spark's own jar from the module path of this process, and so of the forked processes.

    PySpark's workers drop Python's caches of the module path when they start. Python then reads the list of the jar's
    6,000 files again, which takes most of the CPU that a forked process uses before its own work.
    """
    for path in filter(is_jar_of_spark, list(sys.path)):
        sys.path.remove(path)
        sys.path_importer_cache.pop(path, None)


def import_all() -> None:
    for module in MODULES:
        with suppress(ModuleNotFoundError):
            importlib.import_module(module)
    from oncelog_pipeline.spark.warm_up import warm_up

    warm_up()
    gc.collect()
    gc.freeze()  # without this call the first collection in each forked process would copy all imported objects


def main() -> None:
    listener, jvm = int(sys.argv[1]), int(sys.argv[2])
    del sys.path[0]  # remove the working directory: each forked process has its own
    leave_out_jar()
    import_all()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wanted = TemplateProcess(socket.socket(fileno=listener), jvm).serve()
    if wanted is not None:
        become(wanted)


if __name__ == "__main__":
    main()
