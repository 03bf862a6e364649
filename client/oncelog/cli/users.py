"""`oncelog users`: lists and changes SCRAM users."""

from __future__ import annotations

import sys
from typing import IO, Final

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import chosen_format, show_document, show_plain, show_table
from oncelog.cli.running import run

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
COLUMNS: Final = ("User", "Mechanism", "Iterations")


@click.group()
def users() -> None:
    """Add, change, list and remove SCRAM users (SASL).

    The broker's setting sasl.scram.first.users creates the first user. Passwords are salted in this command and never
    sent.
    """


@users.command(name="set")
@bootstrap_option
@click.argument("name")
@click.option("--password-file", type=click.File(), help="The file with the password; - is standard input.")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(MECHANISMS),
    multiple=True,
    default=MECHANISMS,
    show_default=True,
    help="For which mechanism; repeatable.",
)
@click.option("--iterations", type=int, default=4096, show_default=True, help="From 4096 to 16384.")
def set_user(
    bootstrap: str, name: str, password_file: IO[str] | None, mechanisms: tuple[str, ...], iterations: int
) -> None:
    """Add a user, or change its password. Without --password-file the password is prompted for."""
    if password_file is None:
        if not sys.stdin.isatty():
            raise click.UsageError("no terminal to ask for the password on: give --password-file")
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = password_file.read().removesuffix("\n")

    async def command() -> None:
        from oncelog.admin import Admin
        from oncelog.admin.users import ScramUpsertion

        async with Admin(bootstrap, **connection_settings()) as admin:
            await admin.alter_user_scram_credentials(
                ScramUpsertion(name, password, mechanism, iterations) for mechanism in mechanisms
            )

    run(command, bootstrap)


@users.command(name="list")
@bootstrap_option
@output_option
def list_users(bootstrap: str, output: str | None) -> None:
    """List the SCRAM users and their mechanisms."""

    async def command() -> list[tuple[str, str, int]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            found = await admin.describe_user_scram_credentials()
        return [(user, info.mechanism, info.iterations) for user, infos in sorted(found.items()) for info in infos]

    rows = run(command, bootstrap)
    match chosen_format(output):
        case "json":
            show_document([dict(zip(("user", "mechanism", "iterations"), row, strict=True)) for row in rows])
        case "plain":
            show_plain(rows, COLUMNS)
        case _:
            show_table(COLUMNS, rows)


@users.command(name="remove")
@bootstrap_option
@click.argument("name")
def remove(bootstrap: str, name: str) -> None:
    """Remove a user and the credentials of all its mechanisms. Open connections of the user stay open until their login
    expires.
    """

    async def command() -> None:
        from oncelog.admin import Admin
        from oncelog.admin.users import ScramDeletion

        async with Admin(bootstrap, **connection_settings()) as admin:
            infos = (await admin.describe_user_scram_credentials([name]))[name]
            await admin.alter_user_scram_credentials(ScramDeletion(name, info.mechanism) for info in infos)

    run(command, bootstrap)
