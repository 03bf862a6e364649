"""Runs Java's client as a load in a JVM of its own. The program (`java/ClientLoad.java`) is compiled at each start."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final, Self

from apache import RELEASE
from maven import BUILD, jars, need
from maven import HERE as INTEROP
from transaction_clients import Produced

HERE: Final = Path(__file__).parent
OPTIONS: Final = ("-Xms192m", "-Xmx192m", "-XX:+UseSerialGC")
COMPILE_SECONDS: Final = 120


class JavaClient:
    """A context manager that starts and ends the JVM. Raises maven.Unavailable."""

    name: Final = f"Java {RELEASE}"

    def __init__(self, address: str) -> None:
        need("java", "javac", "mvn")
        libraries = jars(INTEROP / "java" / "pom.xml", RELEASE, "java")
        compiled = BUILD / "client-load"
        source = HERE / "java" / "ClientLoad.java"
        command = ["javac", "-cp", f"{libraries}/*", "-d", str(compiled), str(source)]
        subprocess.run(command, check=True, timeout=COMPILE_SECONDS)
        self._command = ["java", *OPTIONS, "-cp", f"{compiled}:{libraries}/*", "ClientLoad", address]
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def run(self, *words: object) -> Produced:
        """Run one command (the kind of load and its arguments). Returns what the client produced or consumed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("Java's client has ended; its message is above")
        count, seconds, cpu = answer.split()
        return Produced(int(count), float(seconds), float(cpu))
