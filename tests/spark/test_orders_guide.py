"""Tests docs/guides/orders-pipeline.md: a reader follows it in order, in a shell without an activated environment, and
sees the output that the page shows.

The test changes only the addresses, and skips the page's installations, because everything is already installed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from foreign_clients import eventually
from orders_program import environment
from spark_session import HERE
from streams import LATE, TRIES
from tests.support.page_blocks import Block, blocks

from oncelog_broker.local_cluster.ports import LOOPBACK, own_ports

REPOSITORY = HERE.parents[1]
PAGE = REPOSITORY / "docs" / "guides" / "orders-pipeline.md"
SECONDS = 900
MASTER = "127.0.0.1:7077"
DRIVER = re.compile(r"^the driver is process (\d+):", re.MULTILINE)


class Follower:
    """A reader with a checkout in which `make pipeline` was run, and three terminals."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / ".venv").symlink_to(sys.prefix)
        for name in ("examples", "docker-compose.spark.yml"):
            (directory / name).symlink_to(REPOSITORY / name)
        self._own_ports = own_ports(2)
        broker, master = (f"{LOOPBACK}:{port.number}" for port in self._own_ports)
        self.address, self.master = broker, master
        self.environment = environment(directory, {"spark.executor.memory": "512m"})
        self.environment |= {"ONCELOG_BOOTSTRAP_SERVER": broker, "SPARK_DAEMON_MEMORY": "200m"}
        self.shown = ""
        self.exported: list[str] = []
        self.others: list[tuple[subprocess.Popen[str], IO[str]]] = []
        """The processes that run in other terminals, and the lines that they print."""

    def does(self, block: Block) -> None:
        text = block.text.replace(MASTER, self.master).replace(*self._port_of_master())
        match block._replace(text=text):
            case Block("text", "", _):
                pass  # a picture
            case Block("sh", "install", text):
                assert text.startswith("make pipeline")  # `make pipeline` has also installed this environment
            case Block("sh", "docker", text):
                assert set(re.findall(r"-f (\S+)", text)) == {"docker-compose.spark.yml"}
            case Block("sh", "broker", text):
                self.end_others()
                self.starts(f"{text.strip()} --set listeners=PLAINTEXT://{self.address}", "ready on")
            case Block("sh", "the pipeline", text):
                self.starts(text.strip(), "the driver is process")
            case Block("sh", "kill it", text):
                self.kills(text)
            case Block("sh", "cluster", text):
                export, *commands = text.splitlines()
                self.environment |= self.exports(export)
                self.starts(commands[0].removesuffix(" &"), "I have been elected leader")
                for command in commands[1:]:
                    self.starts(command.removesuffix(" &"), "Successfully registered with master")
            case Block("sh", "", text):
                self.runs(text)
            case Block("text", "it shows", text):
                self.sees(text)
            case _:
                pytest.fail(f"nobody can follow {block}")

    def _port_of_master(self) -> tuple[str, str]:
        return f"--port {MASTER.partition(':')[2]}", f"--port {self.master.partition(':')[2]}"

    def exports(self, line: str) -> dict[str, str]:
        """Return the variables that a shell exports after this code."""
        shell = [*self._shell(), f"{line}; env -0"]
        done = subprocess.run(
            shell, cwd=self.directory, env=self.environment, capture_output=True, text=True, check=True
        )
        names = re.findall(r"(\w+)=", line)
        found = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if "=" in entry)
        return {name: found[name] for name in names}

    def _shell(self) -> list[str]:
        return ["bash", "-eo", "pipefail", "-c"]

    def starts(self, command: str, ready: str) -> None:
        """Start a command in a separate terminal, and wait until it prints that it is ready."""
        output = tempfile.NamedTemporaryFile("w+", dir=self.directory, delete=False)  # noqa: SIM115
        process = subprocess.Popen(
            [*self._shell(), f"exec {command}"],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.others.append((process, output))
        eventually(lambda: ready in self.printed() or process.poll() is not None, f"{command} is ready", SECONDS)
        assert process.poll() is None, self.printed()

    def printed(self) -> str:
        """Return the output of the command that was started last."""
        return Path(self.others[-1][1].name).read_text()

    def kills(self, text: str) -> None:
        """Kill the driver after it has completed a batch."""
        process, _ = self.others[-1]
        eventually(lambda: "revenue: batch" in self.printed() or process.poll() is not None, "a batch", SECONDS)
        command = re.sub(r"\b\d{4,}\b", DRIVER.findall(self.printed())[-1], text)
        assert command != text
        self.runs(command)
        process.wait(SECONDS)

    def runs(self, commands: str) -> None:
        for _ in range(TRIES):
            done = subprocess.run(
                [*self._shell(), commands],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
            if LATE not in done.stderr:
                break
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        self.shown = done.stdout

    def sees(self, text: str) -> None:
        """Check that the output has these lines in this order; other lines may be between them."""
        lines = iter(line.strip() for line in self.shown.splitlines())
        for line in text.splitlines():
            assert line in lines, f"{line!r} is not, or not in its place, in {self.shown!r}"

    def end_others(self) -> None:
        """End the commands, the last command first; a command that does not end immediately is killed with all its
        processes.
        """
        for process, output in reversed(self.others):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.close()
        self.others.clear()


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    somebody = Follower(tmp_path)
    yield somebody
    somebody.end_others()


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_the_tutorial_of_the_pipeline_works(follower: Follower) -> None:
    todo = blocks(PAGE.read_text())
    assert {block.title for block in todo} > {"broker", "the pipeline", "kill it", "cluster", "it shows"}
    for block in todo:
        follower.does(block)
