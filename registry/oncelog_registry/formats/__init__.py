"""The formats of schemas: their parsers, and the check whether a schema can read data written with another schema.

- `avro_schema` parses and compares Avro schemas, by Apache's library.
- `json_schema` checks JSON Schema documents by the library jsonschema, and compares two schemas by its own rules.
- `protobuf` compiles Protobuf files in a separate process, and compares two descriptors.
- `fingerprints` decides whether two schemas are the same schema.
- `resolved` is a schema with the schemas that it refers to.
- `depth` limits how deep a document may nest.
- `time_limit` limits how long a comparison may take.

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
    """A format of schemas. `parse` returns the parsed schema, which `differences` compares; it raises ValueError with
    the reason if the schema is invalid. `differences(reader, writer)` returns the reasons why the reader cannot read
    data of the writer; empty if it can.
    """

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
