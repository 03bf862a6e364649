"""Java libraries by their Maven coordinates, kept in `build/interop`. The registry is Maven's business."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "interop"
FETCH_SECONDS = 300


class Unavailable(Exception):
    """A program or a registry is out of reach, so the tests that need it cannot run here. The message says which."""


def need(*programs: str) -> None:
    """Raises Unavailable."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")


def fetch(command: Sequence[str], what: str) -> None:
    """Run what fetches something. A half-made directory is no harm, the next run goes on. Raises Unavailable."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} cannot be fetched: no answer in {FETCH_SECONDS} s") from None
    if result.returncode:
        reason = (result.stderr or result.stdout).strip()[-300:]
        raise Unavailable(f"{what} cannot be fetched: {reason}")


def jars(pom: Path, release: str, what: str) -> Path:
    """The directory with the jars of `pom`, and all they need, of one release of Kafka. Raises Unavailable."""
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
