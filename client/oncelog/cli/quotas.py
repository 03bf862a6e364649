"""`oncelog quotas`: shows and changes the quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, show_rows
from oncelog.cli.running import run

if TYPE_CHECKING:
    from oncelog_protocol.quotas import Name, QuotaEntity

KEYS: Final = {
    "producer-byte-rate": "producer_byte_rate",
    "consumer-byte-rate": "consumer_byte_rate",
    "request-percentage": "request_percentage",
    "controller-mutation-rate": "controller_mutation_rate",
    "connection-creation-rate": "connection_creation_rate",
}
COLUMNS: Final = tuple(map(Column.headed, ("User", "Client id", "IP", "Quota", "Value")))
SHOWN_DEFAULT: Final = "<default>"
F = TypeVar("F", bound=Callable[..., Any])


def entity_options(function: F) -> F:
    """Add the options that select the entity."""
    options = (
        click.option("--user", metavar="NAME", help="A user: the name that follows User: in ACLs."),
        click.option("--user-default", is_flag=True, help="Each user without a quota of its own."),
        click.option("--client-id", metavar="ID", help="A client id."),
        click.option("--client-id-default", is_flag=True, help="Client ids without quotas of their own."),
        click.option("--ip", metavar="ADDRESS", help="An address."),
        click.option("--ip-default", is_flag=True, help="Addresses without quotas of their own."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _entity(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> QuotaEntity:
    """Return the entity that the options name. Raises click.UsageError."""
    from oncelog_protocol.quotas import DEFAULT, QuotaEntity

    def part(option: str, name: str | None, is_default: bool) -> Name:
        if name is not None and is_default:
            raise click.UsageError(f"--{option} and --{option}-default exclude each other")
        return DEFAULT if is_default else name

    entity = QuotaEntity(
        part("user", user, user_default), part("client-id", client_id, client_id_default), part("ip", ip, ip_default)
    )
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        raise click.UsageError("an address has quotas of its own, without users or client ids")
    return entity


@click.group()
def quotas() -> None:
    """Show and change quotas of users, client ids and addresses.

    A client over its quota is throttled. For each client, the most specific quota for its user and client id applies.
    """


@quotas.command(name="list")
@bootstrap_option
@entity_options
@click.option("--strict", is_flag=True, help="Only entities with exactly the named parts.")
@output_option
def list_(bootstrap: str, strict: bool, output: str | None, **named: Any) -> None:
    """Show the quotas that are set: all quotas, or the quotas of entities that match the options."""
    entity = _entity(**named)

    async def command() -> list[tuple[str, str, str, str, float]]:
        from oncelog.admin import Admin, QuotaFilter

        async with Admin(bootstrap, **connection_settings()) as admin:
            found = await admin.describe_client_quotas(QuotaFilter(*entity, is_strict=strict))
        return sorted(
            (_shown(user), _shown(client_id), _shown(ip), key, value)
            for (user, client_id, ip), values in found.items()
            for key, value in values.items()
        )

    show_rows(COLUMNS, run(command, bootstrap), output)


@quotas.command(name="set")
@bootstrap_option
@entity_options
@click.option("--producer-byte-rate", type=click.FloatRange(min=0, min_open=True), help="Bytes a second.")
@click.option("--consumer-byte-rate", type=click.FloatRange(min=0, min_open=True), help="Bytes a second.")
@click.option(
    "--request-percentage", type=click.FloatRange(min=0, min_open=True), help="Of the time of a broker's processor."
)
@click.option(
    "--controller-mutation-rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Partitions created and deleted a second.",
)
@click.option(
    "--connection-creation-rate", type=click.FloatRange(min=0, min_open=True), help="Of an address, a second."
)
def set_(bootstrap: str, **options: Any) -> None:
    """Set quotas; other quotas keep their values.

    `oncelog quotas set --user alice --client-id reports --consumer-byte-rate 1000000`
    """
    changes = {key: value for name, key in KEYS.items() if (value := options.pop(name.replace("-", "_"))) is not None}
    if not changes:
        raise click.UsageError(f"say which quota: {', '.join(f'--{name}' for name in KEYS)}")
    _alter(bootstrap, _entity(**options), changes)


@quotas.command()
@bootstrap_option
@entity_options
@click.argument("names", metavar="[QUOTA]...", nargs=-1, type=click.Choice(tuple(KEYS)))
def remove(bootstrap: str, names: Sequence[str], **named: Any) -> None:
    """Remove the named quotas of an entity, or all its quotas. After the removal, the next less specific quota applies
    to the entity.

    `oncelog quotas remove --user alice consumer-byte-rate`
    """
    entity = _entity(**named)
    is_address = entity.ip is not None
    of_entity = [name for name in KEYS if (name == "connection-creation-rate") == is_address]
    _alter(bootstrap, entity, {KEYS[name]: None for name in names or of_entity})


def _alter(bootstrap: str, entity: QuotaEntity, changes: dict[str, float | None]) -> None:
    if entity == (None, None, None):
        raise click.UsageError("name the entity: --user, --client-id or --ip, or one of these with -default")

    async def command() -> None:
        from oncelog.admin import Admin, QuotaAlteration

        async with Admin(bootstrap, **connection_settings()) as admin:
            await admin.alter_client_quotas([QuotaAlteration(entity, changes)])

    run(command, bootstrap)


def _shown(name: Name) -> str:
    return name if isinstance(name, str) else "" if name is None else SHOWN_DEFAULT
