"""Avro: values and bytes that do not match the schema, hostile schemas and payloads, and values as JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from oncelog.serialization import Schema, SerializationError, json_value
from oncelog.serialization.avro import AvroCodec

ORDER: dict[str, Any] = {"type": "record", "name": "a.Order", "fields": [{"name": "id", "type": "int"}]}
LINKED = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def codec(schema: Any, **referred: Any) -> AvroCodec:
    others = {name: Schema(json.dumps(each)) for name, each in referred.items()}
    return AvroCodec(Schema(json.dumps(schema)), others)


def with_field(field_type: Any, **more: Any) -> AvroCodec:
    return codec({"type": "record", "name": "R", "fields": [{"name": "f", "type": field_type, **more}]})


def test_a_record_is_written_and_read() -> None:
    order = codec(ORDER)
    assert order.name == "a.Order"
    assert order.encode({"id": 7}) == b"\x0e"
    assert order.decode(b"\x0e") == {"id": 7}


@pytest.mark.parametrize("value", [{}, {"id": "x"}, None, 7])
def test_a_value_that_is_not_of_the_schema_is_refused(value: Any) -> None:
    with pytest.raises(SerializationError, match=r"a\.Order"):
        codec(ORDER).encode(value)


@pytest.mark.parametrize("payload", [b"", b"\x80", b"\x0e\0"])
def test_bytes_that_are_cut_off_or_too_many_are_refused(payload: bytes) -> None:
    with pytest.raises(SerializationError, match=r"a\.Order"):
        codec(ORDER).decode(payload)


@pytest.mark.parametrize("text", ["", "{", '"nothing"', '{"type":"record"}', "7", "[" * 100_000])
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SerializationError, match="not an Avro schema"):
        AvroCodec(Schema(text), {})


def test_a_value_is_read_as_the_readers_schema_has_it() -> None:
    more = codec({**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "none"}]})
    assert codec(ORDER).read(b"\x0e", more) == {"id": 7, "note": "none"}


def test_a_schema_uses_those_that_it_refers_to() -> None:
    money = {"type": "record", "name": "a.Money", "fields": [{"name": "cents", "type": "long"}]}
    order = codec({"type": "record", "name": "a.Bill", "fields": [{"name": "sum", "type": "a.Money"}]}, money=money)
    assert order.decode(order.encode({"sum": {"cents": 5}})) == {"sum": {"cents": 5}}


def test_bytes_alone_have_no_length_before_them() -> None:
    assert codec("bytes").encode(b"\1\2") == b"\1\2"
    assert codec({"type": "bytes"}).decode(b"\1\2") == b"\1\2"


@pytest.mark.parametrize("depth", [5_000, 1_000_000])
def test_a_value_of_a_recursive_schema_that_nests_too_deeply_is_refused(depth: int) -> None:
    """The Avro reader in C would crash the process."""
    linked = codec(LINKED)
    assert linked.decode(b"\x02\x00") == {"next": {"next": None}}
    with pytest.raises(SerializationError, match="RecursionError"):
        linked.decode(b"\x02" * depth + b"\0")


@pytest.mark.parametrize(("length", "is_fast"), [(80, True), (120, False)])
def test_a_long_chain_of_types_is_not_read_in_c(length: int, is_fast: bool) -> None:
    types: dict[str, Any] = {}
    inner = "null"
    for number in range(length):
        name = f"T{number}"
        types[name] = {"type": "record", "name": name, "fields": [{"name": "f", "type": inner}]}
        inner = name
    last = types.pop(inner)
    assert codec(last, **types)._is_fast == is_fast


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "record", "name": "E", "fields": []}, {"type": "fixed", "name": "F", "size": 0}],
)
def test_an_array_of_items_that_take_no_bytes_is_refused(items: Any) -> None:
    """Ten bytes would decode to an array that fills the memory."""
    with pytest.raises(SerializationError, match="take no bytes"):
        with_field({"type": "array", "items": items})


JSON_VALUES: list[tuple[Any, Any, Any]] = [
    ("string", "a", "a"),
    ("bytes", "a", b"a"),
    ("bytes", "base64:/w==", b"\xff"),
    ({"type": "fixed", "name": "F", "size": 1}, "x", b"x"),
    (["null", "string"], None, None),
    (["null", "string"], "a", "a"),
    ({"type": "enum", "name": "E", "symbols": ["RED"]}, "RED", "RED"),
    ({"type": "array", "items": "long"}, [1, 2], [1, 2]),
    ({"type": "map", "values": "boolean"}, {"a": True}, {"a": True}),
    ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "1.25", Decimal("1.25")),
    ({"type": "int", "logicalType": "date"}, "2026-01-31", date(2026, 1, 31)),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        "2026-01-31T00:00:00+00:00",
        datetime(2026, 1, 31, tzinfo=UTC),
    ),
    ("double", 1.5, 1.5),
    (["null", LINKED], {"next": {"next": None}}, {"next": {"next": None}}),
]


@pytest.mark.parametrize(("field_type", "shown", "value"), JSON_VALUES)
def test_json_is_read_back_as_it_is_shown(field_type: Any, shown: Any, value: Any) -> None:
    record = with_field(field_type)
    decoded = record.decode(record.encode(record.from_json({"f": shown})))
    assert decoded == {"f": value}
    assert json_value(decoded) == {"f": shown}
    json.dumps(json_value(decoded))


def test_a_value_of_a_union_may_name_its_branch_as_avros_own_tools_do() -> None:
    record = with_field(["null", "string", LINKED])
    assert record.from_json({"f": {"string": "a"}}) == {"f": "a"}
    assert record.decode(record.encode(record.from_json({"f": {"Node": {"next": None}}}))) == {"f": {"next": None}}


def test_a_field_with_a_default_may_be_left_out() -> None:
    record = with_field("int", default=3)
    assert record.decode(record.encode(record.from_json({}))) == {"f": 3}


@pytest.mark.parametrize(
    ("field_type", "shown", "why"),
    [
        ("int", "x", r"the value\.f must be an int"),
        ("int", 2**31, "an int"),
        ("int", True, "an int"),
        ("string", 7, "a string"),
        ("boolean", 0, "a boolean"),
        ("bytes", "base64:=", "base64"),
        ({"type": "array", "items": "int"}, [1, "x"], r"the value\.f\[1\] must be an int"),
        ({"type": "enum", "name": "E", "symbols": ["RED"]}, "BLUE", "one of RED"),
        (["null", "int"], "x", "must be null.*must be an int"),
        ({"type": "int", "logicalType": "date"}, "tomorrow", "date"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_place(field_type: Any, shown: Any, why: str) -> None:
    with pytest.raises(SerializationError, match=why):
        with_field(field_type).from_json({"f": shown})


def test_a_record_with_an_unknown_or_a_missing_field_is_refused() -> None:
    for shown in ({}, {"id": 1, "more": 2}, 7):
        with pytest.raises(SerializationError):
            codec(ORDER).from_json(shown)
