"""Forks `oncelog`, and programs of the tests, from a process that has imported everything, which saves half a second of
CPU for each start.

The tests start some thousand processes, and most of the cost of a start is importing modules. The forked program is the
same and has the same arguments; only the imports are already done. Some programs must differ in something that Python
or the C library reads at its start (a changed PYTHONPATH with other imports, another release, a time zone); they are
started as users start them. A program whose performance is measured may also be forked, because forking changes neither
its clients' waits nor its additional memory. All forked programs share the hash seed, and therefore the iteration order
of a set of names. In a soak, where `sitecustomize` adds faults, each program has its own seed.

There are two forking processes, each started at first use: one without fail points, as for users, and one for programs
with ONCELOG_FAIL_POINTS.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import importlib
import json
import math
import os
import resource
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, NamedTuple, NoReturn

COMMAND: Final = str(Path(sys.executable).parent / "oncelog")
IS_POSSIBLE: Final = sys.platform == "linux"
"""On other systems it is not reliable to fork a process after its imports."""
MODULES: Final = (
    "uvloop", "kazoo.client", "oncelog.cli.main", "oncelog.admin",
    "oncelog.cli.group", "oncelog_broker.command", "oncelog_broker.serve", "oncelog_broker.broker",
    "oncelog_broker.config.load", "oncelog_broker.metadata.stores.embedded",
    "oncelog_broker.metadata.stores.zookeeper.zookeeper_store",
)  # fmt: skip
MESSAGE_BYTES: Final = 128 * 1024
FAIL_POINTS: Final = "ONCELOG_FAIL_POINTS"
STRICT: Final = {"PYTHONWARNINGS": "error"}
READ_AT_START: Final = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "TZ")
"""Prefixes of variables that have no effect on a running process."""
CUSTOMIZATION: Final = ("sitecustomize.py", "usercustomize.py")
"""Modules that Python runs before anything else, if they exist."""
TIMEOUT_SECONDS: Final = 120.0


CLIENT: Final = ("oncelog.producer", "oncelog.consumer", "oncelog.admin", "oncelog.consume_process_produce")


class Program(NamedTuple):
    """The program to run, as on Python's command line; an empty `target` means `oncelog`."""

    target: tuple[str, ...] = ()
    """A path, or -m and the name of a module."""
    imports: tuple[str, ...] = MODULES
    """The modules to import before the program starts."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, *self.target] if self.target else [COMMAND]


ONCELOG: Final = Program()


class WarmCommands:
    """Requests forked programs from the forking processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._controls: dict[bool, socket.socket] = {}
        self._read_at_start = read_at_start(os.environ)
        """The environment variables as they were before any test changed them, because the first test that starts a
        program may have changed them.
        """
        self._asked = 0

    def can_start(self, environment: Mapping[str, str]) -> bool:
        """Return whether a program with this environment can be forked."""
        if not IS_POSSIBLE or is_customized(environment):
            return False
        return read_at_start(environment) == self._read_at_start

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        open_files: int | None = None,
        *,
        program: Program = ONCELOG,
        directory: Path | None = None,
    ) -> WarmProcess:
        """Start a program with these arguments; `streams` are the descriptors of its standard input, output and
        error.
        """
        status, end = os.pipe()
        what: dict[str, object] = {"arguments": list(arguments), "environment": dict(environment)}
        what |= {"cwd": str(directory or os.getcwd()), "files": open_files, **program._asdict()}
        try:
            with self._lock:
                control = self._control(environment)
                self._asked += 1
                socket.send_fds(control, [json.dumps(what | {"number": self._asked}).encode()], [*streams, end])
                pid = _answer(control, self._asked)
        finally:
            os.close(end)
        return WarmProcess(pid, status)

    def _control(self, environment: Mapping[str, str]) -> socket.socket:
        has_fail_points = bool(environment.get(FAIL_POINTS))
        if has_fail_points not in self._controls:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno()), *(["armed"] if has_fail_points else [])],
                    stdin=subprocess.DEVNULL,
                    env={name: value for name, value in environment.items() if name not in (FAIL_POINTS, *STRICT)},
                    pass_fds=[theirs.fileno()],
                )
            atexit.register(process.wait)
            # closing the connection ends the forking process and all processes that it has forked
            atexit.register(ours.close)
            self._controls[has_fail_points] = ours
        return self._controls[has_fail_points]


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a program reads when it starts, except those that are set for a process when it is
    forked.
    """
    given = {name: value for name, value in environment.items() if name.startswith(READ_AT_START) and value}
    return {name: value for name, value in given.items() if STRICT.get(name) != value}


def is_customized(environment: Mapping[str, str]) -> bool:
    places = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    return any(Path(place, name).exists() for place in places for name in CUSTOMIZATION)


def _answer(control: socket.socket, asked: int) -> int:
    """Return the process id of the requested program. An interrupted test leaves an unread answer, which names a
    process that nobody uses; the process is killed, and the answer is not assigned to another request.
    """
    while True:
        number, pid = map(int, control.recv(64).split())
        if number == asked:
            return pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


warm: Final = WarmCommands()


def run_oncelog(
    *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command until it ends. `environment` is added to the environment of this process."""
    whole = {**os.environ, **STRICT, **(environment or {})}
    if not warm.can_start(whole):
        return subprocess.run(
            [COMMAND, *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_SECONDS, env=whole, check=False
        )
    with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
        given.write(stdin)
        given.seek(0)
        process = warm.start(arguments, whole, (given.fileno(), output.fileno(), errors.fileno()))
        try:
            code = process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(["oncelog", *arguments], code, output.read(), errors.read())


def run_oncelog_text(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command until it ends, with text as input and output. No command may ever print a traceback."""
    done = run_oncelog(*arguments, stdin=stdin.encode())
    output, errors = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in errors, errors
    return subprocess.CompletedProcess(done.args, done.returncode, output, errors)


class Child:
    """A running program of a test, which is forked if possible."""

    def __init__(
        self,
        program: Program,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        mixes: bool = False,
        log: IO[Any] | None = None,
    ) -> None:
        """`environment` is added to the environment of this process. The program's standard input and output are pipes
        to this process, and its standard error is that of this process. With `mixes` the program's standard error goes
        into its output; with `log` all output goes to that file.
        """
        whole = {**os.environ, **(environment or {})}
        if log is None:
            its_input, stdin = os.pipe()
            stdout, its_output = os.pipe()
        else:
            its_input, its_output = os.open(os.devnull, os.O_RDONLY), os.dup(log.fileno())
            stdin, stdout = os.open(os.devnull, os.O_WRONLY), os.open(os.devnull, os.O_RDONLY)
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout)
        streams = (its_input, its_output, its_output if mixes or log is not None else 2)
        try:
            self.process = self._started(program, arguments, whole, streams, directory)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(its_input)
            os.close(its_output)

    @staticmethod
    def _started(
        program: Program,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        directory: Path | None,
    ) -> WarmProcess | subprocess.Popen[bytes]:
        if warm.can_start(environment):
            return warm.start(arguments, environment, streams, program=program, directory=directory)
        stdin, stdout, stderr = streams
        return subprocess.Popen(
            [*program.command, *arguments], stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd=directory
        )

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the program's output, without blocking the event loop."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self.stdout)
        try:
            async for line in reader:
                yield line
        finally:
            transport.close()

    async def ended(self) -> int:
        """Wait for the exit code, without blocking the event loop."""
        if isinstance(self.process, WarmProcess):
            return await self.process.ended()
        return await asyncio.to_thread(self.process.wait)

    def close(self) -> None:
        """Close the ends of the pipes that belong to this process."""
        for stream in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):
                stream.close()


class WarmProcess:
    """A forked process, with those methods of subprocess.Popen that tests use."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self._status = status
        self._guard = threading.Lock()
        """Several threads may find at the same time that the process has ended."""
        self._waiting: asyncio.Future[int] | None = None
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._ended_within(timeout)) is None:
            raise subprocess.TimeoutExpired("oncelog", timeout or 0)
        return code

    async def ended(self) -> int:
        """Wait for the exit code without blocking the event loop."""
        if self.poll() is not None:
            return self.wait(0)
        if self._waiting is None or self._waiting.get_loop().is_closed():
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            loop.add_reader(self._status, self.poll)
        return await asyncio.shield(self._waiting)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # the process has ended before the signal was sent
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is not None:
            return self.returncode
        ends = select.poll()  # select() cannot handle descriptors above 1023
        ends.register(self._status, select.POLLIN)
        if ends.poll(None if seconds is None else math.ceil(seconds * 1000)):
            with self._guard:
                if self.returncode is None:
                    self._has_ended()
        return self.returncode

    def _has_ended(self) -> None:
        told = os.read(self._status, 16)
        waiting = self._waiting
        if waiting is not None and waiting.get_loop().is_closed():
            waiting = None  # the test that waited for the exit code was cancelled
        if waiting is not None:
            waiting.get_loop().remove_reader(self._status)
        os.close(self._status)
        # Nothing was read, so the forking process was killed, and all its children with it.
        self.returncode = int(told or -signal.SIGKILL)
        if waiting is not None and not waiting.done():
            waiting.set_result(self.returncode)


# --- The process that forks


def serve(control: socket.socket, *, is_armed: bool) -> None:
    """Fork the requested programs, and report how each has ended, until the requesting process closes the
    connection.
    """
    if is_armed:
        importlib.import_module("oncelog.fail_points.point").arm()
    import_all(MODULES)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ends: dict[int, int] = {}
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in selector.select()}
        if woken in ready:
            woken.recv(4096)
            tell_ends(ends)
        if control not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 4)
        if not message:
            for pid in ends:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        what = json.loads(message)
        import_all(what["imports"])
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            selector.close()
            for each in (control, woken, wakes):
                each.close()
            for end in ends.values():
                os.close(end)
            become(what, *descriptors)
        *streams, ends[pid] = descriptors
        for stream in streams:
            os.close(stream)
        control.send(f"{what['number']} {pid}".encode())


