"""The commands of `oncelog`: finds a command by its name and loads only that command, so that each starts fast.

Commands of this package are listed in BUILT_IN. All other commands are entry points of the group `oncelog.commands`;
the broker adds `serve` and `dump` this way, because the client may not import the broker. Looking up entry points takes
some 25 ms, because importlib.metadata reads every installed package. Tools start `serve` often, so it must start
without this delay; SHORTCUTS therefore repeats the entry point of `serve`. SHORTCUTS repeats only a name and imports
nothing; a test checks that the name equals the one in pyproject.toml.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.running import Failure
from oncelog.escaping import visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

BUILT_IN: Final = {
    "topics": "oncelog.cli.topics:topics",
    "leaders": "oncelog.cli.leaders:leaders",
    "groups": "oncelog.cli.groups:groups",
    "shares": "oncelog.cli.shares:shares",
    "txns": "oncelog.cli.txns:txns",
    "configs": "oncelog.cli.configs:configs",
    "bench": "oncelog.cli.bench:bench",
    "top": "oncelog.cli.top:top",
    "completion": "oncelog.cli.completion:completion",
    "brokers": "oncelog.cli.brokers:brokers",
    "doctor": "oncelog.cli.doctor:doctor",
    "support": "oncelog.cli.support:support",
    "reassign": "oncelog.cli.reassign:reassign",
    "acls": "oncelog.cli.acls:acls",
    "log-dirs": "oncelog.cli.log_dirs:log_dirs",
    "explain": "oncelog.cli.explain:explain",
    "produce": "oncelog.cli.produce:produce",
    "consume": "oncelog.cli.consume:consume",
    "profile": "oncelog.cli.profile:profile",
    "ping": "oncelog.cli.ping:ping",
    "users": "oncelog.cli.users:users",
    "quotas": "oncelog.cli.quotas:quotas",
}
SHORTCUTS: Final = {"serve": "oncelog_broker.command:serve", "judge": "oncelog_testing.judge.command:judge"}
EXTRAS: Final = {"console": "console", "pipeline": "pipeline", "registry": "registry"}
"""Maps a command to the extra of the distribution that the command needs; commands without an entry need the extra
`broker`.
"""
ENTRY_POINT_GROUP: Final = "oncelog.commands"


class LazyCommands(click.Group):
    """A click group that imports its commands when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(BUILT_IN.keys() | _added_commands().keys())

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions with the names of commands only, because their help texts would require importing all
        commands.
        """
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or super().shell_complete(ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Error messages may quote clients or brokers, so they are escaped for the terminal."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = visible(error.message, "\n")  # type: ignore[misc]
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command by its name. For an unknown name, raises a UsageError that suggests the nearest names; click
        alone would search only the commands that are already loaded.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx))
            if not near or self.get_command(ctx, args[0]) is not None:
                raise
            names = " or ".join(map(repr, near))
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {names}?", ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = BUILT_IN.get(cmd_name) or SHORTCUTS.get(cmd_name) or _added_commands().get(cmd_name)
        return None if target is None else _load(cmd_name, target)


def _added_commands() -> dict[str, str]:
    """Return the commands that installed packages add: name -> `module:attribute`."""
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINT_GROUP)}


def _load(name: str, target: str) -> click.Command:
    """Import a command. Raises Failure if a package that the command needs is not installed."""
    module, _, attribute = target.partition(":")
    try:
        command = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise Failure(
            f"the command {name!r} needs {error.name}, which is not installed: "
            f"pip install 'oncelog[{EXTRAS.get(name, 'broker')}]'"
        ) from error
    assert isinstance(command, click.Command), f"{target} is not a click command"
    return command


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="oncelog")
def cli() -> None:
    """oncelog: a Kafka-protocol event log.

    Every command says more with --help. Commands that connect to a broker read its address from --bootstrap-server,
    ONCELOG_BOOTSTRAP_SERVER or a profile (oncelog profile --help).
    """
