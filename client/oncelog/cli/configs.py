"""`oncelog configs`: show and change settings of topics, groups and brokers, with their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import KEY_VALUE, bootstrap_option, output_option
from oncelog.cli.output import Column, show_rows, tell
from oncelog.cli.running import Failure, run
from oncelog.cli.targets import check_brokers

if TYPE_CHECKING:
    from oncelog.admin.resources import AlterConfig, ConfigEntry, ConfigResource

F = TypeVar("F", bound=Callable[..., Any])
HIDDEN: Final = "(hidden)"
SOURCES: Final = {
    "TOPIC_CONFIG": "topic",
    "GROUP_CONFIG": "group",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "file",
    "DEFAULT_CONFIG": "default",
    "DYNAMIC_BROKER_LOGGER_CONFIG": "this process",
}
"""The source of a value, in words."""
COLUMNS: Final = (*map(Column.headed, ("Resource", "Key", "Value", "Source")), Column("read_only", "Read only"))
DOCUMENTATION: Final = Column.headed("Documentation")


class Named(NamedTuple):
    """The resources that the options name: topics, groups, ids of brokers, ids of brokers for their loggers, and
    whether the options name the defaults of all brokers.
    """

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    brokers: tuple[int, ...]
    loggers: tuple[int, ...]
    is_default: bool

    def resources(self) -> list[ConfigResource]:
        """Return the resources, without duplicates. Raises UsageError if none is named."""
        from oncelog.admin.resources import ConfigResource

        named = [
            *map(ConfigResource.topic, self.topics),
            *map(ConfigResource.group, self.groups),
            *map(ConfigResource.broker, self.brokers),
            *map(ConfigResource.broker_logger, self.loggers),
        ]
        if self.is_default:
            named.append(ConfigResource.broker())
        if not named:
            raise click.UsageError("whose settings? --topic, --group, --broker, --loggers or --all-brokers is needed")
        return list(dict.fromkeys(named))


def whose(command: F) -> F:
    """Add the options that select resources; the command receives the selection as the argument `named`."""

    @wraps(command)
    def with_named(
        topics: tuple[str, ...],
        groups: tuple[str, ...],
        brokers: tuple[int, ...],
        loggers: tuple[int, ...],
        is_default: bool,
        **others: Any,
    ) -> Any:
        return command(named=Named(topics, groups, brokers, loggers, is_default), **others)

    made: Any = with_named
    for option in (
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="Of this topic. May be repeated."),
        click.option("--group", "groups", multiple=True, metavar="NAME",
                     help="Of this consumer group or share group. May be repeated."),
        click.option("--broker", "brokers", type=click.IntRange(min=0), multiple=True, metavar="ID",
                     help="Of this broker. May be repeated."),
        click.option("--loggers", "loggers", type=click.IntRange(min=0), multiple=True, metavar="ID",
                     help="The levels of the loggers of this broker, until it ends. May be repeated."),
        click.option("--all-brokers", "is_default", is_flag=True, help="The cluster-wide default of all brokers."),
    ):  # fmt: skip
        made = option(made)
    return cast(F, made)


@click.group()
def configs() -> None:
    """Describe, set and delete the settings of topics, groups and brokers."""


@configs.command()
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@whose
@bootstrap_option
@output_option
@click.option("--all", "shows_all", is_flag=True, help="Also settings with Kafka's or oncelog's default value.")
@click.option("--documentation", "with_documentation", is_flag=True, help="The documentation of each setting.")
def describe(
    keys: tuple[str, ...],
    named: Named,
    bootstrap: str,
    output: str | None,
    shows_all: bool,
    with_documentation: bool,
) -> None:
    """Show settings: by default only keys with a value of their own on the resource; otherwise the named keys, or all
    keys with --all.

    Plain output: resource, key, value, source, and whether it can be changed while the broker runs; and documentation,
    if requested.
    """
    resources = named.resources()

    async def command() -> dict[ConfigResource, dict[str, ConfigEntry]]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await check_brokers(admin, named.brokers + named.loggers)
            return await admin.describe_configs(
                resources, keys=list(keys) or None, include_documentation=with_documentation
            )

    found = run(command, bootstrap)
    for key in keys:
        if not any(entry.name == key for entries in found.values() for entry in entries.values()):
            raise Failure(f"{', '.join(map(str, resources))}: unknown setting {key!r}")
    rows = [
        row if with_documentation else row[:-1]
        for resource in resources
        for row in rows_of(resource, found[resource].values(), shows_all=shows_all or bool(keys))
    ]
    show_rows((*COLUMNS, DOCUMENTATION) if with_documentation else COLUMNS, rows, output)


@configs.command(name="set")
@click.argument("assignments", type=KEY_VALUE, nargs=-1, required=True, metavar="KEY=VALUE...")
@whose
@bootstrap_option
@click.option("--check", is_flag=True, help="Change nothing, and say whether it would be allowed.")
def set_(
    assignments: tuple[tuple[str, str], ...],
    named: Named,
    bootstrap: str,
    check: bool,
) -> None:
    """Set KEY to VALUE; other settings stay as they are."""
    from oncelog.admin.resources import AlterConfig

    changes = [AlterConfig(key, value) for key, value in assignments]
    _alter(named, changes, bootstrap, check=check)


@configs.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@whose
@bootstrap_option
@click.option("--check", is_flag=True, help="Change nothing, and say whether it would be allowed.")
def delete(
    keys: tuple[str, ...],
    named: Named,
    bootstrap: str,
    check: bool,
) -> None:
    """Remove the value of KEY from this resource, so that the broker's value or the default applies."""
    from oncelog.admin.resources import AlterConfig, AlterOperation

    changes = [AlterConfig(key, None, AlterOperation.DELETE) for key in keys]
    _alter(named, changes, bootstrap, check=check)


def _alter(named: Named, changes: list[AlterConfig], bootstrap: str, *, check: bool) -> None:
    resources = named.resources()

    async def command() -> None:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            await check_brokers(admin, named.brokers + named.loggers)
            await admin.incremental_alter_configs(dict.fromkeys(resources, changes), validate_only=check)

    run(command, bootstrap)
    tell(f"{'would alter' if check else 'altered'} {', '.join(map(str, resources))}")


def rows_of(
    resource: ConfigResource, entries: Iterable[ConfigEntry], *, shows_all: bool
) -> list[tuple[str, str, str | None, str, bool, str | None]]:
    """Return a row of COLUMNS and DOCUMENTATION for each entry, sorted by key."""
    return [
        (
            str(resource),
            entry.name,
            HIDDEN if entry.is_sensitive else entry.value,
            SOURCES.get(entry.source.name, entry.source.name.lower()),
            entry.is_read_only,
            entry.documentation,
        )
        for entry in sorted(entries, key=lambda entry: entry.name)
        if shows_all or not entry.is_default
    ]
