"""The schema id in front of a value, by the client's reader of the Confluent wire format. Pure."""

from __future__ import annotations

from oncelog.serialization import wire
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.wire import HEADER, framed

__all__ = ["HEADER", "InvalidValue", "framed", "unframed"]


class InvalidValue(ValueError):
    """Bytes that are not of the format that they should have."""


def unframed(value: bytes) -> tuple[int, bytes]:
    """The schema id and the payload. Raises InvalidValue."""
    try:
        return wire.unframed(value)
    except SerializationError as error:
        raise InvalidValue(str(error)) from error
