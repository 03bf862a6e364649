"""docs/reference/commands.md: `oncelog` and every command below it, with arguments, options and defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import Final

import click

from docs_site.reference.markdown import cell, code, table
from oncelog.cli.group import cli

INTRODUCTION: Final = """\
The commands of the `oncelog` program. `oncelog COMMAND --help` prints the same text, and `oncelog completion bash` (or
`zsh`, `fish`) prints a completion script for your shell. The commands send Kafka's own requests; all commands except
`serve`, `dump` and `cluster` also work with Apache Kafka.

Four options have the same meaning in every command: `-b`, `--bootstrap-server` (or `ONCELOG_BOOTSTRAP_SERVER`) sets the
address of the cluster. `--command-config` names a properties file with Kafka's keys for the login. `--profile` names a
[profile](#oncelog-profile-set) that contains both. `-o`, `--output` selects a table, JSON, YAML or plain lines of
tab-separated fields. Plain lines are meant for programs: they have headings only with `--headings`, and the description
of each command lists its fields in order. `-o table` also prints headings into a pipe.

Names, metadata and messages may contain text from any user of the cluster. In tables, plain lines and messages, each
control character, and each character that is invisible, is written as an escape (`\\x1b`, `\\u202e`, also tabs and line
breaks); JSON and YAML keep the value. `consume` prints values unchanged, and escapes keys, headers and topics when it
prints to a terminal.
"""
_UNWRAPPED: Final = "\b"


def document() -> str:
    """The page."""
    parts = ["# Commands\n", INTRODUCTION]
    parts += [_shown(command, context) for command, context in _commands(cli, click.Context(cli, info_name="oncelog"))]
    return "\n".join(parts)


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """This command, if it is more than a group, and all commands below it."""
    if context.parent is not None:
        yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            if not below.hidden:
                yield from _commands(below, click.Context(below, info_name=name, parent=context))


def _shown(command: click.Command, context: click.Context) -> str:
    level = "##" if context.parent is not None and context.parent.parent is None else "###"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"{level} {context.command_path}\n", f"```text\n{usage}\n```\n", f"{_text(command.help or '')}\n"]
    if rows := [[code(left), cell(right)] for left, right in _options(command, context)]:
        parts.append(table(["Option", "Meaning"], rows))
    return "\n".join(parts)


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            yield record


def _text(help_text: str) -> str:
    """A command's help as Markdown: unwrapped and indented text becomes a block of code."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", cleandoc(help_text)):
        lines = paragraph.split("\n")
        if lines[0].strip() == _UNWRAPPED:
            lines = lines[1:]
            parts.append(_block(lines))
        elif lines[0].startswith("  "):
            parts.append(_block(lines))
        else:
            parts.append(re.sub(r"[<>]", r"\\\g<0>", paragraph))
    return "\n\n".join(parts)


def _block(lines: list[str]) -> str:
    indented = cleandoc("\n" + "\n".join(lines))
    return f"```text\n{indented}\n```"
