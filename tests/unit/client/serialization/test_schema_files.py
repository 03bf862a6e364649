from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from oncelog.serialization import (
    CodecDeserializer,
    CodecSerializer,
    SerializationContext,
    SerializationError,
    codec_of_file,
)

PLACE = SerializationContext("orders")


def descriptor_set() -> bytes:
    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=5, label=1)
    return FileDescriptorSet(file=[file]).SerializeToString()


@pytest.mark.parametrize(
    ("name", "content", "written"),
    [
        ("a.avsc", b'{"type":"record","name":"O","fields":[{"name":"id","type":"int"}]}', b"\x0e"),
        ("a.json", b'{"type":"object"}', b'{"id":7}'),
        ("a.desc", descriptor_set(), b"\x08\x07"),
    ],
)
async def test_values_are_written_and_read_by_a_schema_in_a_file(
    tmp_path: Path, name: str, content: bytes, written: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    codec = codec_of_file(tmp_path / name)
    assert await CodecSerializer(codec).serialize({"id": 7}, PLACE) == written
    assert await CodecDeserializer(codec).deserialize(written, PLACE) == {"id": 7}


@pytest.mark.parametrize(
    ("name", "content"), [("a.txt", b""), ("a.avsc", b"\xff"), ("a.json", b"7"), ("a.desc", b"\xff"), ("a.pb", b"")]
)
def test_a_file_that_has_no_schema_is_refused_with_its_name(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SerializationError, match=name):
        codec_of_file(tmp_path / name)
