"""The guides name only commands and options of `oncelog` that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from oncelog.cli.group import cli

ROOT = Path(__file__).parents[2]
PAGES = [
    "docs/index.md",
    *(f"docs/guides/{name}.md" for name in ("troubleshooting", "watching", "cluster", "compared")),
]
CODE = re.compile(r"```sh[^\n]*\n(?P<block>.*?)```|`(?P<words>oncelog [^`]+)`", re.DOTALL)


def commands_of(page: str) -> list[list[str]]:
    """Return the words of each `oncelog` command in the code blocks of a page."""
    found = []
    for match in CODE.finditer((ROOT / page).read_text()):
        text = match["block"] or " ".join(match["words"].split())
        for line in text.splitlines():
            for part in re.split(r"\||>|;|&&", line.partition(" #")[0]):
                words = shlex.split(part)
                if words and words[0] == "oncelog":
                    found.append(words[1:])
    return found


def problem_of(words: list[str]) -> str | None:
    """Return click's error for this command or one of its options; None if click accepts it."""
    command: click.Command = cli
    context = click.Context(cli)
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        if found is None:
            return f"there is no {rest[0]}"
        command, rest = found, rest[1:]
    known = {"--help"} | {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in known]
    return f"{command.name} has no {unknown[0]}" if unknown else None


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_a_guide_exists_with_its_options(page: str) -> None:
    commands = commands_of(page)
    assert {" ".join(words): problem for words in commands if (problem := problem_of(words))} == {}


def test_a_command_or_option_that_does_not_exist_is_found() -> None:
    assert problem_of(["topics", "lst"]) == "there is no lst"
    assert problem_of(["topics", "list", "--internl"]) == "list has no --internl"
    assert problem_of(["topics", "list", "--internal"]) is None
    assert len(commands_of("docs/guides/troubleshooting.md")) > 20
