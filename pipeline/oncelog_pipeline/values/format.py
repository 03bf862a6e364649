"""Describes the formats of keys and values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """Describes how bytes are decoded to columns, and columns encoded to bytes.

    `format` is binary, string, json or avro. `schema` is the text of the schema: Spark's DDL for json, Avro's JSON for
    avro. With `is_framed` each value begins with the id of the schema with which it was written (`wire.py`). `registry`
    says where the schemas are: a folder of NUMBER.avsc, or the address of a schema registry. Without a registry, all
    values are assumed to have the schema `schema`.
    """

    format: str = "binary"
    schema: str | None = None
    is_framed: bool = False
    registry: str | None = None
    fails_if_invalid: bool = True


AS_IT_IS: Final = ValueFormat()
