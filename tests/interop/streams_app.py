"""Starts and kills instances of the Kafka Streams applications in `streams/CountAndCopy.java`, each of which is a
process.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from maven import BUILD, HERE, jars, need

SMALL_JVM = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=48m")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
COMPILE_SECONDS = 120
STOP_SECONDS = 60


def class_path(release: str) -> str:
    """Return the class path of the applications, compiled against one release of Kafka Streams. Raises
    maven.Unavailable.
    """
    need("java", "javac", "mvn")
    libraries = jars(HERE / "streams" / "pom.xml", release, "streams")
    classes = BUILD / f"streams-classes-{release}"
    source = HERE / "streams" / "CountAndCopy.java"
    compiled = subprocess.run(
        ["javac", "-cp", f"{libraries}/*", "-d", str(classes), str(source)],
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    return f"{classes}:{libraries}/*"


class StreamsInstance:
    """One process that runs both applications. The state of an instance is lost with its process, as after the loss of
    a machine's disk. `settings` replace those of the program; a setting with an empty value is removed.
    """

    def __init__(self, path: str, address: str, prefix: str, directory: Path, settings: Mapping[str, str] = {}) -> None:
        self.log = directory / "streams.log"
        self._command = ["java", *SMALL_JVM, QUIET, "-cp", path, "CountAndCopy", address, prefix]
        self._settings = [f"{key}={value}" for key, value in settings.items()]
        self._directory = directory
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._starts += 1
        self._directory.mkdir(exist_ok=True)
        state = self._directory / f"state{self._starts}"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*self._command, str(state), *self._settings], stdout=log, stderr=log)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop the process in an orderly way: it commits or aborts the transactions that it has begun."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
