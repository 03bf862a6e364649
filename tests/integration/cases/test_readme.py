"""Tests that the README is correct for this checkout; `make dist` tests it with the published package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[3] / "README.md").read_text()
BLOCKS = re.findall(r"^```\w*\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
IT_SAYS = "TWICE: a record is duplicated"
PATIENCE_SECONDS = 110.0


def the_block_with(text: str) -> str:
    (block,) = [each for each in BLOCKS if text in each]
    return str(block)


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a shell in which the package is installed and which has no variables of the tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | {"PATH": path} | more


def pytest_of(program: str, directory: Path) -> str:
    """Run pytest on a program in a separate directory, and return the output."""
    (directory / "test_billing.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    return done.stdout + done.stderr


def test_the_readme_test_passes_as_written(tmp_path: Path) -> None:
    said = pytest_of(the_block_with("def test_"), tmp_path)
    assert "1 passed" in said, said


def test_the_readme_test_fails_for_an_application_that_writes_again(tmp_path: Path) -> None:
    """When a response is lost, many applications do what this test does: they write the same records in another
    transaction.
    """
    commit = "        producer.commit_transaction()\n"
    again = "        producer.begin_transaction()\n        producer.produce(oncelog_topic, b'invoice 1')\n"
    said = pytest_of(the_block_with("def test_").replace(commit, commit + again + commit), tmp_path)
    assert "1 failed" in said, said
    assert ">       oncelog_history.check()" in said, said
    assert IT_SAYS in said, said
    assert IT_SAYS in README


def test_the_readme_commands_do_what_they_say(address: str, tmp_path: Path) -> None:
    serve, produce, consume = the_block_with("oncelog produce greetings").splitlines()
    assert serve.startswith("oncelog serve --data data ")
    for command in (produce, f"{consume} | head -n 1"):
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            env=environment(ONCELOG_BOOTSTRAP_SERVER=address),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout
