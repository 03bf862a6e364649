"""The Protobuf codec, based on the descriptors of a schema. Pure.

A registry returns a schema as the serialized descriptor of its file, in base64, so the client needs no Protobuf
compiler. Files in
google/protobuf and google/type are part of the libraries.
"""

from __future__ import annotations

import importlib
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.json_format import ParseError as JsonParseError
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from oncelog.serialization.codec import Codec
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.schemas import PROTOBUF, Schema
from oncelog.serialization.wire import with_indexes, without_indexes

WELL_KNOWN: Final = re.compile(r"google/(protobuf|type)/[a-z_]+\.proto")
"""Matches the files that a schema does not list as references, because every client has these files."""


class ProtobufCodec(Codec):
    """A .proto file whose messages become dicts; the keys are the field names, as in Protobuf's JSON.

    With a registry, a payload begins with the indexes of its message; without a registry, it does not. `message` is the
    full name of the message
    that `encode` writes and `from_json` reads; None means the first message of the file.
    """

    type: ClassVar[str] = PROTOBUF

    def __init__(self, schema: Schema, referred: Mapping[str, Schema], message: str | None = None) -> None:
        """The texts of the schemas are serialized descriptors. Raises SerializationError, also if the file does not
        have the message.
        """
        pool = DescriptorPool()
        try:
            for name, each in referred.items():
                other = _descriptor(each.text)
                other.name = name
                _add(pool, other)
            file = _descriptor(schema.text)
            _add(pool, file)
            self._file: FileDescriptor = pool.FindFileByName(file.name)
        except (TypeError, KeyError, ValueError, DecodeError) as error:
            raise SerializationError(f"the schema is not a Protobuf descriptor that can be used: {error}") from error
        if not self._file.message_types_by_name:
            raise SerializationError("the .proto file has no message")
        self._message = self._chosen(message)
        self.name = str(self._message.full_name)

    def encode(self, value: Any) -> bytes:
        message = self._as_message(value)
        return with_indexes(indexes_of(message.DESCRIPTOR), _encoded(message))

    def decode(self, payload: bytes) -> Any:
        indexes, payload = without_indexes(payload)
        return self._dict_of(self._at(indexes), payload)

    def encode_bare(self, value: Any) -> bytes:
        return _encoded(self._as_message(value))

    def decode_bare(self, data: bytes) -> Any:
        return self._dict_of(self._message, data)

    def _as_message(self, value: Any) -> Message:
        return value if isinstance(value, Message) else self.from_json(value)

    def _dict_of(self, descriptor: Descriptor, payload: bytes) -> Any:
        message = _decoded(GetMessageClass(descriptor), payload)
        try:
            return MessageToDict(message, preserving_proto_field_name=True)
        except Exception as error:  # raised for example for an Any of an unknown type, or a time out of range
            raise SerializationError(f"a message {message.DESCRIPTOR.full_name} cannot be shown: {error}") from error

    def from_json(self, value: Any) -> Message:
        """Return the message for a document in Protobuf's JSON form. Raises SerializationError."""
        try:
            message: Message = ParseDict(value, GetMessageClass(self._message)())
        except (JsonParseError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise SerializationError(f"a value is not a message {self.name}: {error}") from error
        return message

    def _chosen(self, name: str | None) -> Descriptor:
        messages = _messages(list(self._file.message_types_by_name.values()))
        for message in messages:
            if name in (None, message.full_name, message.name):
                return message
        known = ", ".join(str(each.full_name) for each in messages[:10])
        raise SerializationError(f"the schema has no message {name!r}: there are {known}")

    def _at(self, indexes: list[int]) -> Descriptor:
        siblings = list(self._file.message_types_by_name.values())
        found: Descriptor | None = None
        for index in indexes:
            if not 0 <= index < len(siblings):
                raise SerializationError(f"the schema has no message at the indexes {indexes}")
            found = siblings[index]
            siblings = list(found.nested_types)
        assert found is not None
        return found


def encoded_message(message: Message) -> bytes:
    """Return the payload of a message, preceded by its indexes. Raises SerializationError."""
    return with_indexes(indexes_of(message.DESCRIPTOR), _encoded(message))


def decoded_message(cls: type[Message], payload: bytes) -> Message:
    """Return the message of a payload that begins with indexes, which are skipped. Raises SerializationError."""
    return _decoded(cls, without_indexes(payload)[1])


def indexes_of(message: Descriptor) -> list[int]:
    """Return the index of a message among its siblings, for each level from the outermost message on."""
    indexes: list[int] = []
    while (outer := message.containing_type) is not None:
        indexes.insert(0, [each.full_name for each in outer.nested_types].index(message.full_name))
        message = outer
    indexes.insert(0, list(message.file.message_types_by_name).index(message.name))
    return indexes


def text_of(file: FileDescriptor) -> str:
    """Return the serialized descriptor of a file, in base64, as a registry stores it."""
    return b64encode(file.serialized_pb).decode()


def is_well_known(name: str) -> bool:
    """Return whether this file is part of the Protobuf libraries, so that every client has it."""
    return WELL_KNOWN.fullmatch(name) is not None


def _encoded(message: Message) -> bytes:
    try:
        encoded: bytes = message.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise SerializationError(f"a message cannot be written: {error}") from error
    return encoded


def _decoded(cls: type[Message], payload: bytes) -> Message:
    message = cls()
    try:
        message.ParseFromString(payload)
    except (DecodeError, RecursionError) as error:
        name = message.DESCRIPTOR.full_name
        raise SerializationError(f"{len(payload)} bytes are not a message {name}: {error}") from error
    return message


def _descriptor(text: str) -> FileDescriptorProto:
    try:
        return FileDescriptorProto.FromString(b64decode(text, validate=True))
    except ValueError as error:
        raise ValueError("it is not a serialized descriptor: does the registry know format=serialized?") from error


def _add(pool: Any, file: FileDescriptorProto) -> None:
    for name in file.dependency:
        _add_well_known(pool, name)
    pool.Add(file)


def _add_well_known(pool: Any, name: str) -> None:
    """Add a file that is part of the libraries, and the files that it imports."""
    if not is_well_known(name):
        return
    try:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError as error:
        raise ValueError(f"there is no file {name} to import") from error
    known = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for each in known.dependency:
        _add_well_known(pool, each)
    pool.Add(known)


def _messages(outermost: list[Descriptor]) -> list[Descriptor]:
    """Return the messages of a file, each message before the messages that it contains."""
    found = []
    for message in outermost:
        found.append(message)
        found += _messages(list(message.nested_types))
    return found
