"""The `oncelog` command."""

from __future__ import annotations

from importlib.metadata import entry_points

import click


@click.group()
def main() -> None:
    """A Kafka-protocol event log."""


for entry_point in entry_points(group="oncelog.commands"):
    if entry_point.name == "serve":
        main.add_command(entry_point.load(), "serve")
