"""Prints the result of a command: a table for people, tab-separated lines for pipes, JSON or YAML on request.

A command knows three formats: `table`, `plain` and `json`; `json` stands for any structured document. Only this module
knows
whether a document is written as JSON or as YAML, from the option --output (`chosen_document` stores the choice).

All output of commands goes through this module, so that no name that a client chose can send escape sequences to a
terminal (`escaping`). A test fails if a command prints without this module. The records of `consume` and `dump` have
their own renderers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import click

from oncelog.escaping import visible, visible_json

JSON: Final = "json"
YAML: Final = "yaml"
OUTPUTS: Final = ("table", JSON, YAML, "plain")
YAML_CHOSEN: Final = "oncelog.yaml"
"""The key of the chosen document format in the `meta` of click's context, which click shares between a command and its
parent commands.
"""
HEADINGS_WISHED: Final = "oncelog.headings"


def _as_it_is(value: Any) -> object:
    return value


class Column(NamedTuple):
    """A column of the output: `name` is its key in JSON, `heading` its heading in tables, and `shown(value)` the text
    of a value in tables.
    """

    name: str
    heading: str
    shown: Callable[[Any], object] = _as_it_is

    @classmethod
    def headed(cls, heading: str, shown: Callable[[Any], object] = _as_it_is) -> Column:
        """Return a column whose JSON key is derived from its heading: "Producer id" becomes "producer_id"."""
        return cls(heading.lower().replace(" ", "_"), heading, shown)


def chosen_format(output: str | None) -> str:
    """Return `table`, `plain` or `json`: the requested format, otherwise `table` on a terminal and `plain`
    elsewhere."""
    return output or ("table" if sys.stdout.isatty() else "plain")


def chosen_document(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
    """Handle --output as a callback of click: with `yaml`, the command gets the format `json`, but the document is
    printed as YAML.
    """
    if value == YAML:
        context.meta[YAML_CHOSEN] = True
        return JSON
    return value


def wish_headings(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Handle --headings as a callback of click."""
    if value:
        context.meta[HEADINGS_WISHED] = True


def show_document(value: Any) -> None:
    """Print one document in the format of --output."""
    context = click.get_current_context(silent=True)
    if context is None or YAML_CHOSEN not in context.meta:
        show_json(json.dumps(value, indent=2, ensure_ascii=False))
        return
    import yaml

    # The YAML document has the values that JSON has: tuples become lists, keys become strings.
    text = json.dumps(value, ensure_ascii=False)
    # The YAML library leaves characters that change the text direction unescaped unless it escapes all non-ASCII
    # characters, so it must escape them all.
    shown = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=text.isprintable(), width=120)
    click.echo(shown, nl=False)


def show_json(document: str) -> None:
    """Print a document that is already JSON."""
    click.echo(visible_json(document))


def show_plain(rows: Sequence[Sequence[object]], headings: Sequence[str] = ()) -> None:
    """Print a line for each row, its fields separated by tabs. `headings` are printed only with --headings, so that by
    default `cut` and `while read` need not skip a line.
    """
    context = click.get_current_context(silent=True)
    wished = context is not None and HEADINGS_WISHED in context.meta
    for row in [headings, *rows] if wished and headings else rows:
        click.echo("\t".join(cell(field) for field in row))


def say(text: str) -> None:
    """Print one line on standard output, with control characters escaped."""
    click.echo(visible(text))


def tell(text: str, *, end: bool = True, start: str = "") -> None:
    """Print one line on standard error, for messages. `start`, a carriage return, is not escaped."""
    click.echo(start + visible(text), err=True, nl=end)


def confirmed(question: str) -> bool:
    """Ask for confirmation on the terminal."""
    return click.confirm(visible(question), err=True)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *title: str) -> None:
    """Print a table as wide as the terminal, below its title; markup in the texts is not interpreted."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    above = Text("\n".join(map(visible, title))) if title else None
    table = Table(title=above, title_justify="left", title_style="bold", header_style="bold")
    for number, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[number], int) for row in rows)
        table.add_column(Text(visible(column)), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(field)) for field in row))
    Console(file=sys.stdout, highlight=False).print(table)


def show_rows(columns: Sequence[Column], rows: Sequence[Sequence[Any]], output: str | None) -> None:
    """Print the rows in the format that `output` or the terminal requires."""
    match chosen_format(output):
        case "json":
            show_document([{column.name: value for column, value in zip(columns, row, strict=True)} for row in rows])
        case "plain":
            show_plain(rows, [column.heading for column in columns])
        case _:
            shown = [[column.shown(value) for column, value in zip(columns, row, strict=True)] for row in rows]
            show_table([column.heading for column in columns], shown)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 partition`, `2 partitions`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cell(field: object) -> str:
    """Return the text of a value in a table or a plain line: one line, without control sequences of a terminal."""
    return visible(_text(field))


def _text(field: object) -> str:
    if field is None:
        return "-"
    if isinstance(field, bool):
        return "yes" if field else "no"
    if isinstance(field, (list, tuple)):
        return ",".join(map(str, field))
    return str(field)
