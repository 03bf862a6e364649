"""What the bytes of a key or a value are. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How bytes become columns, or columns bytes. `format` is binary, string, json or avro.

    `schema` is the text of one: Spark's DDL for json, Avro's JSON for avro. If it `is_framed`, the number of the schema
    that it was written with is before each value, as `wire.py` says; `registry` is where such schemas are: a folder of
    NUMBER.avsc, or the address of a schema registry; without one, all are taken to be `schema`.
    """

    format: str = "binary"
    schema: str | None = None
    is_framed: bool = False
    registry: str | None = None
    fails_if_invalid: bool = True


AS_IT_IS: Final = ValueFormat()
