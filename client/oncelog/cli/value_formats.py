"""The formats of keys and values that `consume` prints and `produce` reads, and the options that choose them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from oncelog.cli.profiles import of_profile

F = TypeVar("F", bound=Callable[..., Any])

BYTES: Final = "bytes"
NUMBERS: Final = ("short", "integer", "long", "float", "double")
WITH_SCHEMA: Final = ("avro", "json-schema", "protobuf")
REGISTRY: Final = "registry"
WRITTEN: Final = (BYTES, "json", "msgpack", *NUMBERS, *WITH_SCHEMA)
READ: Final = (*WRITTEN, REGISTRY)


@dataclass(frozen=True, slots=True)
class Format:
    """The format of keys or of values, and the location of its schema: a registry or a file."""

    name: str
    registry: str | None
    schema: Path | None
    message: str | None

    @property
    def asks_registry(self) -> bool:
        """Whether each key or value starts with the id of its schema in a registry."""
        return self.name == REGISTRY or (self.name in WITH_SCHEMA and self.registry is not None)


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of keys and of values."""

    key: Format
    value: Format

    @property
    def is_plain(self) -> bool:
        """Whether keys and values pass through as bytes."""
        return self.key.name == self.value.name == BYTES


def format_options(choices: tuple[str, ...]) -> Callable[[F], F]:
    """Add the options that choose formats; the command passes their values to `formats_of`: key_format, value_format,
    registry, key_schema, value_schema, message.
    """
    schema_file = click.Path(exists=True, dir_okay=False, path_type=Path)
    options = [
        click.option("--value", "value_format", type=click.Choice(choices), default=BYTES, help="Default: bytes."),
        click.option("--key", "key_format", type=click.Choice(choices), default=BYTES, help="Default: bytes."),
        click.option(
            "--registry",
            envvar="ONCELOG_REGISTRY",
            show_envvar=True,
            metavar="URL",
            callback=lambda context, _, value: of_profile(context, "registry", value, "registry"),
            help="A schema registry, or several URLs of it.",
        ),
        click.option("--value-schema", type=schema_file, help="The schema of values: *.avsc, *.json, *.desc."),
        click.option("--key-schema", type=schema_file, help="The schema of keys."),
        click.option("--message", metavar="NAME", help="The message of a Protobuf schema. Default: its first."),
    ]

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def formats_of(
    key_format: str,
    value_format: str,
    registry: str | None,
    key_schema: Path | None,
    value_schema: Path | None,
    message: str | None,
) -> Formats:
    """Return the formats that the options describe together. Raises UsageError."""
    for name, form, schema in (("key", key_format, key_schema), ("value", value_format, value_schema)):
        if schema is not None and form not in WITH_SCHEMA:
            raise click.UsageError(f"--{name}-schema is for --{name} {', '.join(WITH_SCHEMA)}")
        if form == REGISTRY and registry is None:
            raise click.UsageError(f"--{name} {form} needs --registry")
        if form in WITH_SCHEMA and registry is None and schema is None:
            raise click.UsageError(f"--{name} {form} needs --registry or --{name}-schema")
    if message is not None and "protobuf" not in (key_format, value_format):
        raise click.UsageError("--message is for --value protobuf and --key protobuf")
    return Formats(
        Format(key_format, registry, key_schema, message), Format(value_format, registry, value_schema, message)
    )
