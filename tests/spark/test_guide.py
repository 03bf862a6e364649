"""Tests that the first program of docs/spark.md runs as written, in a shell without an activated environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from spark_session import JAVA_OPTIONS
from streams import LATE, create, produce, seen_values

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"
KEPT = ("HOME", "JAVA_HOME", "LANG", "TMPDIR")
PATH = "/usr/local/bin:/usr/bin:/bin"
TRIES = 5


def program() -> str:
    """Return the first program in the guide."""
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def clean_environment(directory: Path) -> dict[str, str]:
    """Return the environment of a shell in which no virtual environment is activated. The JVM has the options of other
    tests, because by default it takes several times as much CPU to compile its code; they are written to a file in
    `directory`.
    """
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    (directory / "spark-defaults.conf").write_text(f"spark.driver.extraJavaOptions {JAVA_OPTIONS}\n")
    return kept | {"PATH": PATH, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(directory)}


@pytest.mark.timeout(400)
def test_the_first_program_of_the_guide_runs(address: str, topic: str, tmp_path: Path) -> None:
    """Only the address, the topics and the checkpoint directory are changed."""
    create(address, topic, f"{topic}-out")
    produce(address, topic, [b"hello", b"world"])
    text = program()
    for written, here in (
        ("127.0.0.1:9092", address),
        ('"orders"', f'"{topic}"'),
        ('"shouted"', f'"{topic}-out"'),
        ("/tmp/shouted", str(tmp_path / "checkpoint")),
    ):
        assert written in text
        text = text.replace(written, here)
    (tmp_path / "first.py").write_text(text)
    for _ in range(TRIES):
        told = run_until_written(tmp_path, address, f"{topic}-out")
        if LATE not in told:
            break
    assert seen_values(address, f"{topic}-out") == {b"HELLO": 1, b"WORLD": 1}, told


def run_until_written(directory: Path, address: str, target: str) -> str:
    """Run the program until it has written records, stop it, and return its output."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "first.py"],
            cwd=directory,
            env=clean_environment(directory),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None and sum(seen_values(address, target).values()) < 2:
                time.sleep(0.5)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return output.read()
