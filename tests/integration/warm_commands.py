"""`oncelog` forked from a process that has imported everything: half a second of CPU less for each start.

The tests start some thousand of them, and most of what a start costs is Python that reads its modules. What is
forked is the same command with the same arguments: only the imports are there already. One whose imports are to
differ (fail points, a changed PYTHONPATH, another release) is started as users start it. One that is measured may be
forked: what its clients wait, and how much more memory than before it takes, is the same.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import math
import os
import resource
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, NoReturn

COMMAND: Final = str(Path(sys.executable).parent / "oncelog")
IS_POSSIBLE: Final = sys.platform == "linux"
"""Elsewhere a process that forks after its imports is not what one may rely on."""
MODULES: Final = (
    "uvloop", "kazoo.client", "oncelog.cli.main", "oncelog.admin", "oncelog_broker.command", "oncelog_broker.broker",
    "oncelog_broker.config.load", "oncelog_broker.metadata.embedded", "oncelog_broker.metadata.zookeeper",
)  # fmt: skip
MESSAGE_BYTES: Final = 128 * 1024
IMPORTS_DIFFER_BY: Final = ("PYTHONPATH", "ONCELOG_FAIL_POINTS")
TIMEOUT_SECONDS: Final = 120.0


class WarmCommands:
    """Asks the process that forks, which it starts when it is first asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._imported_with: dict[str, str | None] = {}
        self._asked = 0

    def can_start(self, environment: Mapping[str, str]) -> bool:
        """Whether a command with this environment would import what the others have."""
        asked = {name: environment.get(name) or None for name in IMPORTS_DIFFER_BY}
        return IS_POSSIBLE and asked == (self._imported_with or dict.fromkeys(asked))

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        open_files: int | None = None,
    ) -> WarmProcess:
        """`oncelog` with these arguments; `streams`: descriptors of its standard input, output and error."""
        status, end = os.pipe()
        what: dict[str, object] = {"arguments": list(arguments), "environment": dict(environment)}
        what |= {"cwd": os.getcwd(), "files": open_files}
        try:
            with self._lock:
                control = self._started(environment)
                self._asked += 1
                socket.send_fds(control, [json.dumps(what | {"number": self._asked}).encode()], [*streams, end])
                pid = _answer(control, self._asked)
        finally:
            os.close(end)
        return WarmProcess(pid, status)

    def _started(self, environment: Mapping[str, str]) -> socket.socket:
        if self._control is None:
            self._imported_with = {name: environment.get(name) or None for name in IMPORTS_DIFFER_BY}
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    env={**environment, "PYTHONWARNINGS": "error"},
                    pass_fds=[theirs.fileno()],
                )
            atexit.register(process.wait)
            atexit.register(self._control.close)  # which ends it, with all that it has forked
        return self._control


def _answer(control: socket.socket, asked: int) -> int:
    """The process that was asked for. A test that is cut off leaves an answer behind: nobody else's process it is."""
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
    """Run a command to its end. `environment`: besides ours."""
    whole = {**os.environ, "PYTHONWARNINGS": "error", **(environment or {})}
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
    """The same in text. No command may ever print a traceback."""
    done = run_oncelog(*arguments, stdin=stdin.encode())
    output, errors = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in errors, errors
    return subprocess.CompletedProcess(done.args, done.returncode, output, errors)


class WarmProcess:
    """What of subprocess.Popen a test asks."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self._status = status
        self._returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._ended_within(timeout)) is None:
            raise subprocess.TimeoutExpired("oncelog", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, seconds: float | None) -> int | None:
        if self._returncode is not None:
            return self._returncode
        ends = select.poll()  # select() takes no descriptor above 1023
        ends.register(self._status, select.POLLIN)
        if ends.poll(None if seconds is None else math.ceil(seconds * 1000)):
            told = os.read(self._status, 16)
            os.close(self._status)
            self._returncode = int(
                told or -signal.SIGKILL
            )  # nothing: the process that forks was killed, and all with it
        return self._returncode


# --- The process that forks


def serve(control: socket.socket) -> None:
    """Fork what is asked for, and tell how each ended, until nobody can ask any more."""
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or the first collection of each broker would copy all of it
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
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            selector.close()
            for each in (control, woken, wakes):
                each.close()
            for end in ends.values():
                os.close(end)
            become_command(json.loads(message), *descriptors)
        *streams, ends[pid] = descriptors
        for stream in streams:
            os.close(stream)
        control.send(f"{json.loads(message)['number']} {pid}".encode())


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
                pass  # its test has ended


def become_command(what: dict[str, object], *descriptors: int) -> NoReturn:
    *streams, end = descriptors
    os.close(end)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments, environment, files = what["arguments"], what["environment"], what["files"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    os.chdir(str(what["cwd"]))
    os.environ.clear()
    os.environ.update(environment)
    if isinstance(files, int):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    sys.argv = ["oncelog", *arguments]
    main = importlib.import_module("oncelog.cli.main").main
    sys.exit(main())


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
