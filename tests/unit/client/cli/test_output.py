"""All output of commands goes through `oncelog.cli.output`, which escapes control characters in names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import oncelog.cli
import oncelog_broker.dump
import oncelog_pipeline.jobs
from oncelog.cli.options import output_option
from oncelog.cli.output import Column, show_rows

PACKAGES = [
    Path(package.__file__ or "").parent for package in (oncelog.cli, oncelog_broker.dump, oncelog_pipeline.jobs)
]
ALLOWED = {
    "output.py": "it makes everything visible",
    "completion.py": "prints a script of click's for the shell",
    "running.py": "Failure makes its message visible",
    "watching.py": "makes each cell visible",
}
PRINTS = {"echo", "secho", "confirm", "prompt", "print"}


def calls(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, function) of each call that prints."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            is_constant = all(isinstance(argument, ast.Constant) for argument in node.args)
            if name in PRINTS and not is_constant:
                yield node.lineno, name


@pytest.mark.parametrize(
    "path",
    [path for package in PACKAGES for path in sorted(package.rglob("*.py"))],
    ids=lambda path: "/".join(path.parts[-3:]),
)
def test_a_command_prints_through_output(path: Path) -> None:
    if path.name in ALLOWED:
        return
    # Tables printed with rich are allowed, because `cell` and `visible` have escaped their cells.
    found = [where for where in calls(path) if not (path.name == "top.py" and where[1] == "print")]
    assert found == [], f"{path}: use say, tell, confirmed or show_... of oncelog.cli.output"


@pytest.mark.parametrize(("arguments", "lines"), [([], ["1\t-"]), (["--headings"], ["Number\tNothing", "1\t-"])])
def test_plain_output_has_headings_on_request(arguments: list[str], lines: list[str]) -> None:
    @click.command()
    @output_option
    def command(output: str | None) -> None:
        show_rows((Column.headed("Number"), Column.headed("Nothing")), [(1, None)], output)

    assert CliRunner().invoke(command, ["-o", "plain", *arguments]).output.splitlines() == lines
    assert "Number" in CliRunner().invoke(command, ["-o", "table"]).output