def import_all(modules: Sequence[str]) -> None:
    """Import the modules; oncelog's own modules must import without a warning, foreign libraries may warn."""
    if new := [module for module in modules if module not in sys.modules]:
        with warnings.catch_warnings():
            for module in new:
                warnings.simplefilter("error" if module in MODULES else "ignore")
                importlib.import_module(module)
        gc.collect()
        gc.freeze()  # without this call the first collection in each child would copy all objects


def tell_ends(ends: dict[int, int]) -> None:
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with os.fdopen(ends.pop(pid), "w", closefd=True) as end:
            try:
                end.write(str(os.waitstatus_to_exitcode(status)))
                end.flush()
            except BrokenPipeError:
                pass  # the test that started the forked process has ended


def become(what: dict[str, Any], *descriptors: int) -> NoReturn:
    *streams, end = descriptors
    os.close(end)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(what["cwd"])
    os.environ.clear()
    os.environ.update(what["environment"])
    if what["files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (what["files"], what["files"]))
    if STRICT.items() <= os.environ.items():
        warnings.simplefilter("error")
    if specification := os.environ.get(FAIL_POINTS):
        importlib.import_module("oncelog.fail_points.point").obey(specification)
    match what["target"]:
        case []:
            sys.argv = [COMMAND, *what["arguments"]]
            sys.path[0] = str(Path(COMMAND).parent)  # as for any script, without the directory of the tests' modules
            main = importlib.import_module("oncelog.cli.main").main
            sys.exit(main())
        case ["-m", module]:
            sys.argv = [module, *what["arguments"]]
            sys.path[0] = os.getcwd()
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [path]:
            sys.argv = [path, *what["arguments"]]
            sys.path[0] = str(Path(path).parent)
            runpy.run_path(path, run_name="__main__")
    sys.exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), is_armed="armed" in sys.argv)
