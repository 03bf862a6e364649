"""`oncelog acls`: allowed and denied operations on resources."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import product
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from oncelog.cli.command_config import connection_settings
from oncelog.cli.options import bootstrap_option, output_option
from oncelog.cli.output import Column, confirmed, count, show_rows, tell
from oncelog.cli.running import Failure, run

if TYPE_CHECKING:
    from oncelog_protocol.acls import AclBinding, AclFilter, PatternFilter, ResourcePattern

OPERATIONS: Final = (
    "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "DescribeConfigs",
    "AlterConfigs", "IdempotentWrite", "CreateTokens", "DescribeTokens", "TwoPhaseCommit",
)  # fmt: skip
COLUMNS: Final = tuple(
    map(Column.headed, ("Resource", "Name", "Pattern", "Principal", "Host", "Operation", "Permission"))
)
ANY: Final[Sequence[str | None]] = (None,)
F = TypeVar("F", bound=Callable[..., Any])


def resource_options(help_of_pattern: str) -> Callable[[F], F]:
    """Add the options that select resources; each option may be given several times."""
    options = (
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic, or * for all."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group, or * for all."),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="Or * for all."),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--prefixed", is_flag=True, help=help_of_pattern),
    )

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


principal_option: Final = click.option(
    "--principal", "principals", multiple=True, metavar="User:NAME", help="The principal; User:* is every user."
)
host_option: Final = click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ADDRESS",
    help="The address from which the principal connects; * means any address.",
)
operation_option: Final = click.option(
    "--operation",
    "operations",
    multiple=True,
    type=click.Choice(OPERATIONS, case_sensitive=False),
    help="What is done.",
)


@click.group()
def acls() -> None:
    """Show and change ACLs.

    Brokers check ACLs if authorizer.class.name is set. An ACL that denies an operation overrides every ACL that allows
    the operation.
    """


@acls.command()
@bootstrap_option
@resource_options("The names are beginnings of names.")
@principal_option
@host_option
@operation_option
@click.option("--deny", is_flag=True, help="Deny the operation, even if another ACL allows it.")
def add(
    bootstrap: str,
    principals: Sequence[str],
    hosts: Sequence[str],
    operations: Sequence[str],
    deny: bool,
    **resources: Any,
) -> None:
    """Add ACLs: one for each resource, principal, host and operation that is named.

    `oncelog acls add --topic orders --principal User:alice --operation Read --operation Describe`
    """
    if not principals or not operations:
        raise click.UsageError("name the principal with --principal, and the operation with --operation")

    async def command() -> list[AclBinding]:
        from oncelog.admin import Admin
        from oncelog_protocol.acls import WILDCARD, AclBinding, AclEntry, AclOperation, AclPermission

        permission = AclPermission.DENY if deny else AclPermission.ALLOW
        wanted = [
            AclBinding(pattern, AclEntry(principal, host, named(AclOperation, operation), permission))
            for pattern, principal, host, operation in product(
                patterns_of(**resources), principals, hosts or [WILDCARD], operations
            )
        ]
        if not wanted:
            raise click.UsageError("name the resource: --topic, --group, --transactional-id or --cluster")
        async with Admin(bootstrap, **connection_settings()) as admin:
            await admin.acls.create(wanted)
        return wanted

    tell(f"{count(len(run(command, bootstrap)), 'ACL')} added")


@acls.command()
@bootstrap_option
@resource_options("Only ACLs of name prefixes.")
@principal_option
@host_option
@operation_option
@click.option("--deny", "permission", flag_value="deny", help="Only ACLs that deny.")
@click.option("--allow", "permission", flag_value="allow", help="Only ACLs that allow.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@output_option
def remove(bootstrap: str, yes: bool, output: str | None, **which: Any) -> None:
    """Delete the ACLs that match the options. An omitted option matches any value."""

    async def find() -> list[AclBinding]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return sorted({acl for each in filters_of(**which) for acl in await admin.acls.describe(each)})

    async def command() -> list[AclBinding]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            deleted = await admin.acls.delete(filters_of(**which))
        return sorted(acl for found in deleted.values() for acl in found)

    if not yes:
        show_rows(COLUMNS, rows_of(run(find, bootstrap)), output)
        if not sys.stdin.isatty():
            raise Failure("removing ACLs needs a confirmation, and standard input is not a terminal: use --yes")
        if not confirmed("Remove these?"):
            raise Failure("nothing was removed")
    removed = run(command, bootstrap)
    if yes:
        show_rows(COLUMNS, rows_of(removed), output)
    tell(f"{count(len(removed), 'ACL')} removed")


@acls.command("list")
@bootstrap_option
@resource_options("Only ACLs of name prefixes.")
@principal_option
@host_option
@operation_option
@click.option(
    "--matching",
    is_flag=True,
    help="All ACLs that apply to the named resources, including ACLs for prefixes and for *.",
)
@output_option
def list_(bootstrap: str, output: str | None, **which: Any) -> None:
    """Show the ACLs that match the options. An omitted option matches any value."""

    async def command() -> list[AclBinding]:
        from oncelog.admin import Admin

        async with Admin(bootstrap, **connection_settings()) as admin:
            return sorted({acl for each in filters_of(**which) for acl in await admin.acls.describe(each)})

    show_rows(COLUMNS, rows_of(run(command, bootstrap)), output)


def rows_of(found: Iterable[AclBinding]) -> list[tuple[str, ...]]:
    """Return a row for each ACL."""
    return [
        (
            pattern.type.shown,
            pattern.name,
            pattern.pattern.shown,
            entry.principal,
            entry.host,
            entry.operation.shown,
            entry.permission.shown,
        )
        for pattern, entry in found
    ]


E = TypeVar("E", bound=IntEnum)


def named(kind: type[E], text: str) -> E:
    """Return the member of the enum `kind` with this name, ignoring case and underscores: `IdempotentWrite` is
    IDEMPOTENT_WRITE."""
    return next(member for member in kind if member.name.replace("_", "").lower() == text.lower())


def patterns_of(
    topics: Sequence[str], groups: Sequence[str], transactional_ids: Sequence[str], cluster: bool, prefixed: bool
) -> list[ResourcePattern]:
    """Return the resource patterns that the options name."""
    from oncelog_protocol.acls import CLUSTER_NAME, PatternType, ResourcePattern, ResourceType

    kind = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    of_types = (
        (ResourceType.TOPIC, topics),
        (ResourceType.GROUP, groups),
        (ResourceType.TRANSACTIONAL_ID, transactional_ids),
    )
    patterns = [ResourcePattern(type_, name, kind) for type_, names in of_types for name in names]
    if cluster:
        patterns.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return patterns


def filters_of(
    principals: Sequence[str],
    hosts: Sequence[str],
    operations: Sequence[str],
    permission: str | None = None,
    matching: bool = False,
    **resources: Any,
) -> list[AclFilter]:
    """Return the filters for the options: an omitted option matches any value."""
    from oncelog_protocol.acls import AclFilter, AclOperation, AclPermission, EntryFilter

    permissions = {None: AclPermission.ANY, "allow": AclPermission.ALLOW, "deny": AclPermission.DENY}
    return [
        AclFilter(which, EntryFilter(principal, host, named(AclOperation, operation), permissions[permission]))
        for which, principal, host, operation in product(
            _pattern_filters(matching, **resources), principals or ANY, hosts or ANY, operations or ["Any"]
        )
    ]


def _pattern_filters(matching: bool, **resources: Any) -> list[PatternFilter]:
    from oncelog_protocol.acls import PatternFilter, PatternType, ResourceType

    patterns = patterns_of(**resources)
    if patterns:
        return [
            PatternFilter(pattern.type, pattern.name, PatternType.MATCH if matching else pattern.pattern)
            for pattern in patterns
        ]
    kind = PatternType.PREFIXED if resources["prefixed"] else PatternType.ANY
    return [PatternFilter(ResourceType.ANY, None, kind)]
