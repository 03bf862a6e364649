"""Tests docs/guides/operations.md: each recipe works exactly as written."""

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

from oncelog_broker.local_cluster.cluster import LocalCluster
from oncelog_broker.local_cluster.ports import LOOPBACK, own_ports

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "operations.md"
PATIENCE_SECONDS = 120
MOST_BROKERS = 4
REFUSED_MENTION = re.compile(r"start\.accept=[a-z-]+:[0-9a-f]+")


class Operator:
    """An operator at a shell, with a local cluster and sometimes a broker in another terminal."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clusters = {directory}
        self._ports = own_ports(MOST_BROKERS + 1)
        self.port = self._ports[0].number
        self.alone = f"{LOOPBACK}:{self._ports[-1].number}"
        self.broker: subprocess.Popen[str] | None = None
        self.serve = ""
        self.shown = ""
        self.refusal = ""

    @property
    def addresses(self) -> str:
        if self.broker is not None:
            return self.alone
        return ",".join(f"{LOOPBACK}:{self.port + number}" for number in range(3))

    def does(self, block: Block) -> None:
        match block:
            case Block("sh", "" | "the cluster", text):
                self.runs(text)
            case Block("sh", "it fails", text):
                self.runs(text, code=1)
            case Block("sh", "a fresh start", text):
                self.runs("oncelog cluster down")
                assert text == "mkdir move && cd move\n"
                self.directory = self.directory / "move"
                self.directory.mkdir()
                self.clusters.add(self.directory)
            case Block("sh", "one broker", text):
                self.serve = text.strip()
                self.start()
            case Block("sh", "stop the broker", ""):
                self.stop()
            case Block("sh", "start the broker", ""):
                self.start()
            case Block("sh", "the broker refuses", text):
                assert text.strip() == self.serve
                self.is_refused()
            case Block("sh", "start the broker as it says", ""):
                (mention,) = REFUSED_MENTION.findall(self.refusal)
                self.start("--set", mention)
            case Block("text", "it shows", text):
                assert self.shown.endswith(text)
            case _:
                pytest.fail(f"nobody can follow {block}")

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "ONCELOG_BOOTSTRAP_SERVER": self.addresses}

    def runs(self, commands: str, code: int = 0) -> None:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", commands.replace("9092", str(self.port))],
            cwd=self.directory,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == code, commands + done.stdout + done.stderr
        self.shown = done.stdout

    def _serving(self, *more: str) -> subprocess.Popen[str]:
        command = f"exec {self.serve} --set listeners=PLAINTEXT://{self.alone} --stop-at-eof {' '.join(more)}"
        return subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.directory,
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, *more: str) -> None:
        self.broker = self._serving(*more)
        assert self.broker.stdout is not None
        if "ready on" not in self.broker.stdout.readline():
            pytest.fail(f"the broker does not start: {self.broker.communicate()[1]}")

    def is_refused(self) -> None:
        with self._serving() as broker:
            assert broker.stdout is not None
            said = broker.stdout.readline()  # the broker stops when its standard input ends
            _, self.refusal = broker.communicate(timeout=PATIENCE_SECONDS)
        assert (broker.returncode, said) == (1, "")

    def stop(self) -> None:
        broker, self.broker = self.broker, None
        assert broker is not None
        broker.send_signal(signal.SIGTERM)
        with broker:
            broker.communicate(timeout=PATIENCE_SECONDS)
        assert broker.returncode == 0

    def goes(self) -> None:
        """Stop the broker and the clusters of this operator."""
        if self.broker is not None:
            self.broker.kill()
            with self.broker:
                self.broker.communicate()
        for directory in self.clusters:
            if (directory / "cluster-data" / "cluster.json").exists():
                LocalCluster(directory / "cluster-data", lambda _: None).down()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    # no timeout for the entire test, because every wait in it has its own timeout
    faulthandler.cancel_dump_traceback_later()
    somebody = Operator(tmp_path)
    yield somebody
    somebody.goes()


@pytest.mark.timeout(600)
def test_every_recipe_works(operator: Operator) -> None:
    todo = blocks(PAGE.read_text())
    assert {block.title for block in todo} > {"the cluster", "the broker refuses", "it fails", "it shows"}
    for block in todo:
        operator.does(block)
