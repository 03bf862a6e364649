"""Protobuf by descriptors: nested messages, imports, and hostile schemas and payloads."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.timestamp_pb2 import Timestamp

from oncelog.serialization import Schema, SerializationError
from oncelog.serialization.protobuf import ProtobufCodec, is_well_known, text_of
from oncelog.serialization.schemas import PROTOBUF

INT32, MESSAGE, OPTIONAL = 5, 11, 1


def order_file(*dependencies: str) -> FileDescriptorProto:
    """Return the descriptor of `message Order { int32 id = 1; message Line { int32 count = 1; } } message Bill { int32
    sum = 1; }`
    """
    file = FileDescriptorProto(name="order.proto", package="a", syntax="proto3", dependency=dependencies)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=INT32, label=OPTIONAL)
    order.nested_type.add(name="Line").field.add(name="count", number=1, type=INT32, label=OPTIONAL)
    file.message_type.add(name="Bill").field.add(name="sum", number=1, type=INT32, label=OPTIONAL)
    return file


def schema(file: FileDescriptorProto) -> Schema:
    return Schema(b64encode(file.SerializeToString()).decode(), PROTOBUF)


def codec(file: FileDescriptorProto, message: str | None = None, **referred: FileDescriptorProto) -> ProtobufCodec:
    return ProtobufCodec(schema(file), {f"{name}.proto": schema(each) for name, each in referred.items()}, message)


@pytest.mark.parametrize(
    ("message", "value", "payload"),
    [
        (None, {"id": 7}, b"\x00\x08\x07"),
        ("a.Order.Line", {"count": 7}, b"\x04\x00\x00\x08\x07"),
        ("Bill", {"sum": 7}, b"\x02\x02\x08\x07"),
    ],
)
def test_the_indexes_name_the_message(message: str | None, value: dict[str, Any], payload: bytes) -> None:
    one = codec(order_file(), message)
    assert one.encode(value) == payload
    assert one.decode(payload) == value
    assert codec(order_file()).decode(payload) == value
    assert one.decode_bare(one.encode_bare(value)) == value


def test_a_message_that_the_file_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(SerializationError, match=r"a\.Order, a\.Order\.Line, a\.Bill"):
        codec(order_file(), "Other")


@pytest.mark.parametrize("payload", [b"", b"\x02\x04", b"\x04\x00\x02", b"\x00\x08", b"\x02\x01\x08\x07"])
def test_payloads_that_are_no_message_are_refused(payload: bytes) -> None:
    with pytest.raises(SerializationError):
        codec(order_file()).decode(payload)


@pytest.mark.parametrize("value", [{"id": "x"}, {"more": 1}, 7, None])
def test_a_value_that_is_no_message_is_refused(value: Any) -> None:
    with pytest.raises(SerializationError, match=r"not a message a\.Order"):
        codec(order_file()).encode(value)


@pytest.mark.parametrize("text", ["message A {}", "", "AAAA", "?"])
def test_a_text_that_is_no_descriptor_is_refused(text: str) -> None:
    with pytest.raises(SerializationError):
        ProtobufCodec(Schema(text, PROTOBUF), {})


def test_imports_are_references_or_come_with_the_library() -> None:
    money = FileDescriptorProto(name="another name.proto", package="m", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=INT32, label=OPTIONAL)
    file = order_file("money.proto", "google/protobuf/timestamp.proto")
    fields = file.message_type[0].field
    fields.add(name="price", number=2, type=MESSAGE, label=OPTIONAL, type_name=".m.Money")
    fields.add(name="at", number=3, type=MESSAGE, label=OPTIONAL, type_name=".google.protobuf.Timestamp")
    value = {"id": 1, "price": {"cents": 5}, "at": "2026-01-31T00:00:00Z"}
    one = codec(file, money=money)
    assert one.decode(one.encode(value)) == value
    with pytest.raises(SerializationError):
        codec(file)


@pytest.mark.parametrize("name", ["os.proto", "google/protobuf/../../os.proto", "google/protobuf/none.proto"])
def test_an_import_of_another_name_loads_no_module(name: str) -> None:
    with pytest.raises(SerializationError):
        codec(order_file(name))
    assert not is_well_known("os.proto")


def test_the_text_of_a_file_is_its_descriptor() -> None:
    one = ProtobufCodec(Schema(text_of(Timestamp.DESCRIPTOR.file), PROTOBUF), {})
    assert one.name == "google.protobuf.Timestamp"
