"""The formats of keys and values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How bytes become columns, and columns bytes.

    `format` is binary, string, json or avro. `schema` is its text: Spark's DDL for json, Avro's JSON for avro. If it
    `is_framed`, each value begins with the id of the schema that it was written with (`wire.py`). `registry` has the
    schemas: a folder of NUMBER.avsc, or the address of a schema registry. Without a registry, all values are taken to
    be of `schema`.
    """

    format: str = "binary"
    schema: str | None = None
    is_framed: bool = False
    registry: str | None = None
    fails_if_invalid: bool = True


AS_IT_IS: Final = ValueFormat()
