"""Runs Apache Kafka's command line tools one after another in one JVM (`java/ToolRunner.java`)."""

from __future__ import annotations

import base64
import selectors
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from maven import BUILD, HERE, jars, need

RELEASE = "4.3.1"
COMPILE_SECONDS = 120
ANSWER_SECONDS = 100.0
"""Limit in seconds for the result of a tool; the runner itself gives up a tool earlier."""
OPTIONS = (
    *("-Xms64m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class Result(NamedTuple):
    """The result of one run of a command line tool. `code` is the exit code, -1 if the runner gave up the tool."""

    code: int
    text: str
    """Everything that the tool wrote to standard output and standard error."""


class ToolRunner:
    """A context manager that starts and ends the JVM. Raises maven.Unavailable if Java or the registry is not
    available.
    """

    def __init__(self, log: Path) -> None:
        need("java", "javac", "mvn")
        libraries = jars(HERE / "broker" / "pom.xml", RELEASE, "kafka")
        compiled = BUILD / "tool-runner"
        made = subprocess.run(
            ["javac", "-cp", f"{libraries}/*", "-d", str(compiled), str(HERE / "java" / "ToolRunner.java")],
            capture_output=True,
            text=True,
            timeout=COMPILE_SECONDS,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        self._command = ["java", *OPTIONS, "-cp", f"{compiled}:{libraries}/*", "ToolRunner"]
        self._log = log
        self._child: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            assert stream is not None
            stream.close()

    def run(self, tool: str, arguments: Sequence[str], standard_input: str = "") -> Result:
        """Run a tool; `tool` is its class."""
        assert self._child.stdin is not None
        words = [tool, *(base64.b64encode(word.encode()).decode() for word in (standard_input, *arguments))]
        self._child.stdin.write(("\t".join(words) + "\n").encode())
        done, code, text = self._line().split("\t")
        assert done == "done"
        return Result(int(code), base64.b64decode(text).decode(errors="replace"))

    def _line(self) -> str:
        assert self._child.stdout is not None
        received = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while not received.endswith(b"\n"):
                assert selector.select(ANSWER_SECONDS), f"no answer: {self._log.read_text()[-2000:]}"
                data = self._child.stdout.read(1 << 20)
                assert data, f"the JVM ended: {self._log.read_text()[-2000:]}"
                received += data
        return received.decode().rstrip("\n")
