"""Options and value types that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from oncelog.cli.command_config import connection_settings, take_over
from oncelog.cli.output import OUTPUTS, chosen_document, wish_headings
from oncelog.cli.profiles import choose_profile, of_profile

V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

_bootstrap: Final = click.option(
    "--bootstrap-server",
    "-b",
    "bootstrap",
    envvar="ONCELOG_BOOTSTRAP_SERVER",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    show_envvar=True,
    callback=lambda context, _, value: of_profile(context, "bootstrap", value, "bootstrap_servers"),
    metavar="HOST:PORT,...",
    help="A broker of the cluster, or several.",
)
_command_config: Final = click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="ONCELOG_COMMAND_CONFIG",
    show_envvar=True,
    expose_value=False,
    callback=take_over,
    metavar="FILE",
    help="A properties file with Kafka's keys: how to connect (security.protocol, sasl.jaas.config, ...).",
)


_profile: Final = click.option(
    "--profile",
    envvar="ONCELOG_PROFILE",
    show_envvar=True,
    is_eager=True,
    expose_value=False,
    callback=choose_profile,
    metavar="NAME",
    help="The profile of a cluster, see `oncelog profile`. Default: the current one.",
)


def bootstrap_option(command: F) -> F:
    """Add the options that name the brokers and the connection settings; clients get `connection_settings`."""
    return _bootstrap(_command_config(_profile(command)))


_output: Final = click.option(
    "--output",
    "-o",
    type=click.Choice(OUTPUTS),
    callback=chosen_document,
    help="The output format. Default: a table on a terminal, otherwise plain lines of tab-separated fields.",
)
_headings: Final = click.option(
    "--headings",
    is_flag=True,
    expose_value=False,
    callback=wish_headings,
    help="With plain output: first a line with the names of the fields.",
)


def output_option(command: F) -> F:
    """Add the option --output, which selects the output format of the module `output`."""
    return _output(_headings(command))


def parsed(name: str, parse: Callable[[str], V]) -> Callable[[str], V]:
    """Return a click parameter type for a conversion function that raises ValueError with a message for the user; the
    help text shows `name`.
    """

    def convert(value: str) -> V:
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    convert.__name__ = name
    return convert


def key_value(text: str) -> tuple[str, str]:
    """Parse `key=value`. Raises ValueError."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return key, value


KEY_VALUE: Final = parsed("KEY=VALUE", key_value)


def client_settings(pairs: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Convert `-D linger.ms=5` into keyword arguments of a client: {"linger_ms": 5}, which are added to the keyword
    arguments from --command-config. The client checks the keys.
    """
    return connection_settings() | {key.replace(".", "_"): _setting(key, value) for key, value in pairs}


def _setting(key: str, value: str) -> bool | int | str:
    """Return the value as text if the option is declared as text (`client.id=7`); otherwise as a number or boolean if
    possible.
    """
    from oncelog.config import AdminConfig, ConsumerConfig, ProducerConfig, declared_types
    from oncelog.type_checks import takes_text

    name = key.replace(".", "_")
    if any(takes_text(declared_types(config).get(name)) for config in (AdminConfig, ConsumerConfig, ProducerConfig)):
        return value
    if value in ("true", "false"):
        return value == "true"
    try:
        return int(value)
    except ValueError:
        return value
