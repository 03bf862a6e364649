"""Which schemas can read values that were written with which other schemas, in each format."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from oncelog_registry.compatibility import pairs
from oncelog_registry.formats import Resolved, fingerprint, format_of, time_limit
from oncelog_registry.limits import MAX_SCHEMA_DEPTH
from oncelog_registry.schemas import AVRO, JSON, PROTOBUF, Schema


def parsed(schema_type: str, text: str, *referred: tuple[str, str]) -> Any:
    others = [(name, Schema(other, schema_type)) for name, other in referred]
    return format_of(schema_type).parse(Resolved(Schema(text, schema_type), others))


def reads(schema_type: str, reader: str, writer: str) -> bool:
    return not format_of(schema_type).differences(parsed(schema_type, reader), parsed(schema_type, writer))


@pytest.mark.parametrize(
    ("level", "asked"),
    [
        ("NONE", []),
        ("BACKWARD", [(3, True)]),
        ("FORWARD", [(3, False)]),
        ("FULL", [(3, True), (3, False)]),
        ("BACKWARD_TRANSITIVE", [(3, True), (2, True), (1, True)]),
        ("FORWARD_TRANSITIVE", [(3, False), (2, False), (1, False)]),
        ("FULL_TRANSITIVE", [(3, True), (3, False), (2, True), (2, False), (1, True), (1, False)]),
    ],
)
def test_levels_name_what_is_compared(level: str, asked: list[tuple[int, bool]]) -> None:
    assert pairs(level, [1, 2, 3]) == asked
    assert pairs(level, []) == []


# --- Avro


def record(*fields: str) -> str:
    return f'{{"type":"record","name":"R","fields":[{",".join(fields)}]}}'


X, Y = '{"name":"x","type":"int"}', '{"name":"y","type":"string"}'
Y_OR = '{"name":"y","type":"string","default":""}'


@pytest.mark.parametrize(
    ("reader", "writer", "can"),
    [
        (record(X), record(X, Y), True),
        (record(X, Y), record(X), False),
        (record(X, Y_OR), record(X), True),
        ('"long"', '"int"', True),
        ('"int"', '"long"', False),
        ('["null","int"]', '"int"', True),
        ("string", '"string"', True),
    ],
)
def test_avro_schemas_are_compared(reader: str, writer: str, can: bool) -> None:
    assert reads(AVRO, reader, writer) == can


def test_avro_uses_referenced_schemas() -> None:
    user = record('{"name":"c","type":"Colour"}')
    colour = '{"type":"enum","name":"Colour","symbols":["RED"]}'
    assert parsed(AVRO, user, ("Colour", colour)).fields[0].type.name == "Colour"
    with pytest.raises(ValueError, match="Colour"):
        parsed(AVRO, user)


# --- JSON Schema


def closed(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}
TREE = {"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [{"type": "null"}, closed(next={"$ref": "#/$defs/n"})]}}}


@pytest.mark.parametrize(
    ("reader", "writer", "can"),
    [
        (True, STRING, True),
        ({}, STRING, True),
        (STRING, {}, False),
        (False, False, True),
        (False, STRING, False),
        (NUMBER, INTEGER, True),
        (INTEGER, NUMBER, False),
        ({"type": ["string", "null"]}, STRING, True),
        (STRING, {"type": ["string", "null"]}, False),
        (closed(a=STRING, b=NUMBER), closed(a=STRING), True),
        (closed(a=STRING), closed(a=STRING, b=NUMBER), False),
        ({"type": "object", "properties": {"a": STRING}}, {"type": "object"}, False),
        ({"type": "object"}, {"type": "object", "properties": {"a": STRING}}, True),
        ({**closed(a=STRING), "required": ["a"]}, closed(a=STRING), False),
        ({**closed(a={**STRING, "default": ""}), "required": ["a"]}, closed(), True),
        (closed(a=STRING), {**closed(a=STRING), "required": ["a"]}, True),
        ({**STRING, "maxLength": 5}, {**STRING, "maxLength": 4}, True),
        ({**STRING, "maxLength": 4}, {**STRING, "maxLength": 5}, False),
        ({**STRING, "maxLength": 4}, STRING, False),
        ({**NUMBER, "minimum": 1}, {**NUMBER, "minimum": 2}, True),
        ({**NUMBER, "minimum": 2}, {**NUMBER, "minimum": 1}, False),
        ({**INTEGER, "multipleOf": 2}, {**INTEGER, "multipleOf": 4}, True),
        ({**INTEGER, "multipleOf": 4}, {**INTEGER, "multipleOf": 2}, False),
        ({**STRING, "pattern": "a"}, STRING, False),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, True),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, False),
        ({"enum": ["a"]}, {"const": "a"}, True),
        ({"enum": ["a"]}, STRING, False),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER}, True),
        ({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}, False),
        ({"type": "array", "prefixItems": [STRING]}, {"type": "array", "prefixItems": [STRING, NUMBER]}, True),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, False),
        ({"anyOf": [STRING, NUMBER]}, INTEGER, True),
        ({"anyOf": [STRING, NUMBER]}, {"type": "null"}, False),
        ({"oneOf": [STRING, NUMBER]}, {"oneOf": [STRING]}, True),
        ({"oneOf": [STRING]}, {"oneOf": [STRING, NUMBER]}, False),
        ({"allOf": [STRING, {"maxLength": 3}]}, {**STRING, "maxLength": 3}, True),
        ({"allOf": [STRING, {"maxLength": 3}]}, STRING, False),
        ({**STRING, "maxLength": 3}, {"allOf": [STRING, {"maxLength": 3}]}, True),
        (TREE, TREE, True),
        ({"not": STRING}, NUMBER, False),
    ],
)
def test_json_schemas_are_compared(reader: object, writer: object, can: bool) -> None:
    assert reads(JSON, json.dumps(reader), json.dumps(writer)) == can


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "word"}, "word"),
        ({"$ref": "#/nowhere"}, "nowhere"),
        ({"$ref": "other.json"}, "other.json"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "back to itself"),
        ([], "an object, true or false"),
    ],
)
def test_malformed_json_schemas_are_refused(schema: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parsed(JSON, json.dumps(schema))


def test_json_schema_uses_referenced_schemas() -> None:
    text = json.dumps({"$ref": "colour.json#/$defs/c"})
    reader = parsed(JSON, text, ("colour.json", json.dumps({"$defs": {"c": {"enum": ["red"]}}})))
    assert format_of(JSON).differences(reader, parsed(JSON, '{"const":"blue"}'))
    assert not format_of(JSON).differences(reader, parsed(JSON, '{"const":"red"}'))


@pytest.mark.parametrize("schema_type", [AVRO, JSON])
def test_a_document_that_nests_too_deeply_is_refused(schema_type: str) -> None:
    for depth in (MAX_SCHEMA_DEPTH + 1, 100_000):
        with pytest.raises(ValueError, match=r"nests|JSON document"):
            parsed(schema_type, '{"a":' * depth + "1" + "}" * depth)


# --- Protobuf


def proto(fields: str, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; message M {{ {fields} }} message N {{ repeated int32 x = 1; }}'


def test_protobuf_schemas_are_compared() -> None:
    texts = {
        "a": proto("int32 a = 1;"),
        "renamed": proto("int32 b = 1;"),
        "wider": proto("int64 a = 1;"),
        "other": proto("string a = 1;"),
        "more": proto("int32 a = 1; bytes c = 2;"),
        "repeated": proto("repeated int32 a = 1;"),
        "required": proto("required int32 a = 1;", "proto2"),
        "optional": proto("optional int32 a = 1;", "proto2"),
        "empty": proto(""),
        "nested": proto("N a = 1;"),
        "lacks": 'syntax = "proto3"; message M { int32 a = 1; }',
        "two": proto("int32 a = 1; int32 b = 2;"),
        "oneof": proto("oneof o { int32 a = 1; int32 b = 2; }"),
    }
    files = {name: parsed(PROTOBUF, text) for name, text in texts.items()}
    can = {
        ("renamed", "a"): True,
        ("wider", "a"): True,
        ("other", "a"): False,
        ("more", "a"): True,
        ("a", "more"): True,
        ("repeated", "a"): False,
        ("required", "optional"): False,
        ("required", "empty"): False,
        ("optional", "required"): True,
        ("nested", "a"): False,
        ("lacks", "a"): False,
        ("a", "lacks"): True,
        ("oneof", "two"): False,
        ("oneof", "a"): True,
        ("a", "oneof"): False,
    }
    told = {pair: not format_of(PROTOBUF).differences(files[pair[0]], files[pair[1]]) for pair in can}
    assert told == can


def test_a_serialized_protobuf_descriptor_is_accepted() -> None:
    text = proto("int32 a = 1;")
    file: FileDescriptorProto = parsed(PROTOBUF, text).file
    binary = base64.b64encode(file.SerializeToString()).decode()
    assert parsed(PROTOBUF, binary).file == file
    assert reads(PROTOBUF, binary, text)
    file.dependency.append("missing.proto")
    for wrong in (base64.b64encode(file.SerializeToString()).decode(), "AAAA", "", "YWJj"):
        with pytest.raises(ValueError, match="descriptor"):
            parsed(PROTOBUF, wrong)


def test_protobuf_uses_referenced_schemas() -> None:
    user = 'syntax = "proto3"; import "a/n.proto"; import "google/protobuf/timestamp.proto"; message M { N n = 1; }'
    other = 'syntax = "proto3"; message N { int32 x = 1; }'
    assert parsed(PROTOBUF, user, ("a/n.proto", other)).messages["N"].field[0].name == "x"
    with pytest.raises(ValueError, match=r"a/n\.proto"):
        parsed(PROTOBUF, user)
    for outside in ("../n.proto", "/etc/n.proto", "a/../../n.proto"):
        with pytest.raises(ValueError, match="not a valid import name"):
            parsed(PROTOBUF, other, (outside, other))


def test_equivalent_schema_texts_are_one_schema() -> None:
    for schema_type, one, other in (
        (AVRO, '{"type" : "int"}', '{"type":"int"}'),
        (JSON, "true", " true\n"),
        (PROTOBUF, proto("int32 a = 1;"), f"\n  {proto('int32 a = 1;')}\n\n"),
    ):
        assert fingerprint(Schema(one, schema_type)) == fingerprint(Schema(other, schema_type))
    assert fingerprint(Schema("true", JSON)) != fingerprint(Schema("true", AVRO))


# --- hostile schemas


@pytest.mark.parametrize("name", ["a" * 300, "./schema.proto", "a//b", "schema.proto/x\0"])
def test_a_reference_that_is_no_name_of_a_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the reference"):
        parsed(PROTOBUF, 'syntax="proto3"; message A {}', (name, 'syntax="proto3"; message B {}'))


def test_references_nested_in_one_another_as_paths_are_refused() -> None:
    text = 'syntax="proto3"; message B {}'
    with pytest.raises(ValueError, match="not a valid file name"):
        parsed(PROTOBUF, 'syntax="proto3"; message A {}', ("a", text), ("a/b", text))


def test_a_descriptor_that_imports_what_does_not_exist_is_refused() -> None:
    file = FileDescriptorProto(name="x.proto", dependency=["google/protobuf/nothing.proto"])
    file.message_type.add(name="M")
    with pytest.raises(ValueError, match=r"no file google/protobuf/nothing\.proto"):
        parsed(PROTOBUF, base64.b64encode(file.SerializeToString()).decode())


def test_a_comparison_of_large_unions_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "CHECK_SECONDS", 0.0)
    one, other = (
        json.dumps([{"type": "record", "name": f"{name}{number}", "fields": []} for number in range(3)])
        for name in ("a", "b")
    )
    with pytest.raises(ValueError, match="not compared in 0 s"):
        reads(AVRO, one, other)
    with pytest.raises(ValueError, match="not compared in 0 s"):
        reads(JSON, '{"type":"string"}', '{"type":"string"}')


@pytest.mark.parametrize(
    ("reader", "writer", "may"),
    [
        ([1.5, "a", [1], {"b": None}], [[1.0], {"b": None}], True),
        ([[1]], [[True]], False),
        (["1"], [1], False),
        ([1], [1.5], False),
    ],
)
def test_values_of_enum_are_those_of_json(reader: list[Any], writer: list[Any], may: bool) -> None:
    assert reads(JSON, json.dumps({"enum": reader}), json.dumps({"enum": writer})) is may
