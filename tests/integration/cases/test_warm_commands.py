"""Tests the process that forks brokers for tests: if a test is interrupted while it waits for this process, later tests
are not affected.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from warm_commands import COMMAND, IS_POSSIBLE, Child, Program, _answer, run_oncelog_text, warm

WAITS = """
import time
print("waiting", flush=True)
time.sleep(600)
"""
BECOMES = """
import os, sys, types, warm_commands
sys.modules["oncelog.cli.main"] = types.SimpleNamespace(main=lambda: print(sys.path[0], sys.argv))
what = {"cwd": os.getcwd(), "environment": dict(os.environ), "files": None, "target": [], "arguments": ["topics"]}
warm_commands.become(what, *map(os.dup, (0, 1, 2, 2)))
"""


@pytest.mark.skipif(not IS_POSSIBLE, reason="nothing is forked here")
def test_an_answer_that_nobody_waited_for_is_nobody_else_s() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as left:
        theirs.send(f"1 {left.pid}".encode())
        theirs.send(b"2 77")
        assert _answer(ours, 2) == 77
        assert left.wait(60) == -signal.SIGKILL


def test_commands_are_answered_one_after_the_other() -> None:
    for _ in range(3):
        assert run_oncelog_text("--version").returncode == 0


@pytest.mark.skipif(not IS_POSSIBLE, reason="nothing is forked here")
@pytest.mark.parametrize(
    "variable", ["PYTHONUTF8", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONPATH", "LC_ALL", "TZ", "PYTHONWARNINGS"]
)
def test_variables_read_by_python_at_its_start_prevent_a_fork(variable: str) -> None:
    run_oncelog_text("--version")
    assert warm.can_start(os.environ)
    assert warm.can_start({**os.environ, "ONCELOG_NUM_PARTITIONS": "3", "PYTHONWARNINGS": "error"})
    assert not warm.can_start({**os.environ, variable: "another"})


def test_a_sabotaged_command_is_not_forked_even_as_the_first(tmp_path: Path) -> None:
    """The changes of this test to its brokers must not affect the brokers of later tests."""
    (tmp_path / "sitecustomize.py").write_text("")
    assert not type(warm)().can_start({**os.environ, "PYTHONPATH": str(tmp_path)})


def test_other_modules_are_not_forked_even_as_the_first() -> None:
    """A program whose PYTHONPATH has other modules must not be forked, even if its test runs alone or as the first test
    of its xdist worker.
    """
    assert not type(warm)().can_start({**os.environ, "PYTHONPATH": "/elsewhere"})


def test_the_command_finds_no_modules_of_the_tests() -> None:
    here = Path(__file__).parents[1] / "programs"
    done = subprocess.run([sys.executable, "-c", BECOMES], cwd=here, capture_output=True, text=True, check=False)
    assert done.stdout == f"{Path(COMMAND).parent} {[COMMAND, 'topics']}\n", done.stderr


@pytest.mark.parametrize("again", [False, True])
def test_a_process_awaited_in_a_closed_loop_can_still_be_ended(tmp_path: Path, again: bool) -> None:
    (tmp_path / "program.py").write_text(WAITS)

    async def wait_in_vain(child: Child) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await child.ended()

    with closing(Child(Program((str(tmp_path / "program.py"),), ()))) as child:
        assert child.stdout.readline() == "waiting\n"
        asyncio.run(wait_in_vain(child))
        child.process.send_signal(signal.SIGKILL)
        code = asyncio.run(child.ended()) if again else child.process.wait(60)
        assert code == -signal.SIGKILL
        assert asyncio.run(child.ended()) == code, "also when it is known"
