"""JSON Schema: decides whether the reader's schema allows every document that the writer's schema allows.

No algorithm decides this question completely, so the comparison is a set of sufficient rules: if no rule proves that
the reader allows all documents of the writer, a difference is reported. A reader that allows every document can read
data of every schema. A writer that allows no document can be read by every schema. Equal schemas can read each other's
data, whatever the schemas contain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import jsonschema
from jsonschema.validators import validator_for

from oncelog_registry.formats.depth import check_depth
from oncelog_registry.formats.resolved import Resolved
from oncelog_registry.formats.time_limit import TimeLimit

TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
UPPER_BOUNDS: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
LOWER_BOUNDS: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
SAME_OR_ABSENT: Final = (
    "const",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "patternProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "then",
    "else",
    "unevaluatedProperties",
    "unevaluatedItems",
)
"""Keywords that restrict the allowed documents and are compared only for equality: the reader must not have the
keyword, or the writer must have it with the same value.
"""
MAX_COMPARED: Final = 20_000
"""Limit on the pairs of subschemas in one comparison; a comparison that needs more raises ValueError."""

Node = Any
"""Type of a JSON schema: a mapping, True (allows everything) or False (allows nothing)."""


class Document(NamedTuple):
    """A schema, and the texts of the schemas that it refers to; the keys are the names that the schema uses for
    them.
    """

    root: Node
    referred: Mapping[str, Node]


def parse(resolved: Resolved) -> Document:
    """Return the parsed schema. Raises ValueError."""
    referred = {name: _loaded(schema.text, f"the referenced schema {name}: ") for name, schema in resolved.referred}
    document = Document(_loaded(resolved.schema.text, ""), referred)
    for node, root in _nodes_with_refs(document):
        _Place(document, root).resolved(node)
    return document


def differences(reader: Document, writer: Document) -> list[str]:
    """Return the reasons why `reader` does not allow everything that `writer` allows; empty if it does."""
    return _Comparison(reader, writer).run()


def _loaded(text: str, where: str) -> Node:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}not a JSON document: {error}") from error
    if not isinstance(document, (dict, bool)):
        raise ValueError(f"{where}a JSON Schema is an object, true or false")
    check_depth(document)
    try:
        validator_for(document, default=jsonschema.Draft7Validator).check_schema(document)
    except (jsonschema.SchemaError, RecursionError) as error:
        raise ValueError(f"{where}{getattr(error, 'message', error)}") from error
    return document


def _nodes_with_refs(document: Document) -> Iterator[tuple[Node, Node]]:
    for root in (document.root, *document.referred.values()):
        rest = [root]
        while rest:
            node = rest.pop()
            if isinstance(node, dict):
                if isinstance(node.get("$ref"), str):
                    yield node, root
                rest += node.values()
            elif isinstance(node, list):
                rest += node


class _Place(NamedTuple):
    """The position of a subschema: its document, and the root from which its `$ref` is resolved."""

    document: Document
    root: Node

    def resolved(self, node: Node) -> tuple[Node, _Place]:
        """Follow `$ref` until a schema without `$ref`; returns this schema and its position. Raises ValueError if the
        target of a `$ref` does not exist, or if references form a circle.
        """
        place, seen = self, set()
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            reference = node["$ref"]
            if (reference, id(place.root)) in seen:
                raise ValueError(f"$ref {reference!r} leads back to itself")
            seen.add((reference, id(place.root)))
            node, place = place._target(reference)
        return node, place

    def _target(self, reference: str) -> tuple[Node, _Place]:
        name, _, fragment = reference.partition("#")
        root = self.root if not name else self._other_root(name)
        node: Any = root
        if fragment and not fragment.startswith("/"):
            node = _anchored(root, fragment)
            if node is None:
                raise ValueError(f"$ref {reference!r}: no such anchor")
            return node, _Place(self.document, root)
        for part in fragment.split("/")[1:]:
            step = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and step in node:
                node = node[step]
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                raise ValueError(f"$ref {reference!r} leads nowhere")
        if not isinstance(node, (dict, bool)):
            raise ValueError(f"$ref {reference!r} leads to something that is not a schema")
        return node, _Place(self.document, root)

    def _other_root(self, name: str) -> Node:
        if name in self.document.referred:
            return self.document.referred[name]
        roots = (self.document.root, *self.document.referred.values())
        for root in roots:
            if isinstance(root, dict) and root.get("$id") == name:
                return root
        raise ValueError(f"$ref {name!r} is none of the references of this schema")


def _anchored(root: Node, anchor: str) -> Node | None:
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            if node.get("$anchor") == anchor or node.get("$id") == f"#{anchor}":
                return node
            rest += node.values()
        elif isinstance(node, list):
            rest += node
    return None


class _Comparison:
    """One comparison of two documents. A pair that is being compared counts as compatible, so that the comparison of
    recursive schemas ends.
    """

    def __init__(self, reader: Document, writer: Document) -> None:
        self._reader = reader
        self._writer = writer
        self._under_way: set[tuple[int, int]] = set()
        self._compared = 0
        self._limit = TimeLimit()

    def run(self) -> list[str]:
        reader, writer = self._reader, self._writer
        return self._differ(reader.root, _Place(reader, reader.root), writer.root, _Place(writer, writer.root), "")

    def _differ(self, reader: Node, at: _Place, writer: Node, by: _Place, path: str) -> list[str]:
        self._compared += 1
        self._limit.check()
        if self._compared > MAX_COMPARED:
            raise ValueError(f"the schemas have more than {MAX_COMPARED} pairs of parts to compare")
        reader, at = at.resolved(reader)
        writer, by = by.resolved(writer)
        pair = (id(reader), id(writer))
        if pair in self._under_way or _allows_everything(reader) or writer is False:
            return []
        if reader is False:
            return [f"{path or '/'}: the reader allows nothing here"]
        if writer is True:
            writer = {}
        self._under_way.add(pair)
        try:
            return self._differ_as_objects(reader, at, writer, by, path)
        finally:
            self._under_way.discard(pair)

    def _differ_as_objects(self, reader: Node, at: _Place, writer: Node, by: _Place, path: str) -> list[str]:
        for keyword in ("anyOf", "oneOf"):
            if keyword in writer:
                rest = {key: value for key, value in writer.items() if key != keyword}
                branches = [_both(rest, branch, by) for branch in writer[keyword]]
                return [
                    found
                    for index, branch in enumerate(branches)
                    for found in self._differ(reader, at, branch, by, f"{path}/{keyword}/{index}")
                ]
        if "allOf" in writer:
            merged: Node = {key: value for key, value in writer.items() if key != "allOf"}
            for branch in writer["allOf"]:
                merged = _both(merged, branch, by)
            return self._differ(reader, at, merged, by, path)
        return (
            self._differ_in_combinations(reader, at, writer, by, path)
            + _differ_in_values(reader, writer, path)
            + _differ_in_bounds(reader, writer, path)
            + self._differ_in_arrays(reader, at, writer, by, path)
            + self._differ_in_properties(reader, at, writer, by, path)
        )

    def _differ_in_combinations(self, reader: Node, at: _Place, writer: Node, by: _Place, path: str) -> list[str]:
        found = []
        for branch in reader.get("allOf", ()):
            found += self._differ(branch, at, writer, by, f"{path}/allOf")
        for keyword in ("anyOf", "oneOf"):
            branches = reader.get(keyword)
            if branches is not None and all(self._differ(each, at, writer, by, path) for each in branches):
                found.append(f"{path or '/'}: no branch of {keyword} of the reader allows what the writer allows")
        if "not" in reader and reader["not"] != writer.get("not"):
            found.append(f"{path or '/'}: `not` differs")
        return found

    def _differ_in_arrays(self, reader: Node, at: _Place, writer: Node, by: _Place, path: str) -> list[str]:
        if "array" not in _types(writer):
            return []
        (listed, others), (written, others_written) = _items(reader), _items(writer)
        found = []
        for index in range(max(len(listed), len(written))):
            ours = listed[index] if index < len(listed) else others
            theirs = written[index] if index < len(written) else others_written
            found += self._differ(ours, at, theirs, by, f"{path}/items/{index}")
        found += self._differ(others, at, others_written, by, f"{path}/items")
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            found.append(f"{path or '/'}: the reader wants uniqueItems")
        return found

    def _differ_in_properties(self, reader: Node, at: _Place, writer: Node, by: _Place, path: str) -> list[str]:
        if "object" not in _types(writer):
            return []
        ours, theirs = reader.get("properties", {}), writer.get("properties", {})
        other, other_written = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        found = []
        for name in dict.fromkeys((*ours, *theirs)):
            found += self._differ(
                ours.get(name, other), at, theirs.get(name, other_written), by, f"{path}/properties/{name}"
            )
        found += self._differ(other, at, other_written, by, f"{path}/additionalProperties")
        for name in reader.get("required", ()):
            if name not in writer.get("required", ()) and not _has_default(ours.get(name)):
                found.append(f"{path or '/'}: the reader requires {name!r}, which the writer may leave out")
        return found


def _differ_in_values(reader: Node, writer: Node, path: str) -> list[str]:
    where, found = path or "/", []
    refused = sorted(_types(writer) - _types(reader))
    if refused:
        found.append(f"{where}: the reader does not allow the type {', '.join(refused)}")
    if "enum" in reader:
        written = writer.get("enum", [writer["const"]] if "const" in writer else None)
        if written is None or not _values(written) <= _values(reader["enum"]):
            found.append(f"{where}: the writer may write values that are not in `enum` of the reader")
    found += [
        f"{where}: `{keyword}` of the reader is none of the writer"
        for keyword in SAME_OR_ABSENT
        if keyword in reader and reader[keyword] != writer.get(keyword, _ABSENT)
    ]
    return found


def _values(listed: Iterable[Any]) -> set[str]:
    """Return the values as a set of strings. Equal numbers such as 1 and 1.0 are one value."""
    return {json.dumps(_plain(each), sort_keys=True) for each in listed}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


_ABSENT: Final = object()


def _differ_in_bounds(reader: Node, writer: Node, path: str) -> list[str]:
    where, found = path or "/", []
    found += [
        f"{where}: `{keyword}` of the reader is lower than the writer's"
        for keyword in UPPER_BOUNDS
        if _is_above(_number(writer, keyword), _number(reader, keyword))
    ]
    found += [
        f"{where}: `{keyword}` of the reader is higher than the writer's"
        for keyword in LOWER_BOUNDS
        if _is_below(_number(writer, keyword), _number(reader, keyword))
    ]
    factor, written = _number(reader, "multipleOf"), _number(writer, "multipleOf")
    if factor is not None and (written is None or written % factor != 0):
        found.append(f"{where}: values of the writer may not be multiples of {factor}")
    return found


def _is_above(written: float | None, most: float | None) -> bool:
    """Return whether a writer whose maximum is `written` may write a value above the reader's maximum `most`; None
    means no maximum.
    """
    return most is not None and (written is None or written > most)


def _is_below(written: float | None, least: float | None) -> bool:
    return least is not None and (written is None or written < least)


def _number(node: Node, keyword: str) -> float | None:
    value = node.get(keyword)
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else value


def _types(node: Node) -> frozenset[str]:
    declared = node.get("type")
    if declared is None:
        if "const" in node or "enum" in node:
            values = node.get("enum", [node.get("const")])
            return frozenset().union(*(_types_of_value(each) for each in values))
        return TYPES
    types = set(declared if isinstance(declared, list) else [declared])
    if "number" in types:
        types.add("integer")
    return frozenset(types)


def _types_of_value(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset({"null"})
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return frozenset({kinds.get(type(value), "object")})


def _items(node: Node) -> tuple[list[Node], Node]:
    """Return the schemas of the first items, and the schema of all further items."""
    if "prefixItems" in node:
        return list(node["prefixItems"]), node.get("items", True)
    items = node.get("items", True)
    if isinstance(items, list):
        return items, node.get("additionalItems", True)
    return [], items


def _both(node: Node, branch: Node, place: _Place) -> Node:
    """Return a schema that allows at least the documents that both `node` and `branch` allow. It has the keywords of
    `node`, the keywords that only `branch` has, and the properties and required properties of both.
    """
    branch, _ = place.resolved(branch)
    if node is False or branch is False:
        return False
    if branch is True:
        return node
    if node is True:
        return branch
    merged = {**branch, **node}
    if "properties" in branch and "properties" in node:
        merged["properties"] = {**branch["properties"], **node["properties"]}
    if "required" in branch and "required" in node:
        merged["required"] = [*node["required"], *branch["required"]]
    if "allOf" in branch and "allOf" in node:
        merged["allOf"] = [*node["allOf"], *branch["allOf"]]
    return merged


def _allows_everything(node: Node) -> bool:
    return node is True or node == {}


def _has_default(node: Node) -> bool:
    return isinstance(node, dict) and "default" in node
