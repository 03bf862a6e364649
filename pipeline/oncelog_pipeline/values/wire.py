"""Splits a value into schema id and payload, with the client's reader of the Confluent wire format. Pure."""

from __future__ import annotations

from oncelog.serialization import wire
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.wire import HEADER, framed

__all__ = ["HEADER", "InvalidValue", "framed", "unframed"]


class InvalidValue(ValueError):
    """The bytes do not have the expected format."""


def unframed(value: bytes) -> tuple[int, bytes]:
    """Return the schema id and the payload of a value. Raises InvalidValue."""
    try:
        return wire.unframed(value)
    except SerializationError as error:
        raise InvalidValue(str(error)) from error
