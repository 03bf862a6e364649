"""Maps Avro schemas to Arrow types. Pure.

A union with null becomes a nullable column. A union of int and long becomes a long, and a union of float and double
becomes a double. Other unions are refused. The logical types that Spark also has are kept: decimal, date and
timestamps. A uuid becomes a string; times of day remain numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

Schema = Any
"""A schema in fastavro's form: a name, a list for a union, or a dict."""


class SchemaError(ValueError):
    """The text is not an Avro schema, or the schema has no Spark type; the message says where."""


PLAIN: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
MAX_PRECISION: Final = 38
"""The maximum number of digits of a decimal in Spark."""
WIDENED: Final[Mapping[frozenset[str], pa.DataType]] = {
    frozenset({"int", "long"}): pa.int64(),
    frozenset({"float", "double"}): pa.float64(),
}


def parsed(text: str, referred: Iterable[str] = (), named: dict[str, Any] | None = None) -> Schema:
    """Return the parsed schema, without logical types that Spark does not have. `referred` are the texts of the schemas
    to which the schema refers. The function adds all named types to `named`. Raises SchemaError.
    """
    named = {} if named is None else named
    try:
        others, read = [json.loads(each) for each in referred], json.loads(text)
    except ValueError as error:
        raise SchemaError(f"is not JSON: {error}") from error
    try:
        for each in others:
            parse_schema(_simplified(each), named)
        return parse_schema(_simplified(read), named)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SchemaError(f"is not an Avro schema: {error}") from error


def arrow_type(schema: Schema) -> pa.DataType:
    """Return the type of the column for a parsed schema. Raises SchemaError."""
    return _Types().of(schema, "the schema")


class _Types:
    """Converts schemas to types; a schema defines a named type once, and afterwards refers to it by its name."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}
        """Name -> type; None while the type is being created, so that a type which contains itself is detected."""

    def of(self, schema: Schema, where: str) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema, where)
        if isinstance(schema, str):
            return self._name(schema, where)
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical == "decimal":
            return self._remember(schema, _decimal(schema, where))
        if logical in LOGICAL:
            return LOGICAL[logical]
        match kind:
            case "record":
                self._named[schema["name"]] = None
                fields = [self._field(field, where) for field in schema["fields"]]
                return self._remember(schema, pa.struct(fields))
            case "array":
                return pa.list_(self.of(schema["items"], f"items of {where}"))
            case "map":
                return pa.map_(pa.string(), self.of(schema["values"], f"values of {where}"))
        return self._remember(schema, self.of(kind, where))

    def _field(self, field: Mapping[str, Any], where: str) -> pa.Field:
        name = f"{where}.{field['name']}" if where != "the schema" else str(field["name"])
        return pa.field(field["name"], self.of(field["type"], name))

    def _union(self, branches: list[Schema], where: str) -> pa.DataType:
        some = [branch for branch in branches if branch != "null"]
        if len(some) == 1:
            return self.of(some[0], where)
        names = frozenset(branch for branch in some if isinstance(branch, str))
        if len(names) == len(some) and names in WIDENED:
            return WIDENED[names]
        raise SchemaError(f"{where} is a union of {len(some)} types, for which there is no column in Spark")

    def _name(self, name: str, where: str) -> pa.DataType:
        if name in PLAIN:
            return PLAIN[name]
        found = self._named.get(name)
        if found is None:
            raise SchemaError(f"{where} has {name} inside {name}, for which there is no column in Spark")
        return found

    def _remember(self, schema: Mapping[str, Any], made: pa.DataType) -> pa.DataType:
        if "name" in schema:
            self._named[schema["name"]] = made
        return made


def _decimal(schema: Mapping[str, Any], where: str) -> pa.DataType:
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if precision > MAX_PRECISION:
        raise SchemaError(f"{where} is a decimal of {precision} digits, Spark has {MAX_PRECISION}")
    return pa.decimal128(precision, scale)


def _simplified(schema: Any) -> Any:
    """Drop the logical types that Spark does not have."""
    if isinstance(schema, list):
        return [_simplified(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {**LOGICAL, "decimal": None}
    return {
        name: _simplified(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if name != "logicalType" or value in kept
    }
