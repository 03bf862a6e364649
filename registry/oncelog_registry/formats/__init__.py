"""The formats of schemas: their parsers, and the check whether a schema can read data written with another schema.

avro_schema.py  Avro, by Apache's library
json_schema.py  JSON Schema: the check of a document by jsonschema, the comparison of two by rules of ours
protobuf.py     Protobuf: the compiler in a process of its own, the comparison of two descriptors
fingerprints.py what makes two schemas the same schema
resolved.py     a schema with those that it refers to
depth.py        how deep a document may nest
time_limit.py   how long a comparison may take

A schema is parsed together with the texts that it refers to; parsing and comparing may take long, so both run in a
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from oncelog_registry.formats.fingerprints import fingerprint
from oncelog_registry.formats.resolved import Resolved
from oncelog_registry.schemas import AVRO, JSON, PROTOBUF

__all__ = ["Format", "Resolved", "fingerprint", "format_of"]


class Format(NamedTuple):
    """`parse` returns the argument of `differences`; raises ValueError with the reason if the schema is invalid.
    `differences(reader, writer)` returns the reasons why the reader cannot read data of the writer; empty if it can."""

    parse: Callable[[Resolved], Any]
    differences: Callable[[Any, Any], list[str]]


def format_of(schema_type: str) -> Format:
    """Return the format of a schema type. The libraries of a format are loaded at first use. Raises KeyError for an
    unknown type.
    """
    return _FORMATS[schema_type]()


def _avro() -> Format:
    from oncelog_registry.formats import avro_schema

    return Format(avro_schema.parse, avro_schema.differences)


def _json() -> Format:
    from oncelog_registry.formats import json_schema

    return Format(json_schema.parse, json_schema.differences)


def _protobuf() -> Format:
    from oncelog_registry.formats import protobuf

    return Format(protobuf.parse, protobuf.differences)


_FORMATS: Mapping[str, Callable[[], Format]] = {AVRO: _avro, JSON: _json, PROTOBUF: _protobuf}
