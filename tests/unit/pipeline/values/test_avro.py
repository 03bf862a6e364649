"""Avro values become columns: values of every Spark type, with or without framing, written with an older schema, or
damaged.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra pipeline is not installed")
fastavro = pytest.importorskip("fastavro", reason="the extra pipeline is not installed")

from oncelog_pipeline.values.avro import AvroDecoder, encoded  # noqa: E402
from oncelog_pipeline.values.avro_types import SchemaError, arrow_type, parsed  # noqa: E402
from oncelog_pipeline.values.format import ValueFormat  # noqa: E402
from oncelog_pipeline.values.schemas import UnreachableSchemas, schema_of  # noqa: E402
from oncelog_pipeline.values.wire import InvalidValue, framed  # noqa: E402

EVERYTHING = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "int"], "default": None},
        {"name": "wide", "type": ["int", "long"]},
        {"name": "ok", "type": "boolean"},
        {"name": "half", "type": "float"},
        {"name": "ratio", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "name", "type": "string"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "mac", "type": {"type": "fixed", "name": "Mac", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exact", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "alarm", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}  # fmt: skip
ROW = {
    "id": 2**40,
    "small": None,
    "wide": 2**40,
    "ok": True,
    "half": 0.5,
    "ratio": 0.1,
    "raw": b"\x00\xff",
    "name": "Zoë",
    "state": "PAID",
    "before": None,
    "mac": b"ab",
    "tags": ["x", ""],
    "counts": {"a": 1},
    "lines": [{"sku": "1"}, {"sku": "2"}],
    "first": {"sku": "1"},
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 1, 2, 3, 4000, UTC),
    "exact": datetime(2024, 2, 29, 1, 2, 3, 4005, UTC),
    "price": Decimal("-12.30"),
    "key": "7f8a9d2c-2f4e-4c1f-9a55-000000000001",
    "alarm": 1000,
}
LONG = '"long"'
V1 = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
V2 = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "none"}],
    }
)


def written(schema: str, row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed(schema), row)
    return stream.getvalue()


def decoded(values: list[bytes | None], schema: str, **how: Any) -> list[Any]:
    decoder = pickle.loads(pickle.dumps(AvroDecoder(ValueFormat("avro", schema, **how))))
    places = [("orders", 3, 100 + index) for index in range(len(values))]
    column = decoder.column(values, lambda: places)
    assert column.type == decoder.type
    return list(column.to_pylist(maps_as_pydicts="strict"))


def test_every_type_is_written_and_read_back() -> None:
    schema = json.dumps(EVERYTHING)
    assert decoded([written(schema, ROW), None], schema) == [ROW, None]
    column = pa.array([ROW, None], arrow_type(parsed(schema)))
    assert decoded(encoded(column, schema).to_pylist(), schema) == [ROW, None]


def test_a_schema_need_not_be_a_record() -> None:
    assert decoded([written(LONG, 5), None], LONG) == [5, None]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "is not JSON"),
        ('"lon"', "is not an Avro schema"),
        ('{"type": "enum", "name": "R"}', "is not an Avro schema"),
        ('["int", "string"]', "the schema is a union of 2 types"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":["int","string"]}}]}',
         "items of a is a union"),
        ('{"type":"record","name":"R","fields":[{"name":"next","type":["null","R"]}]}', "next has R inside R"),
        ('{"type":"bytes","logicalType":"decimal","precision":39}', "a decimal of 39 digits, Spark has 38"),
    ],
)  # fmt: skip
def test_a_type_without_column_is_named(schema: str, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        arrow_type(parsed(schema))


@pytest.mark.parametrize("value", [b"", b"\x80", written(LONG, 5) + b"x"])
def test_an_invalid_value_fails_with_its_place_or_is_null(value: bytes) -> None:
    values = [written(LONG, 5), value]
    with pytest.raises(InvalidValue, match=r'orders-3, offset 101: .* set invalid = "null"'):
        decoded(values, LONG)
    assert decoded(values, LONG, fails_if_invalid=False) == [5, None]


def test_a_value_that_no_column_can_hold_is_invalid() -> None:
    schema = (
        '{"type": "record", "name": "R", "fields": [{"name": "p", "type": {"type": "bytes", "logicalType": "decimal",'
    )
    schema += ' "precision": 2}}]}'
    large = written(schema.replace('"precision": 2', '"precision": 9'), {"p": Decimal(1234)})
    with pytest.raises(InvalidValue, match="offset 101"):
        decoded([None, large], schema)
    assert decoded([None, large], schema, fails_if_invalid=False) == [None, None]


def test_the_writers_schema_is_found_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text(V1)
    (tmp_path / "2.avsc").write_text(V2)
    values = [framed(1, written(V1, {"a": 1})), framed(2, written(V2, {"a": 2, "b": "x"}))]
    rows = [{"a": 1, "b": "none"}, {"a": 2, "b": "x"}]
    assert decoded(values, V2, is_framed=True, registry=str(tmp_path)) == rows
    with pytest.raises(InvalidValue, match=r"offset 100: was written with schema 3, and there is no 3.avsc"):
        decoded([framed(3, b"")], V2, is_framed=True, registry=str(tmp_path))
    with pytest.raises(UnreachableSchemas, match="there is no folder"):
        decoded(values, V2, is_framed=True, registry=str(tmp_path / "none"))


def test_a_frame_without_a_registry_is_taken_off() -> None:
    assert decoded([framed(77, written(LONG, 5))], LONG, is_framed=True) == [5]


BILL = '{"type":"record","name":"Bill","fields":[{"name":"of","type":"R"}]}'


class Registry(BaseHTTPRequestHandler):
    """A registry with two schemas; requests for other schemas fail."""

    asked: list[str] = []  # noqa: RUF012 - of all requests

    def do_GET(self) -> None:
        self.asked.append(self.path)
        answers = {
            "/schemas/ids/1": {"schema": V1},
            "/schemas/ids/9": {"schema": "{}", "schemaType": "PROTOBUF"},
            "/schemas/ids/8": {"schema": BILL, "references": [{"name": "R", "subject": "r", "version": 1}]},
            "/subjects/r/versions/1": {"subject": "r", "version": 1, "id": 1, "schema": V1},
            "/schemas/ids/6": {"schema": V1, "references": [{"name": "R", "subject": "gone", "version": 1}]},
            "/schemas/ids/7": [],
        }
        answer = answers.get(self.path)
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_registry_is_asked_once_for_each_number(registry: str) -> None:
    values = [framed(1, written(V1, {"a": 1}))] * 3
    assert decoded(values, V2, is_framed=True, registry=registry) == [{"a": 1, "b": "none"}] * 3
    assert Registry.asked.count("/schemas/ids/1") == 1
    for number, says in ((2, "does not have"), (9, "of the type PROTOBUF"), (6, "does not have")):
        with pytest.raises(InvalidValue, match=says):
            schema_of(registry, number)
    with pytest.raises(UnreachableSchemas, match="does not answer as a schema registry"):
        schema_of(registry, 7)


def test_a_schema_that_refers_to_another_one_is_read_with_it(registry: str) -> None:
    reader = BILL.replace('"R"', V1)
    value = framed(8, written(reader, {"of": {"a": 1}}))
    assert decoded([value], reader, is_framed=True, registry=registry) == [{"of": {"a": 1}}]


def test_a_value_that_nests_too_deeply_is_invalid_and_ends_no_worker(tmp_path: Path) -> None:
    """The Avro reader in C would end the process."""
    linked = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"next","type":["null","R"]}]}'
    (tmp_path / "1.avsc").write_text(linked)
    value = framed(1, b"\x02\x02" * 100_000 + b"\x02\x00")
    with pytest.raises(InvalidValue, match="RecursionError"):
        decoded([value], V1, is_framed=True, registry=str(tmp_path))
    assert decoded([framed(1, b"\x0e\x00")], V1, is_framed=True, registry=str(tmp_path)) == [{"a": 7}]


def test_an_unreachable_registry_is_reported() -> None:
    with pytest.raises(UnreachableSchemas, match="does not answer"):
        schema_of("http://127.0.0.1:9", 1)


def test_a_row_that_the_schema_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidValue, match="a row is not of the output's schema"):
        encoded(pa.array([{"a": "text"}]), V1)
