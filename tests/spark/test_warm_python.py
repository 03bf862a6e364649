"""What Spark starts in place of Python is to it what Python would be: it has its streams, and ends as it does."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_python import IS_POSSIBLE, warm_python

SECONDS = 120
PROGRAM = """
import os, pandas, sys
print(sys.argv[1:], os.environ["TOLD"], os.getcwd(), sys.stdin.read(), __name__, flush=True)
print("an error", file=sys.stderr)
sys.exit(7)
"""
WAITS = """
import time
print("waiting", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    with warm_python() as launcher:
        yield launcher


def test_a_module_is_run(python: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "elsewhere").mkdir()
    environment = {**os.environ, "TOLD": "ü", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [python, "-m", "program", "a", ""],
        input="given",
        capture_output=True,
        text=True,
        cwd=tmp_path / "elsewhere",
        env=environment,
        timeout=SECONDS,
        check=False,
    )
    assert done.stdout == f"['a', ''] ü {tmp_path}/elsewhere given __main__\n", done.stderr
    assert (done.stderr, done.returncode) == ("an error\n", 7)


def test_what_is_no_module_is_run_by_python_itself(python: str) -> None:
    done = subprocess.run([python, "-c", "print(2 + 2)"], capture_output=True, timeout=SECONDS, check=True)
    assert done.stdout == b"4\n"


@pytest.mark.skipif(not IS_POSSIBLE, reason="nothing is forked here")
def test_who_ends_the_launcher_ends_what_it_has_started(python: str, tmp_path: Path) -> None:
    """Its output ends, which nobody else has."""
    (tmp_path / "program.py").write_text(WAITS)
    with subprocess.Popen([python, "-m", "program"], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGKILL)
        assert process.stdout.read() == ""


@pytest.mark.skipif(not IS_POSSIBLE, reason="nothing is forked here")
def test_when_nobody_forks_it_is_python(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print(__name__)")
    with warm_python() as launcher:
        kept = Path(launcher).read_text()
    (tmp_path / "python").write_text(kept)
    (tmp_path / "python").chmod(0o700)
    command = [str(tmp_path / "python"), "-m", "program"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=SECONDS, check=True)
    assert done.stdout == "__main__\n"
