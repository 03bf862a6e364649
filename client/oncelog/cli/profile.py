"""`oncelog profile`: stores named connection settings and chooses among them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from oncelog.cli.options import output_option
from oncelog.cli.output import Column, show_rows, tell
from oncelog.cli.profiles import Profile, Profiles, profiles_path, read_profiles, write_profiles
from oncelog.cli.running import Failure

COLUMNS: Final = tuple(map(Column.headed, ("Profile", "Current", "Bootstrap servers", "Command config", "Registry")))


@click.group()
def profile() -> None:
    """Store the settings of several clusters under names, and choose one of them.

    If --bootstrap-server, --command-config or --registry is not given, a command uses the value in a profile: the
    profile that --profile (or ONCELOG_PROFILE) names, otherwise the current profile. The file is
    ~/.config/oncelog/profiles.yaml (XDG_CONFIG_HOME, ONCELOG_PROFILES).

    \b
      oncelog profile set staging -b kafka-1:9092,kafka-2:9092 --registry http://registry:8081
      oncelog profile use staging
      oncelog topics list --profile production
    """


@profile.command(name="list")
@output_option
def list_(output: str | None) -> None:
    """List the profiles. Plain output: name, whether it is the current profile, bootstrap servers, command config,
    registry without a password.
    """
    from oncelog.serialization.errors import shown_url

    known = read_profiles()
    rows = [
        (
            name,
            name == known.current,
            each.bootstrap_servers,
            each.command_config,
            None if each.registry is None else shown_url(each.registry),
        )
        for name, each in sorted(known.profiles.items())
    ]
    show_rows(COLUMNS, rows, output)


@profile.command(name="set")
@click.argument("name")
@click.option("--bootstrap-server", "-b", "bootstrap", required=True, metavar="HOST:PORT,...", help="Of the cluster.")
@click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    metavar="FILE",
    help="A properties file with Kafka's keys: how to connect. Its path is kept, not its content.",
)
@click.option("--registry", metavar="URL", help="The schema registry of the cluster.")
def set_(name: str, bootstrap: str, command_config: Path | None, registry: str | None) -> None:
    """Store a profile, and replace an earlier profile of the same name. The first profile becomes the current
    profile."""
    from oncelog.config import ClientConfig, load
    from oncelog.errors import ConfigError

    try:
        load(ClientConfig, bootstrap, {})
    except ConfigError as error:
        raise click.BadParameter(error.message, param_hint="--bootstrap-server") from error
    known = read_profiles()
    known.profiles[name] = Profile(bootstrap, None if command_config is None else str(command_config), registry)
    if known.current is None:
        known.current = name
    _write(known)
    tell(f"kept the profile {name} in {profiles_path()}" + (", the current one" if known.current == name else ""))


@profile.command()
@click.argument("name")
def use(name: str) -> None:
    """Make a profile the current one."""
    known = read_profiles()
    known.named(name)
    known.current = name
    _write(known)
    tell(f"commands use the profile {name} now")


@profile.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a profile. If the removed profile was the current profile, there is no current profile afterwards."""
    known = read_profiles()
    known.named(name)
    del known.profiles[name]
    if known.current == name:
        known.current = None
    _write(known)
    tell(f"removed the profile {name}")


def _write(known: Profiles) -> None:
    try:
        write_profiles(known)
    except OSError as error:
        raise Failure(f"cannot write {profiles_path()}: {error.strerror or error}") from error
