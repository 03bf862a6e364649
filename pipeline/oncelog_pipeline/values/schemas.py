"""Loads schemas by id, from a folder of NUMBER.avsc or a schema registry; each schema is loaded once.

Spark sends only the location of the schemas to its workers; each worker process caches the schemas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from fastavro import schemaless_reader
from fastavro._read_py import schemaless_reader as reader_in_python

from oncelog.serialization.avro_bounds import check_readable, with_names
from oncelog.serialization.errors import SchemaNotFound, SchemaRegistryError, SerializationError, shown_url
from oncelog.serialization.schemas import AVRO
from oncelog_pipeline.values.avro_types import Schema, SchemaError, parsed
from oncelog_pipeline.values.wire import InvalidValue

WEB: Final = ("http://", "https://")


class UnreachableSchemas(Exception):
    """The folder or the registry of schemas cannot be reached, so the validity of values is unknown."""


class Writer(NamedTuple):
    """A schema with which values were written, and the function of `avro_bounds` with which values of this schema are
    read.
    """

    schema: Schema
    read: Callable[..., Any]


def writer_of(text: str, referred: tuple[str, ...] = ()) -> Writer:
    """Return the parsed schema; `referred` are the texts of the schemas to which it refers. Raises SchemaError."""
    named: dict[str, Any] = {}
    schema = parsed(text, referred, named)
    try:
        return Writer(schema, schemaless_reader if check_readable(with_names(schema, named)) else reader_in_python)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"cannot be read: {error}") from error


@lru_cache(maxsize=1000)
def schema_of(place: str, number: int) -> Writer:
    """Return the schema with this number. Raises UnreachableSchemas, and InvalidValue if the folder or registry has no
    Avro schema with this number.
    """
    try:
        if place.startswith(WEB):
            return writer_of(*_from_registry(place, number))
        return writer_of(_from_folder(place, number))
    except SchemaError as error:
        raise InvalidValue(f"schema {number} of {shown_url(place)} {error}") from error


def _from_folder(place: str, number: int) -> str:
    try:
        return (Path(place) / f"{number}.avsc").read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if not Path(place).is_dir():
            raise UnreachableSchemas(f"there is no folder {place} of schemas on this machine") from error
        raise InvalidValue(f"was written with schema {number}, and there is no {number}.avsc in {place}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnreachableSchemas(f"{number}.avsc in {place} cannot be read: {error}") from error


def _from_registry(place: str, number: int) -> tuple[str, tuple[str, ...]]:
    """Return the text of a schema, and the texts of the schemas to which it refers."""
    try:
        return asyncio.run(_asked(place, number))
    except SchemaNotFound as error:
        raise InvalidValue(
            f"was written with schema {number}, which {shown_url(place)} does not have: {error}"
        ) from error
    except SerializationError as error:
        raise InvalidValue(f"was written with schema {number}: {error}") from error
    except SchemaRegistryError as error:
        raise UnreachableSchemas(f"{shown_url(place)} does not answer as a schema registry: {error}") from error


async def _asked(place: str, number: int) -> tuple[str, tuple[str, ...]]:
    from oncelog.serialization.schema_registry import SchemaRegistry

    async with SchemaRegistry(place) as registry:
        schema = await registry.schema(number)
        if schema.type != AVRO:
            raise InvalidValue(f"was written with schema {number}, which is of the type {schema.type}")
        referred = await registry.referred(schema)
        return schema.text, tuple(each.text for each in referred.values())
