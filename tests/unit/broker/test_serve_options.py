"""`oncelog serve` parses its usual arguments without click, in the same way as click."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncelog.cli import main
from oncelog_broker import command
from oncelog_broker.serve import FIELDS, CannotServe, ServeOptions, plain_options, serve_plain


@pytest.fixture
def parsed_by_click(monkeypatch: pytest.MonkeyPatch) -> list[ServeOptions]:
    """The options that click passes on; no broker is started."""
    found: list[ServeOptions] = []

    def run(options: ServeOptions) -> int:
        found.append(options)
        return 0

    monkeypatch.setattr(command, "run", run)
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--data", "here"],
        ["--data=here", "--set", "a=b", "--set=c=d=e"],
        ["--set", "a=b", "--accept", "kind:1", "--accept", "kind:2"],
        ["--http", "127.0.0.1:0", "--log-level", "debug", "--log-format=json", "--stop-at-eof"],
        ["--workers", "auto", "--fail-control", "0"],
        ["--data", "first", "--data", "second", "--worker", "role"],
        ["--data="],
        ["--config", "FILE"],
    ],
)
def test_the_options_are_those_of_click(
    arguments: list[str], parsed_by_click: list[ServeOptions], tmp_path: Path
) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("")
    arguments = [str(file) if each == "FILE" else each for each in arguments]
    result = CliRunner().invoke(command.serve, arguments)
    assert result.exit_code == 0, result.output
    assert parsed_by_click == [plain_options(arguments)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["--dat", "here"],
        ["--data"],
        ["--data", "--set"],
        ["here"],
        ["--log-level", "DEBUG"],
        ["--log-format=xml"],
        ["--config", "missing"],
        ["--config", "/"],
        ["--stop-at-eof=yes"],
        ["--unknown", "a"],
    ],
)
def test_click_parses_everything_else(arguments: list[str]) -> None:
    """Help, errors, and what click may understand in another way."""
    assert plain_options(arguments) is None
    assert serve_plain(arguments) is None


def test_every_option_of_the_command_is_known() -> None:
    declared = {name for parameter in command.serve.params for name in parameter.opts}
    assert declared == {*FIELDS, "--stop-at-eof"}


def test_a_broker_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(options: ServeOptions) -> Any:
        raise CannotServe("no \x1b[31m luck")

    monkeypatch.setattr("oncelog_broker.serve.serve", refuse)
    assert serve_plain([]) == 1
    assert capsys.readouterr() == ("", "oncelog: cannot start: no \\x1b[31m luck\n")
    monkeypatch.setattr(command, "run", refuse)
    result = CliRunner().invoke(command.serve, [])
    assert (result.exit_code, result.output) == (1, "oncelog: cannot start: no \\x1b[31m luck\n")


def test_serve_reaches_the_broker_without_click(tmp_path: Path) -> None:
    """An invalid setting ends the command before a broker starts; both ways print the same."""
    program = (
        "import sys; from oncelog.cli import main; sys.argv[0] = 'oncelog'\n"
        "try: main.main()\n"
        "finally: print('click' in sys.modules)\n"
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-c", program, "serve", *arguments], capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    data = str(tmp_path / "data")
    code, out, plain = run("--data", data, "--set", "num.partitions=x")
    assert (code, out) == (1, "False\n")
    assert plain.startswith("oncelog: cannot start: ")
    assert run("--data", data, "--set", "num.partitions=x", "--log-leve", "info")[1] == "True\n"
    assert not Path(data).exists()


def test_other_commands_go_to_click(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main._run_plain([]) is None
    assert main._run_plain(["topics", "list"]) is None
    monkeypatch.setenv(main.COMPLETION_VARIABLE, "bash_complete")
    assert main._run_plain(["serve", "--data", "here"]) is None
