"""Keys and values of coordinator records: an int16, followed by a message of that version.

In a key, the int16 is the record type. In the oldest records, the int16 of the key was a version, so OffsetCommitKey
has both type 0 and type 1. In a value, the int16 is the version of the value's message.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, TypeVar

from oncelog_protocol.codec import MessageCodec, codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.schema import schema_of
from oncelog_protocol.wire_writers import Buffer

M = TypeVar("M")

VERSION: Final = Struct(">h")


def encode_versioned(message: object, version: int) -> bytes:
    """Return the int16 followed by the message. Raises UnencodableMessage for values that do not fit."""
    cls = type(message)
    known = _codecs.get((cls, version))
    if known is None:
        known = _codecs[cls, version] = codec(cls, version)
    return VERSION.pack(version) + known.encode(message)


def read_version(data: Buffer) -> int:
    """Return the int16 at the start of a key or value. Raises MalformedMessage."""
    if len(data) < VERSION.size:
        raise MalformedMessage(f"{len(data)} bytes are too short for a coordinator record")
    version: int = VERSION.unpack_from(data)[0]
    return version


def decode_versioned(cls: type[M], data: Buffer) -> M:
    """Return the message after the int16. Raises MalformedMessage, also for an unknown version."""
    version = read_version(data)
    known = _codecs.get((cls, version))
    if known is None:
        if version not in schema_of(cls).versions:
            raise MalformedMessage(f"{cls.__name__} of version {version} is not known here")
        known = _codecs[cls, version] = codec(cls, version)
    message: M = known.decode(data, VERSION.size)
    return message


_codecs: dict[tuple[object, int], MessageCodec[Any]] = {}
"""The codecs are cached, because a coordinator decodes its entire log while it loads, and encodes a record for nearly
every request.
"""
