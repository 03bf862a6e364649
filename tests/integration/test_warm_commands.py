"""The process that forks brokers for tests: who was cut off while he waited for one leaves nothing to others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest
from warm_commands import IS_POSSIBLE, WarmCommands, _answer, run_oncelog_text


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


def test_other_modules_are_not_forked_though_nothing_was_yet() -> None:
    """A test may run alone, or as the first of its worker."""
    assert not WarmCommands().can_start({**os.environ, "PYTHONPATH": "/elsewhere"})
