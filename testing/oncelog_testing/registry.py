"""A schema registry in a separate process, which uses a broker of the test. The registry ends with this process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from oncelog_testing.first_lines import first_lines

__tracebackhide__ = True  # hides this module in the traceback of a failed test

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0


class RegistryStartError(Exception):
    """Raised if the registry does not start; the message contains its output."""


class Registry:
    """A schema registry process. `start`, or a `with` statement, returns when the registry serves."""

    def __init__(self, bootstrap_servers: str, log: Path, *arguments: str) -> None:
        """`log` gets its standard error; `arguments` are further arguments of `oncelog registry`."""
        self._bootstrap = bootstrap_servers
        self._log = log
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        """The URL for any client of the Confluent registry; empty until it serves."""

    def __str__(self) -> str:
        return self.url

    def start(self) -> Self:
        """Start the registry; returns when it serves. Raises RegistryStartError."""
        command = [sys.executable, "-P", "-m", "oncelog", "registry", "-b", self._bootstrap]
        command += ["--listen", "127.0.0.1:0", "--stop-at-eof", *self._arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        lines = first_lines(self._process, 1, START_SECONDS)
        if not lines:
            self.kill()
            raise RegistryStartError(f"the registry does not start: {self._log.read_text(errors='replace').strip()}")
        self.url = next(word for word in lines[0].split() if word.startswith("http://"))
        return self

    def kill(self) -> None:
        """Kill the process (kill -9); returns when it has ended."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the registry in an orderly way."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
