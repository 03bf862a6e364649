"""Fetches Java libraries by their Maven coordinates into `build/interop`. Maven's own configuration determines the
registry.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "interop"
FETCH_SECONDS = 300


class Unavailable(Exception):
    """A program or a registry is not available, so the tests that need it cannot run here. The message names the
    missing program or registry.
    """


def need(*programs: str) -> None:
    """Raises Unavailable."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")


def fetch(command: Sequence[str], what: str) -> None:
    """Run a command that downloads something. An incomplete directory is harmless, because the next run continues.
    Raises Unavailable.
    """
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} cannot be fetched: no answer in {FETCH_SECONDS} s") from None
    if result.returncode:
        reason = (result.stderr or result.stdout).strip()[-300:]
        raise Unavailable(f"{what} cannot be fetched: {reason}")


def jars(pom: Path, release: str, what: str) -> Path:
    """Return the directory with the jars that `pom` names, and their dependencies, for one release of Kafka. Raises
    Unavailable.
    """
    directory = BUILD / f"{what}-{release}"
    complete = directory / ".complete"
    if not complete.exists():
        need("java", "mvn")
        fetch(
            [
                *("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
                *(f"-Dkafka.version={release}", f"-DoutputDirectory={directory}"),
            ],
            f"{what} {release}",
        )
        complete.touch()
    return directory
