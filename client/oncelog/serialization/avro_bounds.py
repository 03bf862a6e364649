"""Decides which Avro schemas the fast reader of fastavro may read. Pure.

Schemas and payloads are untrusted: they come from all clients that may write to the registry or the topic.

- The fast reader is C code without a recursion limit: a list that links 5,000 records, in 5,000 bytes, crashes the
  process. A schema that is recursive, or nests deeper than MAX_DEPTH, is read by fastavro's reader in Python, which
  raises RecursionError.
- The items of an array may take no bytes (null, or a record without fields). A payload of ten bytes may then describe
  an array of any length, and decoding it would fill the memory. Schemas with such arrays are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

MAX_DEPTH: Final = 100
UNBOUNDED: Final = 1_000_000
"""The depth value that means that a schema is recursive."""


class Bounds(NamedTuple):
    """The nesting depth of a schema's values, and the size of its shortest value in bytes (0, or 1 for any larger
    size).
    """

    depth: int
    least_bytes: int


def check_readable(schema: Any) -> bool:
    """Return whether the fast reader may read values of a parsed schema. Raises ValueError for an array of items
    without bytes, and RecursionError for a schema that itself nests too deeply.
    """
    return _Walk().bounds(schema).depth <= MAX_DEPTH


def with_names(schema: Any, named: Mapping[str, Any]) -> Any:
    """Return a parsed schema that is self-contained: the first reference to each named type is replaced by its
    definition.
    """
    return _WithNames(named).of(schema)


class _Walk:
    """Visits each named type once. A reference to a type that is still being visited means that the schema is
    recursive.
    """

    def __init__(self) -> None:
        self._named: dict[str, Bounds] = {}

    def bounds(self, schema: Any) -> Bounds:
        if isinstance(schema, str):
            return self._named.get(schema, Bounds(1, 0 if schema == "null" else 1))
        if isinstance(schema, list):
            return Bounds(1 + max((self.bounds(each).depth for each in schema), default=0), 1)
        match schema["type"]:
            case "record" | "error":
                return self._record(schema)
            case "array":
                items = self.bounds(schema["items"])
                if not items.least_bytes:
                    raise ValueError(
                        "an array has items that take no bytes, so that ten bytes may be any number of them"
                    )
                return Bounds(items.depth + 1, 1)
            case "map":
                return Bounds(self.bounds(schema["values"]).depth + 1, 1)
            case "fixed":
                return self._keep(schema, Bounds(1, min(1, schema["size"])))
            case "enum":
                return self._keep(schema, Bounds(1, 1))
            case other:
                return self.bounds(other)

    def _record(self, schema: Any) -> Bounds:
        self._keep(schema, Bounds(UNBOUNDED, 1))
        fields = [self.bounds(field["type"]) for field in schema["fields"]]
        depth = 1 + max((each.depth for each in fields), default=0)
        return self._keep(schema, Bounds(depth, min(1, sum(each.least_bytes for each in fields))))

    def _keep(self, schema: Any, bounds: Bounds) -> Bounds:
        self._named[schema["name"]] = bounds
        return bounds


class _WithNames:
    """Replaces the first reference to each named type by its definition, so that the schema is self-contained."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._seen: set[str] = set()

    def of(self, schema: Any) -> Any:
        if isinstance(schema, str):
            if schema in self._named and schema not in self._seen:
                return self.of(self._named[schema])
            return schema
        if isinstance(schema, list):
            return [self.of(each) for each in schema]
        if "name" in schema and schema["type"] in ("record", "error", "enum", "fixed"):
            if schema["name"] in self._seen:
                return schema["name"]
            self._seen.add(schema["name"])
        written = dict(schema)
        for key in ("type", "items", "values"):
            if key in schema:
                written[key] = self.of(schema[key])
        if "fields" in schema:
            written["fields"] = [{**field, "type": self.of(field["type"])} for field in schema["fields"]]
        return written
