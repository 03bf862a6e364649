"""Runs the console in a real browser: the system's Chromium, driven by Playwright. The tests are skipped if one of the
two is missing.

`make browser-tests` installs Playwright (the extra `browser`), which must not download a browser. Chromium comes from
the distribution (`apt-get install chromium`), or ONCELOG_CHROMIUM names it. npm downloads axe-core, which finds
accessibility violations, once into build/axe-core. Screenshots are stored in build/console-screenshots, or in
ONCELOG_SCREENSHOTS. With ONCELOG_DOCS_IMAGES=docs/images (`make browser-tests PICTURES=1`) the tests create the
pictures of docs/console.md and README.md again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration"), str(HERE.parent / "cluster")]

import integration_folders  # noqa: E402, F401  where the modules below are
from broker_process import BrokerProcess  # noqa: E402
from hanging import unguarded_broker  # noqa: E402
from warm_commands import COMMAND  # noqa: E402

BUILD = HERE.parents[1] / "build"
AXE = "4.14.1"
"""The version of npm's axe-core."""
FETCH_SECONDS = 120
NAMES = ("chromium", "chromium-browser", "google-chrome")
SCREENSHOTS = Path(os.environ.get("ONCELOG_SCREENSHOTS") or BUILD / "console-screenshots")
PICTURES = os.environ.get("ONCELOG_DOCS_IMAGES")
ORDER = (
    '{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"int"},{"name":"item","type":"string"},'
    '{"name":"amount","type":"int"}]}'
)
PATIENCE_MS = 60_000
WIDE = {"width": 1280, "height": 900}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if SCREENSHOTS.is_dir():
        terminalreporter.write_line(f"screenshots of the console: {SCREENSHOTS}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if find_spec("playwright") is None:
        pytest.skip("playwright is not installed: make browser-tests")
    program = os.environ.get("ONCELOG_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def unguarded(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker on which transactions can hang; it depends on `chromium`, so that no broker is started if Chromium is
    missing.
    """
    with unguarded_broker(tmp_path_factory.mktemp("unguarded") / "data") as process:
        yield process


@pytest.fixture(scope="session")
def axe(chromium: Any) -> str:
    """The JavaScript program of axe-core. The fixture depends on `chromium`, so that nothing is downloaded if Chromium
    is missing.
    """
    directory = BUILD / "axe-core"
    program = directory / "node_modules" / "axe-core" / "axe.min.js"
    if not program.exists():
        if shutil.which("npm") is None:
            pytest.skip("there is no npm here, which fetches axe-core")
        directory.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(directory), "--no-audit", "--no-fund", "--ignore-scripts"]
        command += ["--no-save", f"axe-core@{AXE}"]
        fetched = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        if fetched.returncode != 0:
            pytest.skip(f"npm cannot fetch axe-core: {fetched.stderr[-200:]}")
    return program.read_text()


@contextmanager
def running_console(*arguments: str) -> Iterator[str]:
    """Start a console process, and yield its address."""
    command = [COMMAND, "console", "--listen", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "the console does not start"
        yield found[0]
        process.terminate()


@pytest.fixture(scope="module")
def console(unguarded: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a console that may make changes. The values of the topic `orders` are in Avro."""
    schema = tmp_path_factory.mktemp("schema") / "order.avsc"
    schema.write_text(ORDER)
    arguments = ["--bootstrap-server", unguarded.address, "--allow-changes", "--schema", f"orders={schema}"]
    with running_console(*arguments) as address:
        yield address


@pytest.fixture
def page(chromium: Any, console: str) -> Iterator[Any]:
    """An open tab; the test fails if anything in the tab has failed, or violated the page's own content security
    policy.
    """
    context = chromium.new_context(viewport=WIDE, base_url=console)
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("dialog", lambda dialog: (problems.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    yield opened
    context.close()
    assert problems == []


def keep(page: Any, name: str) -> None:
    """Store a screenshot for a reader."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def keep_picture(page: Any, name: str) -> None:
    """Store a screenshot for docs/images/NAME.png. The file is written only if ONCELOG_DOCS_IMAGES is set."""
    keep(page, f"picture-{name}")
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png")
