"""A process of this machine that we started, perhaps in an earlier run: it is known by its pid and when it started.

A pid alone names another process as soon as ours has ended, so that no signal is sent before both agree.
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
"""Linux; elsewhere `ps` is asked."""
POLL_SECONDS: Final = 0.05
"""How often we look for the end of a process where the system cannot tell us (there is no pidfd)."""
STOP_SECONDS: Final = 10.0
"""After SIGTERM, before SIGKILL."""

_DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Becomes the command, and is killed with its parent: PR_SET_PDEATHSIG outlives execve. Not by a `preexec_fn`, which
Python runs between fork and exec: with other threads at work that may hang."""

_WHEN_NOTED: Final = ("/bin/sh", "-c", 'read -r noted && exec "$@" </dev/null', "sh")
"""Becomes the command when it is told a line, and ends where nobody is left who could tell it."""


_children: Final[dict[int, subprocess.Popen[bytes]]] = {}
"""Those not waited for yet: Popen complains of one that is forgotten while it runs, and ours may outlive us."""


@atexit.register
def _let_children_live() -> None:
    """Popen complains at the end of our process, too, unless it takes them for waited for."""
    for child in _children.values():
        child.returncode = 0


class LocalProcess:
    """`start` makes one; `LocalProcess(pid, started)` is one that another run has started."""

    def __init__(self, pid: int, started: str) -> None:
        self.pid = pid
        self.started = started
        """When it started, in the words of this system; only compared. Another one after a reboot."""

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
        """In a session of its own, so that no Ctrl-C of a terminal reaches it; its output is appended to `log`.

        `dies_with_us`: it is killed when the *thread* that calls this ends, however it does (on Linux alone).
        `note` hears of it before the command runs. Where we end meanwhile, however we do, or `note` fails, it never
        runs: so whatever runs is noted.
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
            with suppress(BrokenPipeError):  # somebody has killed it
                told.write(b"\n")
        return process

    @property
    def is_running(self) -> bool:
        """A process that has ended and was not waited for does not run."""
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
        """kill -9; returns when it is gone."""
        self._send(signal.SIGKILL)
        self.wait(STOP_SECONDS)

    def pause(self) -> None:
        """SIGSTOP; returns when all its threads stand still."""
        self._send(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while self.is_running and not self.is_paused and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 10)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """SIGTERM, also to one that is paused, and SIGKILL if it runs on for `seconds`; whether SIGTERM was enough."""
        self.terminate()
        self.resume()
        if self.wait(seconds):
            return True
        self.kill()
        return False

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within this time."""
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
        """To this process or to none."""
        with _handle(self.pid) as handle:  # names whatever has this pid now, and nothing else later
            if not self.is_running:
                return
            try:
                if handle is None:
                    os.kill(self.pid, number)
                else:
                    signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                pass  # it has just ended


@contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    """A pidfd; None where there is no such process, or no pidfd (other systems than Linux)."""
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
    """When the process with this pid started; None if there is none, or it has ended.

    Not psutil's `create_time`, which moves with the clock of the machine: Linux counts from the boot.
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
    """The fields of proc(5) from the third on, which is the state; the second one may hold any character."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _ps(pid: int, field: str) -> str | None:
    result = subprocess.run(["/bin/ps", "-o", f"{field}=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return result.stdout.strip() or None
