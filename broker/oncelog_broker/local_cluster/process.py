"""A background process that this program has started, perhaps in an earlier run, identified by its pid and start time.

A pid alone may identify another process after the started process has ended, so a signal is sent only if pid and start
time match.
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
"""True on Linux, where /proc is read; on other systems `ps` is used instead."""
POLL_SECONDS: Final = 0.05
"""Seconds between two checks whether a process has ended, on systems without pidfd."""
STOP_SECONDS: Final = 10.0
"""Seconds to wait after SIGTERM before SIGKILL is sent."""

_DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Python program that requests to be killed together with its parent and then replaces itself by the command;
PR_SET_PDEATHSIG survives execve. A Popen argument `preexec_fn` is not used instead, because Python runs it between fork
and exec, where it could hang if other threads run.
"""

_WHEN_NOTED: Final = ("/bin/sh", "-c", 'read -r noted && exec "$@" </dev/null', "sh")
"""Shell command that waits for a line on standard input and then replaces itself by the command; the shell command
exits if standard input ends before a line has arrived.
"""


_children: Final[dict[int, subprocess.Popen[bytes]]] = {}
"""Maps the pid to the child process, for each child process whose end was not waited for yet. The Popen objects are
kept, because Popen warns if a running child is garbage-collected, and these children may outlive this process.
"""


@atexit.register
def _let_children_live() -> None:
    """Give all running children a return code, because Popen warns at exit about a child without one."""
    for child in _children.values():
        child.returncode = 0


class LocalProcess:
    """A started background process. `start` starts a new process; `LocalProcess(pid, started)` refers to a process of
    an earlier run."""

    def __init__(self, pid: int, started: str) -> None:
        self.pid = pid
        self.started = started
        """The start time of the process in a system-specific form, which can only be compared for equality. After a
        reboot of the machine, no process has the same value.
        """

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
        """Start the command in a new session, so that Ctrl-C in a terminal does not end the command; its output is
        appended to `log`.

        `dies_with_us`: the process is killed when the *thread* that calls `start` ends (Linux only). The function
        `note` is called before the command runs. If this program ends before `note` has returned, or if `note` fails,
        the command never runs; so `note` has recorded every running process.
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
            with suppress(BrokenPipeError):  # the new process was killed before its start time could be read
                told.write(b"\n")
        return process

    @property
    def is_running(self) -> bool:
        """Whether the process is running. A zombie (an ended process whose parent has not waited for it) counts as not
        running.
        """
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
        """Kill the process (kill -9); returns after the process has ended."""
        self._send(signal.SIGKILL)
        self.wait(STOP_SECONDS)

    def pause(self) -> None:
        """Pause the process with SIGSTOP; returns when all threads are stopped."""
        self._send(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while self.is_running and not self.is_paused and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 10)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Send SIGTERM, also to a paused process, and SIGKILL after `seconds` if the process is still running. Returns
        whether SIGTERM sufficed."""
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
                    ends = select.poll()  # not select(), which refuses descriptors above 1023
                    ends.register(handle, select.POLLIN)
                    ends.poll(math.ceil(left * 1000))
        return not self.is_running

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to this process only."""
        with _handle(self.pid) as handle:  # a pidfd never refers to a later process with this pid
            if not self.is_running:
                return
            try:
                if handle is None:
                    os.kill(self.pid, number)
                else:
                    signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                pass  # the process has ended since the check


@contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    """Context manager that yields a pidfd of the process; None if there is no such process, or if the system has no
    pidfd (other than Linux)."""
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
    """Return the start time of the process with this pid; None if there is no such process, or if the process has
    ended.

    psutil's `create_time` is not used, because it changes with the wall clock; the start time in /proc is counted from
    the boot and does not change.
    """
    if HAS_PROC:
        fields = _stat(pid)
        if not fields or fields[0] in "ZX":
            return None
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {fields[19]}"
    shown = _ps(pid, "lstart")
    return None if shown is None or _state(pid) == "Z" else shown


def _state(pid: int) -> str:
    """Return the state of a process as a letter, among others T: paused; Z: ended but not waited for; X: does not
    exist.
    """
    if HAS_PROC:
        return (_stat(pid) or ["X"])[0]
    return (_ps(pid, "state") or "X")[0]


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third field, the state, on. The second field, the program's name,
    may contain any character.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _ps(pid: int, field: str) -> str | None:
    result = subprocess.run(["/bin/ps", "-o", f"{field}=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return result.stdout.strip() or None
