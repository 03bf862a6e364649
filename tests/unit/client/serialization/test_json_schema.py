"""JSON Schema: validation, references, and that no address in a schema is contacted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncelog.serialization import Schema, SerializationError
from oncelog.serialization.json_schema import JsonSchemaCodec
from oncelog.serialization.schemas import JSON

ORDER = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


def codec(schema: Any, **referred: Any) -> JsonSchemaCodec:
    others = {f"{name}.json": Schema(json.dumps(each), JSON) for name, each in referred.items()}
    return JsonSchemaCodec(Schema(json.dumps(schema), JSON), others)


def test_a_document_is_validated_and_read() -> None:
    order = codec(ORDER)
    assert order.name == "Order"
    order.validate({"id": 7})
    assert order.decode(order.encode({"id": 7})) == {"id": 7}
    with pytest.raises(SerializationError, match=r"Order: \$\.id: 'x' is not of type 'integer'"):
        order.validate({"id": "x"})


@pytest.mark.parametrize("text", ["", "{", "7", '{"type":"nothing"}', "[" * 100_000])
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SerializationError, match="not a JSON Schema"):
        JsonSchemaCodec(Schema(text, JSON), {})


def test_a_schema_uses_those_that_it_refers_to_by_name_or_by_id() -> None:
    money = {"$id": "http://example.com/money", "type": "integer"}
    for ref in ("money.json", "http://example.com/money"):
        bill = codec({"properties": {"sum": {"$ref": ref}}}, money=money)
        bill.validate({"sum": 5})
        with pytest.raises(SerializationError, match=r"\$\.sum"):
            bill.validate({"sum": "x"})


def test_the_address_of_a_schema_is_not_asked() -> None:
    """A warning about a network request would fail the test, too."""
    bill = codec({"properties": {"sum": {"$ref": "http://127.0.0.1:1/money"}}})
    with pytest.raises(SerializationError, match="cannot be used"):
        bill.validate({"sum": 5})


def test_a_schema_that_refers_to_itself_without_end_is_refused() -> None:
    with pytest.raises(SerializationError, match="cannot be used"):
        codec({"$ref": "#"}).validate(7)
