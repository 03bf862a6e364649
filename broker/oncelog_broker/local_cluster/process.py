"""A process that we started, perhaps in an earlier run, identified by its pid and start time.

A pid alone may name another process once ours has ended, so no signal is sent unless both match.
"""

from __future__ import annotations

import atexit
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from oncelog_broker.runtime.private_files import CHILD_UMASK, opened_privately

HAS_PROC: Final = Path("/proc/self/stat").exists()
"""True on Linux; elsewhere `ps` is used."""
POLL_SECONDS: Final = 0.05
"""Seconds between two checks for the end of a process, without pidfd support."""
STOP_SECONDS: Final = 10.0
"""Seconds between SIGTERM and SIGKILL."""

_DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Becomes the command, and is killed with its parent: PR_SET_PDEATHSIG survives execve. A `preexec_fn`, which Python
runs between fork and exec, may hang when other threads run."""

_WHEN_NOTED: Final = ("/bin/sh", "-c", 'read -r noted && exec "$@" </dev/null', "sh")
"""Becomes the command when it has read a line from standard input; exits if the input ends before."""


_children: Final[dict[int, subprocess.Popen[bytes]]] = {}
"""Children that have not been waited for: Popen warns about a child that is dropped while running, and ours may outlive
this process."""


@atexit.register
def _let_children_live() -> None:
    """Set their return code, so that Popen does not warn at exit."""
    for child in _children.values():
        child.returncode = 0


class LocalProcess:
    """A process. `start` creates it; `LocalProcess(pid, started)` is one of an earlier run."""

    def __init__(self, pid: int, started: str) -> None:
        self.pid = pid
        self.started = started
        """The start time in a form of this system, only for comparison. Differs after a reboot."""

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        dies_with_us: bool = False,
        note: Callable[[LocalProcess], None] = lambda _: None,
    ) -> LocalProcess:
        """Start the command in a new session, so that Ctrl-C in a terminal does not reach it; its output is appended to
        `log`.

        `dies_with_us`: it is killed when the *thread* that calls this ends (Linux only). `note` is called before the
        command runs; if this process ends meanwhile, or `note` fails, the command never runs: so every running process
        is listed.
        """
        if dies_with_us and HAS_PROC:
            command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
        with opened_privately(log, "ab") as output:
            child = subprocess.Popen(
                [*_WHEN_NOTED, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=None if environment is None else dict(environment),
                start_new_session=True,
                umask=CHILD_UMASK,
                bufsize=0,
            )
        _children[child.pid] = child
        assert child.stdin is not None
        with child.stdin as told:
            process = cls(child.pid, started_at(child.pid) or "ended at once")
            note(process)
            with suppress(BrokenPipeError):  # the process was killed meanwhile
                told.write(b"\n")
        return process

    @property
    def is_running(self) -> bool:
        """False for an ended process that was not waited for."""
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        return started_at(self.pid) == self.started

    @property
    def is_paused(self) -> bool:
        return self.is_running and _state(self.pid) == "T"

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9; returns when the process is gone."""
        self._send(signal.SIGKILL)
        self.wait(STOP_SECONDS)

    def pause(self) -> None:
        """SIGSTOP; returns when all threads are stopped."""
        self._send(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while self.is_running and not self.is_paused and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 10)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """SIGTERM, also to a paused process, then SIGKILL after `seconds`. Returns whether SIGTERM sufficed."""
        self.terminate()
        self.resume()
        if self.wait(seconds):
            return True
        self.kill()
        return False

    def wait(self, seconds: float) -> bool:
        """Return whether the process ends within `seconds`."""
        deadline = time.monotonic() + seconds
        with _handle(self.pid) as handle:
            while self.is_running and (left := deadline - time.monotonic()) > 0:
                if handle is None:
                    time.sleep(min(left, POLL_SECONDS))
                else:
                    ends = select.poll()  # select() takes no descriptor above 1023
                    ends.register(handle, select.POLLIN)
                    ends.poll(math.ceil(left * 1000))
        return not self.is_running

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to this process only."""
        with _handle(self.pid) as handle:  # the pidfd refers to the present process of this pid, and to no later one
            if not self.is_running:
                return
            try:
                if handle is None:
                    os.kill(self.pid, number)
                else:
                    signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                pass  # the process has just ended


@contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    """A pidfd; None if there is no such process, or the system has no pidfd (other than Linux)."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def started_at(pid: int) -> str | None:
    """The start time of the process with this pid; None if there is none, or it has ended.

    psutil's `create_time` is not used, as it moves with the wall clock: Linux counts from the boot.
    """
    if HAS_PROC:
        fields = _stat(pid)
        if not fields or fields[0] in "ZX":
            return None
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {fields[19]}"
    shown = _ps(pid, "lstart")
    return None if shown is None or _state(pid) == "Z" else shown


def _state(pid: int) -> str:
    """T: paused; Z: ended, but not waited for."""
    if HAS_PROC:
        return (_stat(pid) or ["X"])[0]
    return (_ps(pid, "state") or "X")[0]


def _stat(pid: int) -> list[str]:
    """The fields of proc(5) from the third, the state, on; the second may contain any character."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _ps(pid: int, field: str) -> str | None:
    result = subprocess.run(["/bin/ps", "-o", f"{field}=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return result.stdout.strip() or None
