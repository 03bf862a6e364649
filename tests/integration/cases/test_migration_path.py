"""Follows docs/migrate/index.md: a cluster, a registry, Avro in the console, and an application that is migrated from
aiokafka.
"""

from __future__ import annotations

import asyncio
import faulthandler
import re
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from console_browser import as_text
from foreign_clients import eventually
from test_operations_guide import Operator
from tests.support.page_blocks import Block, blocks

from oncelog_testing.registry import Registry

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "migrate" / "index.md"
TIMEOUT_SECONDS = 120
STOP_SECONDS = 30
CONSOLE = "oncelog console --bootstrap-server 127.0.0.1:9092 --schema-registry http://127.0.0.1:8081\n"
LINK = re.compile(r"<http://127\.0\.0\.1:8080(/[^>]+)>")
"""A link to a page of the console, at its default address."""


class Stranger(Operator):
    """A reader who does what the page says, while a registry and a console run in other terminals."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.registry: Registry | None = None
        self.console: subprocess.Popen[str] | None = None
        self.console_url = ""
        self.totals: list[int] = []

    def environment(self) -> dict[str, str]:
        """Return the environment without the address of the cluster, because the profile contains the address."""
        found = super().environment() | {"ONCELOG_PROFILES": str(self.directory / "profiles.yaml")}
        del found["ONCELOG_BOOTSTRAP_SERVER"]
        return found

    def does(self, block: Block) -> None:
        match block:
            case Block("sh", "install", text):
                self.installs(text)
            case Block("sh", "another terminal", text):
                assert "oncelog registry --bootstrap-server" in text
                self.registry = Registry(self.addresses, self.directory / "registry.log").start()
                self.runs(f"oncelog profile set local -b {self.addresses} --registry {self.registry.url}")
            case Block("sh", "a third terminal", text):
                assert text == CONSOLE
                self.start_console()
            case Block("text", "the page shows", text):
                eventually(lambda: self.console_shows(text.splitlines()), "the console shows the values")
            case Block("python", "aiokafka", text):
                self.totals.append(self.total(text, 2))
            case Block("python", "oncelog", text):
                self.ours = text
            case Block("sh", "", text) if text.startswith("oncelog groups describe"):
                self.totals.append(self.total(self.ours, 1))
                self.runs(text)
            case _:
                super().does(block)

    def installs(self, text: str) -> None:
        """Check that the extras in the command `pip install` exist; `make dist` installs them in a clean
        environment.
        """
        found = re.fullmatch(r"pip install 'oncelog\[(.*)\]'\n", text)
        assert found is not None
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert set(found[1].split(",")) <= project["optional-dependencies"].keys()

    def start_console(self) -> None:
        """Start the console as the page does, on a free port."""
        assert self.registry is not None
        command = ["oncelog", "console", "--bootstrap-server", self.addresses]
        command += ["--schema-registry", self.registry.url, "--listen", "127.0.0.1:0"]
        self.console = subprocess.Popen(
            command, cwd=self.directory, env=self.environment(), stdout=subprocess.PIPE, text=True
        )
        assert self.console.stdout is not None
        found = re.search(r"http://[\d.:]+", self.console.stdout.readline())
        assert found is not None, "the console does not start"
        self.console_url = found[0]

    def console_shows(self, lines: list[str]) -> bool:
        """Load the linked page, and return whether it shows the lines. On a busy machine the page may report that the
        cluster or a value took too long.
        """
        (path,) = LINK.findall(PAGE.read_text())
        self.shown = as_text(httpx.get(f"{self.console_url}{path}", timeout=TIMEOUT_SECONDS).text)
        return all(line in self.shown for line in lines)

    def total(self, program: str, count: int) -> int:
        """Run the application until it has read `count` records, and return its total."""
        names: dict[str, Any] = {}
        exec(compile(program, "<page>", "exec"), names)
        assert self.registry is not None

        async def run() -> int:
            assert self.registry is not None
            async with asyncio.timeout(TIMEOUT_SECONDS):
                total: int = await names["total"](self.addresses, self.registry.url, count)
                return total

        return asyncio.run(run())

    def goes(self) -> None:
        if self.console is not None:
            self.console.send_signal(signal.SIGTERM)
            try:
                self.console.communicate(timeout=STOP_SECONDS)
            finally:
                self.console.kill()
                self.console.wait()
        if self.registry is not None:
            self.registry.stop()
        super().goes()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    # no timeout for the entire test, because every wait in it has its own timeout
    faulthandler.cancel_dump_traceback_later()
    somebody = Stranger(tmp_path)
    yield somebody
    somebody.goes()


@pytest.mark.timeout(400)
def test_an_application_is_moved_as_the_page_says(stranger: Stranger) -> None:
    for block in blocks(PAGE.read_text()):
        stranger.does(block)
    assert stranger.totals == [12, 30], "the old application has read two orders, the new one goes on with the third"
