"""Converts between columns of Avro values and columns of their fields."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from fastavro import schemaless_writer

from oncelog_pipeline.values.avro_types import arrow_type, parsed
from oncelog_pipeline.values.format import ValueFormat
from oncelog_pipeline.values.schemas import Writer, schema_of, writer_of
from oncelog_pipeline.values.wire import InvalidValue, unframed

Places = Iterable[tuple[str, int, int]]
"""Topic, partition and offset of each value, for error messages."""


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes columns of Avro values. The object contains only plain values, so that Spark can pickle it; schemas are
    parsed at first use.
    """

    format: ValueFormat

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the decoded column. Raises SchemaError."""
        return arrow_type(parsed(self.format.schema or ""))

    def column(self, values: Iterable[bytes | None], places: Callable[[], Places]) -> pa.Array:
        """Decode a column of Avro values; a null remains null. Raises UnreachableSchemas, and InvalidValue unless
        invalid values become null.
        """
        reader = writer_of(self.format.schema or "")
        made = arrow_type(reader.schema)
        decoded: list[Any] = []
        for index, value in enumerate(values):
            if value is None:
                decoded.append(None)
                continue
            try:
                decoded.append(self._value(value, reader))
            except InvalidValue as error:
                if self.format.fails_if_invalid:
                    raise InvalidValue(_said(index, places(), error)) from error
                decoded.append(None)
        return self._array(decoded, made, places)

    def _value(self, value: bytes, reader: Writer) -> Any:
        """Decode one value. Raises InvalidValue."""
        writer = reader
        if self.format.is_framed:
            number, value = unframed(value)
            if self.format.registry is not None:
                writer = schema_of(self.format.registry, number)
        stream = io.BytesIO(value)
        try:
            decoded = writer.read(stream, writer.schema, reader.schema)
        except Exception as error:  # fastavro may raise any exception for malformed bytes
            raise InvalidValue(f"is not of its schema: {type(error).__name__}: {error}") from error
        if stream.tell() != len(value):
            raise InvalidValue(f"has {len(value) - stream.tell()} bytes more than its schema says")
        return decoded

    def _array(self, decoded: list[Any], made: pa.DataType, places: Callable[[], Places]) -> pa.Array:
        """Return an Arrow array of the decoded values. Raises InvalidValue if a value exceeds the range of its column's
        type, such as a time in the year 300,000.
        """
        try:
            return pa.array(decoded, made)
        except (pa.ArrowException, OverflowError, TypeError) as error:
            for index, value in enumerate(decoded):
                try:
                    pa.array([value], made)
                except (pa.ArrowException, OverflowError, TypeError) as bad:
                    if self.format.fails_if_invalid:
                        raise InvalidValue(_said(index, places(), bad)) from error
                    decoded[index] = None
        return pa.array(decoded, made)


def _said(index: int, places: Places, error: Exception) -> str:
    topic, partition, offset = list(places)[index]
    return f'{topic}-{partition}, offset {offset}: {error}. To have null in its place, set invalid = "null"'


def encoded(values: pa.Array, schema_text: str) -> pa.Array:
    """Encode rows as Avro; a null row becomes null, which is a tombstone. Raises SchemaError, and InvalidValue for a
    row that does not match the schema.
    """
    schema = parsed(schema_text)
    found: list[bytes | None] = []
    for row in values.to_pylist(maps_as_pydicts="strict"):
        stream = io.BytesIO()
        try:
            if row is not None:
                schemaless_writer(stream, schema, row, strict_allow_default=True)
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidValue(f"a row is not of the output's schema: {error}; the row is {row!r:.300}") from error
        found.append(None if row is None else stream.getvalue())
    return pa.array(found, pa.binary())
