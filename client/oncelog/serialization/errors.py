"""The errors of serializers, deserializers and the client of a schema registry. Pure.

KafkaError
├── SerializationError            a value does not fit its schema, or bytes cannot be decoded
│   └── RecordDeserializationError  ... in a record that a consumer has fetched; `record` is the record
└── SchemaRegistryError           the registry did not return a schema
    ├── SchemaNotFound            the registry has no such schema, subject or version
    ├── RegistryRefused           the registry refused the request; `status` and `error_code` say why
    └── RegistryUnavailable       (retriable) no response in time, or no usable response
"""

from __future__ import annotations

from typing import Any, Final

from oncelog_protocol.errors import ErrorCode, KafkaError

NOT_FOUND_CODES: Final = frozenset({404, 40401, 40402, 40403, 40404, 40406})
"""Codes of the registry for a subject, version or schema that does not exist or was deleted."""


class SerializationError(KafkaError):
    """A value cannot be written with its schema, or bytes cannot be read with their schema."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)

    def __str__(self) -> str:
        return self.message  # the message has no error code, because no broker has sent one


class RecordDeserializationError(SerializationError):
    """A record cannot be read. The attribute `record` has the record's topic, partition and offset, and its key and
    value as bytes. The position of a Consumer stays before the record; seek to `record.offset + 1` to skip the record.
    If a ShareConsumer raises this error, `record` is the ShareRecord: `reject` or `release` it.
    """

    def __init__(self, record: Any, error: SerializationError) -> None:
        super().__init__(f"{record.topic}-{record.partition}, offset {record.offset}: {error.message}")
        self.record = record


class SchemaRegistryError(KafkaError):
    """The schema registry did not return a schema."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def __str__(self) -> str:
        return self.message  # the message has no error code, because no broker has sent one


class RegistryRefused(SchemaRegistryError):
    """The registry refused a request. `status` is the HTTP status; `error_code` is the registry's own code, or the
    status if there is none.
    """

    def __init__(self, message: str, status: int, error_code: int) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code


class SchemaNotFound(RegistryRefused):
    """The registry has no such schema, subject or version."""


class RegistryUnavailable(SchemaRegistryError):
    """The registry did not respond in time, or its response is not usable. The call may succeed later."""

    @property
    def retriable(self) -> bool:
        return True


def shown_url(urls: str) -> str:
    """Return the URLs for a message, separated by commas, with users and passwords removed."""
    return ",".join(_without_user(url) for url in urls.split(","))


def _without_user(url: str) -> str:
    if "@" not in url:
        return url
    scheme, separator, _ = url.partition("://")
    return f"{scheme if separator else ''}{separator}{url.rpartition('@')[2]}"
