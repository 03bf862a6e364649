"""docs/migrate/index.md: a cluster, a registry, Avro, and an application that is moved from aiokafka, step by step."""

from __future__ import annotations

import asyncio
import faulthandler
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_operations_guide import Operator
from tests.support.page_blocks import Block, blocks

from oncelog_testing.registry import Registry

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "migrate" / "index.md"
TIMEOUT_SECONDS = 120


class Stranger(Operator):
    """Somebody who does what the page says, with a registry in another terminal."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.registry: Registry | None = None
        self.totals: list[int] = []

    def environment(self) -> dict[str, str]:
        """Without the address of the cluster: the profile has it."""
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
        """What it installs exists, and is what this environment has: `make dist` installs it in a clean one."""
        found = re.fullmatch(r"pip install 'oncelog\[(.*)\]'\n", text)
        assert found is not None
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert set(found[1].split(",")) <= project["optional-dependencies"].keys()

    def total(self, program: str, count: int) -> int:
        """Run the application until it has read `count` records."""
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
        if self.registry is not None:
            self.registry.stop()
        super().goes()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    faulthandler.cancel_dump_traceback_later()  # every wait here ends by itself
    somebody = Stranger(tmp_path)
    yield somebody
    somebody.goes()


@pytest.mark.timeout(400)
def test_an_application_is_moved_as_the_page_says(stranger: Stranger) -> None:
    for block in blocks(PAGE.read_text()):
        stranger.does(block)
    assert stranger.totals == [12, 30], "the old application has read two orders, the new one goes on with the third"
