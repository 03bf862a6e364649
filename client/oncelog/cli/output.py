"""Printing what a command found: a table for people, tab-separated lines for pipes, JSON on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click


def chosen_format(output: str | None) -> str:
    """`table`, `plain` or `json`: what was asked for, else by where standard output goes."""
    return output or ("table" if sys.stdout.isatty() else "plain")


def show_json(value: Any) -> None:
    """One document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_plain(rows: Sequence[Sequence[object]]) -> None:
    """A line for each row, its fields separated by tabs; no header, so that `cut` and `while read` just work."""
    for row in rows:
        click.echo("\t".join(_text(field) for field in row))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """A table as wide as the terminal allows; nothing in it is taken as markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, title_justify="left", title_style="bold", header_style="bold")
    for number, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[number], int) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_text(field)) for field in row))
    Console(file=sys.stdout, highlight=False).print(table)


def _text(field: object) -> str:
    if field is None:
        return "-"
    if isinstance(field, (list, tuple)):
        return ",".join(map(str, field))
    return str(field)
