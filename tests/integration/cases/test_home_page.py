"""Tests the claims of the documentation's home page: its six lines of code write a record once, and its
commands exist.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from broker_process import BrokerProcess
from committed_reader import committed_values
from raw_client import RawClient
from tests.support.page_blocks import Block, blocks

from oncelog.cli.group import cli

PAGE = (Path(__file__).parents[3] / "docs" / "index.md").read_text()
PATIENCE_SECONDS = 60


def the_program() -> str:
    (block,) = [each for each in blocks(PAGE) if each.language == "python"]
    return block.text


def test_the_six_lines_write_an_invoice_once(broker: BrokerProcess, raw: RawClient, tmp_path: Path) -> None:
    program = the_program()
    assert len([line for line in program.splitlines() if line.strip()]) == 6
    topic = "invoices-of-the-home-page"
    file = tmp_path / "program.py"
    file.write_text(program.replace("127.0.0.1:9092", broker.address).replace("invoices", topic))
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert committed_values(raw, topic) == [b"invoice 1"]


def test_the_page_begins_with_what_it_is_how_to_install_it_code_and_a_picture() -> None:
    install, program = (PAGE.index(words) for words in ("pip install 'oncelog[broker]'", "async def main"))
    places = [
        PAGE.index("event log in Python"),
        install,
        program,
        PAGE.index("](images/"),
        PAGE.index("## What do you"),
    ]
    assert places == sorted(places)
    (shell,) = [block for block in blocks(PAGE) if isinstance(block, Block) and block.language == "sh"]
    assert [line.split()[:2] for line in shell.text.splitlines()] == [["pip", "install"], ["oncelog", "serve"]]
    assert "serve" in cli.list_commands(None)  # type: ignore[arg-type]
    for task in ("Test an application", "Run one broker", "Run a cluster", "Operate it", "Migrate", "what is wrong"):
        assert task in PAGE
