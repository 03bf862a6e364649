"""Tests the error message that the command prints if the console's packages are not installed."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from oncelog.cli.group import cli


def test_without_its_extra_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("oncelog_console")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    told = CliRunner().invoke(cli, ["console"])
    assert told.exit_code == 1
    assert "pip install 'oncelog[console]'" in told.output
