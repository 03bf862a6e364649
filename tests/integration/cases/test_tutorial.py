"""Tests docs/tutorial.md: a reader who follows it in order sees the output that it shows."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.page_blocks import Block, blocks

from oncelog_broker.local_cluster.ports import LOOPBACK, own_ports

PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"
PATIENCE_SECONDS = 300
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""The possible exit codes of a shell whose command was killed; they differ because the shell may replace itself by the
command, or wait for it.
"""


class Reader:
    """A reader at a shell, with a broker in another terminal. The broker keeps its port when it is killed and
    restarted.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker: subprocess.Popen[str] | None = None
        (self._own_port,) = own_ports(1)
        self.address = f"{LOOPBACK}:{self._own_port.number}"
        self.serve = ""
        self.shown = ""

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "ONCELOG_BOOTSTRAP_SERVER": self.address}

    def does(self, block: Block) -> None:
        match block:
            case Block("sh", "install", text):
                assert re.search(r"^pip install '.*\[broker\]'$", text, re.MULTILINE)  # already installed
            case Block("sh", "broker", text):
                self.serve = text.strip()
                self.start()
            case Block("sh", "kill the broker", text):
                assert f"'{self.serve}'" in text
                self.kill()
                self.start()
            case Block("sh", "", text):
                self.runs(text)
            case Block("text", "it shows", text):
                self.sees(text)
            case Block("python", name, text):
                (self.directory / name).write_text(text)
            case _:
                pytest.fail(f"nobody can follow {block}")

    def start(self) -> None:
        command = f"exec {self.serve} --set listeners=PLAINTEXT://{self.address} --stop-at-eof"
        self.broker = subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.directory,
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.broker.stdout is not None
        ready = re.search(r"ready on (\S+)", self.broker.stdout.readline())
        assert ready, "the broker does not start"
        assert ready[1] == self.address

    def kill(self) -> None:
        if self.broker is not None:
            self.broker.kill()
            with self.broker:  # close the pipes of the broker process and wait for its end
                self.broker = None

    def runs(self, commands: str) -> None:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", commands],
            cwd=self.directory,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode in (KILLED if "DIE_AT" in commands else (0,)), done.stdout + done.stderr
        self.shown = done.stdout

    def sees(self, text: str) -> None:
        """Check that the output has these lines in this order; other lines may be between them."""
        lines = iter(line.strip() for line in self.shown.splitlines())
        for line in text.splitlines():
            assert line in lines, f"{line!r} is not, or not in its place, in {self.shown!r}"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    # Fifteen processes start one after another, and on a busy machine each start may be slow. Every wait in this test
    # has its own limit, so the watchdog of the entire test process is off.
    faulthandler.cancel_dump_traceback_later()
    somebody = Reader(tmp_path)
    yield somebody
    somebody.kill()


@pytest.mark.timeout(600)
def test_the_tutorial_works(reader: Reader) -> None:
    todo = blocks(PAGE.read_text())
    assert {block.title for block in todo} > {"install", "broker", "kill the broker", "it shows", "billing.py"}
    for block in todo:
        reader.does(block)
    assert reader.shown.split() == ["1000", "0"]
