"""Loads schemas by id, from a folder of NUMBER.avsc or a schema registry, each once.

Spark sends only the place to its workers; each worker process caches the schemas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from oncelog_pipeline.values.avro_types import Schema, SchemaError, parsed
from oncelog_pipeline.values.wire import InvalidValue

WEB: Final = ("http://", "https://")
TIMEOUT_SECONDS: Final = 30.0
NOT_FOUND: Final = 404


class UnreachableSchemas(Exception):
    """A folder or a registry that does not answer: nothing can be said of values."""


@lru_cache(maxsize=1000)
def schema_of(place: str, number: int) -> Schema:
    """Raises UnreachableSchemas; InvalidValue for a number that has no schema there, or no Avro one."""
    text = _from_registry(place, number) if place.startswith(WEB) else _from_folder(place, number)
    try:
        return parsed(text)
    except SchemaError as error:
        raise InvalidValue(f"schema {number} of {place} {error}") from error


def _from_folder(place: str, number: int) -> str:
    try:
        return (Path(place) / f"{number}.avsc").read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if not Path(place).is_dir():
            raise UnreachableSchemas(f"there is no folder {place} of schemas on this machine") from error
        raise InvalidValue(f"was written with schema {number}, and there is no {number}.avsc in {place}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnreachableSchemas(f"{number}.avsc in {place} cannot be read: {error}") from error


def _from_registry(place: str, number: int, opened: Callable[..., Any] = urlopen) -> str:
    address = f"{place.rstrip('/')}/schemas/ids/{number}"
    try:
        with opened(address, timeout=TIMEOUT_SECONDS) as response:
            answer = json.load(response)
    except HTTPError as error:
        error.close()  # it holds the connection
        if error.code == NOT_FOUND:
            raise InvalidValue(f"was written with schema {number}, which {place} does not have") from error
        raise UnreachableSchemas(f"{address}: {error}") from error
    except (URLError, OSError, ValueError) as error:
        raise UnreachableSchemas(f"{address} does not answer as a schema registry: {error}") from error
    if not isinstance(answer, Mapping) or "schema" not in answer:
        raise UnreachableSchemas(f"{address} does not answer as a schema registry")
    if answer.get("schemaType", "AVRO") != "AVRO":
        raise InvalidValue(f"was written with schema {number}, which is of the type {answer['schemaType']}")
    if answer.get("references"):
        raise InvalidValue(f"was written with schema {number}, which refers to other schemas: give it as a file")
    return str(answer["schema"])
