"""Starts, kills and observes the process of the Spark program, its JVM and its Python workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psutil

from spark_soak.query import Query

PROGRAM: Final = Path(__file__).with_name("query.py")
QUIET_SECONDS: Final = 300.0
"""If a driver prints nothing for this number of seconds, the run is given up."""


class Stuck(Exception):
    """The query makes no progress."""


class Driver:
    """Successive runs of the Spark driver: when a run fails, the next run is started immediately.

    The driver's messages are passed to `heard`, and its log is written to one file for each run.
    """

    def __init__(self, query: Query, directory: Path, heard: Callable[[dict[str, Any]], None]) -> None:
        self._query, self._directory, self._heard = query, directory, heard
        self._process: subprocess.Popen[str] | None = None
        self._changed = threading.Condition(threading.RLock())
        """The lock for changes of the fields below."""
        self._said: list[dict[str, Any]] = []
        """The messages of the present run."""
        self._sessions: list[int] = []
        """The process sessions of all runs, by which processes that the runs have left are found."""
        self._listener: threading.Thread | None = None
        """The thread that reads the messages of the present run."""
        self._is_over = False
        self.started_at = 0.0

    @property
    def lives(self) -> int:
        return len(self._sessions)

    def start(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        log = self._directory / f"driver{self.lives}.log"
        with self._changed, log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(asdict(self._query))],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                start_new_session=True,
            )
            self._process, self._said, self.started_at = process, [], time.monotonic()
            self._sessions.append(process.pid)
        self._listener = threading.Thread(target=self._listen, args=(process, self._said), daemon=True)
        self._listener.start()

    def _listen(self, process: subprocess.Popen[str], said: list[dict[str, Any]]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError):  # this line was cut by the driver's death, or Spark has printed it
                what = json.loads(line)
                with self._changed:
                    said.append(what)
                    self._changed.notify_all()
                self._heard(what)
        code = process.wait()
        with self._changed:
            if process is self._process and code and not self._is_over:
                self._heard({"ended": code})
                self._restart()

    def _restart(self) -> None:
        self._process = None
        self.start()

    def until(self, kind: str) -> Any:
        """Return the first message of this kind, from the present run or a later run. Raises Stuck if no batch was
        completed for too long.
        """
        deadline = time.monotonic() + QUIET_SECONDS
        batches = -1
        with self._changed:
            while True:
                for what in self._said:
                    if kind in what:
                        return what[kind]
                done = sum("batch" in what for what in self._said)
                if done != batches and done:
                    deadline = time.monotonic() + QUIET_SECONDS
                batches = done
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise Stuck(
                        f'driver {self.lives - 1} did not say "{kind}" within {QUIET_SECONDS:g} s; at last it said'
                        f" {self._said[-2:]}"
                    )

    def kill_and_start(self) -> None:
        """Kill the JVM and the Python process that has started it with -9, and start the next run."""
        with self._changed:
            self._kill()
            self._restart()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        for child in psutil.Process(process.pid).children():
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.wait()

    def workers(self) -> dict[str, list[psutil.Process]]:
        """Return the Python processes that the JVM has started; they are grouped by the module that they run."""
        found: dict[str, list[psutil.Process]] = {}
        with self._changed:
            if self._process is None or self._process.poll() is not None:
                return found
            jvms = psutil.Process(self._process.pid).children()
        for jvm in jvms:
            with suppress(psutil.NoSuchProcess):
                for child in jvm.children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        module = module_of(child.cmdline())
                        if module:
                            found.setdefault(module, []).append(child)
        return found

    def end(self) -> None:
        """End all processes that any run has left."""
        with self._changed:
            self._is_over = True
            self._kill()
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) in self._sessions:
                    process.kill()
        if self._listener is not None:
            self._listener.join()


def module_of(command: list[str]) -> str:
    """Return the module that a Python process of Spark runs, such as `sql.worker.commit_data_source_write`; "" for
    another process.
    """
    if "-m" not in command:
        return ""
    modules = [word for word in command[command.index("-m") + 1 :] if word.startswith("pyspark.")]
    return modules[-1].removeprefix("pyspark.") if modules else ""
