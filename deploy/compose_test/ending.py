"""Removes everything that a run has created, however the run ends: containers, networks, processes, mounts, and the
temporary directory.

A signal that asks for the end (`timeout` sends SIGTERM, a closed terminal SIGHUP, Ctrl-C SIGINT) ends the run like an
error, so that everything started is cleaned up. Further signals are ignored during the clean-up.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let the first of SIGNALS raise SystemExit with the exit code that a shell uses for the signal. All later signals
    are ignored until the process ends, also after this block, because an impatient user must not interrupt the
    clean-up.
    """
    is_ending = False

    def end(number: int, _: FrameType | None) -> None:
        nonlocal is_ending
        is_ending = True
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        print(f"compose-test: ended by {signal.Signals(number).name}, what it has begun is undone", flush=True)
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, end) for each in SIGNALS}
    try:
        yield
    finally:
        if not is_ending:
            for each, handler in before.items():
                signal.signal(each, handler)


def attempt(action: Callable[[], Any]) -> None:
    """Run one step of the clean-up; an error is printed, and the next steps run."""
    try:
        action()
    except (subprocess.SubprocessError, OSError):
        traceback.print_exc()


def remove(directory: Path) -> None:
    """End the processes that were started with `directory`, unmount the mounts in it, and remove it."""
    for pid in _processes_of(directory):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for path in _mounts_in(directory):
        subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


def _processes_of(directory: Path) -> Iterator[int]:
    """Yield the processes whose command or environment names the directory. The directory's name belongs to this run
    only.
    """
    name = os.fsencode(directory)
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        with suppress(OSError):
            if name in (process / "cmdline").read_bytes() or name in (process / "environ").read_bytes():
                yield int(process.name)


def _mounts_in(directory: Path) -> list[str]:
    """Return the mounts in the directory, the innermost first."""
    with suppress(OSError):
        mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        return sorted((path for path in mounted if path.startswith(f"{directory}/")), reverse=True)
    return []
