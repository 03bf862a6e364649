"""Tests that each command in the docstring of an example works exactly as written there, in a separate directory.

The commands run in order, as a reader would run them: a topic that a command needs was created by an earlier command,
or is created by the command itself.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess

EXAMPLES = Path(__file__).parents[3] / "examples"
COMMAND = re.compile(r"^    python (-m examples\.\w+.*)$", re.MULTILINE)
WRITTEN = "127.0.0.1:9092"
WITHOUT_COMMANDS = {"state_topic"}
"""Examples without commands: a module that two other examples import."""
ELSEWHERE = {"spark_exactly_once": "tests/spark/test_example.py"}
"""Examples that another test runs, because they need Spark."""
SHOWN = {
    "delivery_levels": r"copied: 1[0-9]+ records, 100 different numbers\n",
    "kafka_to_sqlite": r"paid in all: 20\npaid in all: 20\n",
    "outbox": r"^$",
    "publish_then_consume": r"after the abort: 0; after the second try: 1\nmails sent: 2\n",
    "two_phase_database": r"20 bookings\nan earlier run had a transaction open: it is committed\n45 bookings\n",
    "two_phase_sink": r"checkpoint 10\n",
    "zombies": r"wakes up, and is refused",
}
"""The expected output of an example, if the example prints any; `test_examples.py` checks the topics."""
SECONDS = 60


def commands(example: Path) -> list[str]:
    """Return the commands in the docstring of an example, without `python`."""
    return COMMAND.findall(ast.get_docstring(ast.parse(example.read_text()), clean=False) or "")


FOUND = {path.stem: commands(path) for path in sorted(EXAMPLES.glob("*.py"))}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """An empty broker, as a reader starts it, with two-phase commit, which one example requires."""
    with BrokerProcess(tmp_path / "data", {"transaction.two.phase.commit.enable": "true"}) as process:
        yield process


def test_each_example_says_how_it_is_started() -> None:
    assert {name for name, of_example in FOUND.items() if not of_example} == WITHOUT_COMMANDS
    root = EXAMPLES.parent
    assert all(f"examples.{name}" in (root / test).read_text() for name, test in ELSEWHERE.items())


@pytest.mark.parametrize("example", sorted(FOUND.keys() - WITHOUT_COMMANDS - ELSEWHERE.keys()))
def test_the_commands_of_an_example_run_as_written(broker: BrokerProcess, tmp_path: Path, example: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
    output = ""
    for command in FOUND[example]:
        assert WRITTEN in command, "it names the broker"
        arguments = shlex.split(command.replace(WRITTEN, broker.address))
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        expected = -signal.SIGKILL if "--crash-after" in command else 0
        assert done.returncode == expected, f"{command}:\n{done.stdout}\n{done.stderr}"
        output += done.stdout
    assert re.search(SHOWN[example], output), output
