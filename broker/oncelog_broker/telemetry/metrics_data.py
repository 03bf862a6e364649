"""Decodes OpenTelemetry's MetricsData (protobuf, `opentelemetry/proto/metrics/v1/metrics.proto`), as clients push it.

Only gauges and sums are decoded, because clients push no other kinds of metrics. Histograms and summaries are counted
as left out. The caller limits the size of the input. This module limits the number of decoded fields and values,
because a small input may expand to many. The messages are nested to a fixed depth, so the decoder needs no recursion.
Decoding pauses between steps so that other work can run, because a megabyte takes some tenths of a second.

The message, with the numbers of the fields that are read:

    MetricsData    1 resource_metrics
    ResourceMetrics    1 resource, 2 scope_metrics
    Resource    1 attributes
    ScopeMetrics    2 metrics
    Metric    1 name, 5 gauge, 7 sum, 9 histogram, 10 exponential_histogram, 11 summary
    Gauge, Sum    1 data_points; Sum: 2 aggregation_temporality, 3 is_monotonic
    NumberDataPoint    4 as_double, 6 as_int, 7 attributes
    KeyValue    1 key, 2 value; AnyValue: 1 string, 2 bool, 3 int, 4 double
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.light_classes import NamedTuple

MAX_FIELDS: Final = 200_000
"""Maximum number of protobuf fields in one push, including the fields of nested messages."""
MAX_POINTS: Final = 5_000
"""Maximum number of values in one push; further values are left out."""
MAX_ATTRIBUTES: Final = 16
"""Maximum number of attributes that a resource or a value may have; further attributes are left out."""
MAX_NAME_CHARS: Final = 200
"""Maximum length of a metric name or attribute key. A metric or attribute with a longer name is left out."""
MAX_VALUE_CHARS: Final = 200
"""Maximum length of an attribute value; longer values are cut to this length."""
FIELDS_PER_STEP: Final = 1_000
"""Number of protobuf fields that are decoded before other work may run; decoding a field takes one to two microseconds.
"""

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5
MAX_VARINT_BYTES: Final = 10
DELTA: Final = 1
"""The value of aggregation_temporality for a sum that contains only the difference since the previous push."""
UNREAD_KINDS: Final = frozenset({9, 10, 11})

_DOUBLE: Final = struct.Struct("<d")
_SFIXED64: Final = struct.Struct("<q")

Attributes = tuple[tuple[str, str], ...]
"""Type of the attributes of a resource or value: pairs of key and value."""


class MalformedMetrics(ValueError):
    """The bytes are not MetricsData, or have more than MAX_FIELDS fields."""


class Point(NamedTuple):
    """One value of one metric of a client. `attributes` has the attributes of the resource, followed by the attributes
    of the value.
    """

    name: str
    attributes: Attributes
    value: float
    is_counter: bool
    """Whether the value only increases (a monotonic sum)."""
    is_delta: bool
    """Whether the value is the difference since the client's previous push."""


class Decoded(NamedTuple):
    """The content of one push."""

    points: list[Point]
    left_out: int
    """Number of values and metrics that were not decoded, because their kind is not supported or a limit was exceeded.
    """


class _Field(NamedTuple):
    """A protobuf field. For BYTES, `start` and `end` are the span of the content. For FIXED64 and FIXED32, `start` is
    the position of the number; for other types, `start` is the number itself.
    """

    number: int
    wire_type: int
    start: int
    end: int


