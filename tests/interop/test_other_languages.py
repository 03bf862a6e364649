"""Tests the example tests in Java and JavaScript: HTTP requests make the broker fail, and the history checker (judge)
says which records exist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from maven import BUILD, Unavailable, fetch, need

EXAMPLES = Path(__file__).parents[2] / "examples" / "tested_application"
ONCELOG = str(Path(sys.executable).parent / "oncelog")
TEST_SECONDS = 300.0


def copied(name: str) -> Path:
    """Copy the example to build/interop, where its libraries remain for the next run."""
    directory = BUILD / "examples" / name
    shutil.copytree(EXAMPLES / name, directory, dirs_exist_ok=True)
    return directory


def run(command: list[str], directory: Path) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env={"ONCELOG": ONCELOG, **os.environ},
        capture_output=True,
        text=True,
        timeout=TEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(2 * TEST_SECONDS)
def test_the_example_in_java() -> None:
    directory = copied("java")
    try:
        need("java", "javac", "mvn")
        fetch(["mvn", "-q", "-B", "-f", str(directory / "pom.xml"), "test-compile"], "JUnit")
        fetch(["mvn", "-q", "-B", "-f", str(directory / "pom.xml"), "test", "-DskipTests"], "the runner of JUnit")
    except Unavailable as reason:
        pytest.skip(str(reason))
    run(["mvn", "-B", "test"], directory)


@pytest.mark.timeout(2 * TEST_SECONDS)
def test_the_example_in_javascript() -> None:
    directory = copied("node")
    try:
        need("node", "npm")
        fetch(["npm", "install", "--prefix", str(directory), "--no-audit", "--no-fund", "--ignore-scripts"], "kafkajs")
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert "# pass 2" in run(["npm", "test"], directory)