class MetricsDecoder:
    """Decodes one push. Create an instance for each push, and run `decoded`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._fields = 0
        self._paused_at = 0
        self._points: list[Point] = []
        self._left_out = 0

    def decoded(self) -> Steps[Decoded]:
        """Decode the push in steps, and return its content. Raises MalformedMetrics."""
        for resource_metrics in self._messages(0, len(self._data), 1):
            yield from self._resource_metrics(resource_metrics)
        return Decoded(self._points, self._left_out)

    def _resource_metrics(self, span: _Field) -> Steps[None]:
        attributes: Attributes = ()
        scopes: list[_Field] = []
        for field in self._read(span.start, span.end):
            if field.wire_type == BYTES and field.number == 1:
                attributes = self._attributes(field, 1)
            elif field.wire_type == BYTES and field.number == 2:
                scopes.append(field)
        for scope in scopes:
            for metric in self._messages(scope.start, scope.end, 2):
                yield from self._metric(metric, attributes)
            if self._is_due():
                yield None

    def _metric(self, span: _Field, of_resource: Attributes) -> Steps[None]:
        name, values = "", list[_Field]()
        for field in self._read(span.start, span.end):
            if field.wire_type == BYTES and field.number == 1:
                name = self._text(field)
            elif field.wire_type == BYTES and field.number in (5, 7):
                values.append(field)
            elif field.number in UNREAD_KINDS:
                self._left_out += 1
        if self._is_due():
            yield None
        if not name or len(name) > MAX_NAME_CHARS:
            self._left_out += len(values)
            return
        for value in values:
            is_sum, is_delta, is_monotonic = value.number == 7, False, False
            points: list[_Field] = []
            for field in self._read(value.start, value.end):
                if field.wire_type == BYTES and field.number == 1:
                    points.append(field)
                elif is_sum and field.wire_type == VARINT and field.number == 2:
                    is_delta = field.start == DELTA
                elif is_sum and field.wire_type == VARINT and field.number == 3:
                    is_monotonic = bool(field.start)
            for point in points:
                self._point(point, name, of_resource, is_counter=is_monotonic, is_delta=is_delta)
                if self._is_due():
                    yield None

    def _point(self, span: _Field, name: str, of_resource: Attributes, *, is_counter: bool, is_delta: bool) -> None:
        value: float | None = None
        attributes: list[_Field] = []
        for field in self._read(span.start, span.end):
            if field.wire_type == FIXED64 and field.number == 4:
                (value,) = _DOUBLE.unpack_from(self._data, field.start)
            elif field.wire_type == FIXED64 and field.number == 6:
                (integer,) = _SFIXED64.unpack_from(self._data, field.start)
                value = float(integer)
            elif field.wire_type == BYTES and field.number == 7:
                attributes.append(field)
        if value is None or len(self._points) >= MAX_POINTS:
            self._left_out += 1
            return
        own = tuple(filter(None, map(self._key_value, attributes[:MAX_ATTRIBUTES])))
        self._points.append(Point(name, of_resource + own, value, is_counter, is_delta))

    def _attributes(self, span: _Field, number: int) -> Attributes:
        fields = list(self._messages(span.start, span.end, number))
        return tuple(filter(None, map(self._key_value, fields[:MAX_ATTRIBUTES])))

    def _key_value(self, span: _Field) -> tuple[str, str] | None:
        """Return key and value of an attribute; None if the attribute has no key, or if its value is a list."""
        key, value = "", None
        for field in self._read(span.start, span.end):
            if field.wire_type == BYTES and field.number == 1:
                key = self._text(field)
            elif field.wire_type == BYTES and field.number == 2:
                value = self._any_value(field)
        return None if not key or len(key) > MAX_NAME_CHARS or value is None else (key, value[:MAX_VALUE_CHARS])

    def _any_value(self, span: _Field) -> str | None:
        for field in self._read(span.start, span.end):
            match field.number, field.wire_type:
                case 1, 2:
                    return self._text(field)
                case 2, 0:
                    return "true" if field.start else "false"
                case 3, 0:
                    return str(field.start - 2**64 if field.start >= 2**63 else field.start)
                case 4, 1:
                    return str(_DOUBLE.unpack_from(self._data, field.start)[0])
        return None

    def _text(self, span: _Field) -> str:
        end = min(span.end, span.start + 4 * max(MAX_NAME_CHARS, MAX_VALUE_CHARS) + 4)
        return self._data[span.start : end].decode("utf-8", "replace")

    def _messages(self, start: int, end: int, number: int) -> Iterator[_Field]:
        """Yield the nested messages of one field."""
        for field in self._read(start, end):
            if field.number == number and field.wire_type == BYTES:
                yield field

    def _read(self, position: int, end: int) -> Iterator[_Field]:
        """Yield the fields of the message from `position` to `end`. Raises MalformedMetrics."""
        data = self._data
        while position < end:
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise MalformedMetrics(f"more than {MAX_FIELDS} fields")
            tag, position = self._varint(position, end)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == VARINT:
                value, position = self._varint(position, end)
                yield _Field(number, wire_type, value, position)
                continue
            start = position
            if wire_type == BYTES:
                size, start = self._varint(position, end)
                position = start + size
            elif wire_type == FIXED64:
                position += 8
            elif wire_type == FIXED32:
                position += 4
            else:
                raise MalformedMetrics(f"wire type {wire_type}")
            if position > end or number == 0:
                raise MalformedMetrics(f"a field at byte {start} of {len(data)} exceeds its message")
            yield _Field(number, wire_type, start, position)

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = shift = 0
        for at in range(position, min(end, position + MAX_VARINT_BYTES)):
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at + 1
            shift += 7
        raise MalformedMetrics(f"no varint at byte {position}")

    def _is_due(self) -> bool:
        """Whether FIELDS_PER_STEP fields were read since the last pause, so that other work should run now."""
        if self._fields - self._paused_at < FIELDS_PER_STEP:
            return False
        self._paused_at = self._fields
        return True
