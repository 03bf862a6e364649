"""Encodes OpenTelemetry's MetricsData by hand, as clients push it: `metrics_data(sum_of("name", 3))`."""

from __future__ import annotations

import struct


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def attribute(key: str, value: str | bool | int | float) -> bytes:
    """A KeyValue."""
    if isinstance(value, bool):
        any_value = number_field(2, value)
    elif isinstance(value, int):
        any_value = number_field(3, value)
    elif isinstance(value, float):
        any_value = varint(4 << 3 | 1) + struct.pack("<d", value)
    else:
        any_value = field(1, value)
    return field(1, key) + field(2, any_value)


def point(value: float, **attributes: str | bool | int | float) -> bytes:
    """A NumberDataPoint: an int is sent as as_int, a float as as_double."""
    if isinstance(value, int):
        encoded = varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        encoded = varint(4 << 3 | 1) + struct.pack("<d", value)
    return encoded + b"".join(field(7, attribute(key, of)) for key, of in attributes.items())


def gauge_of(name: str, *points: bytes) -> bytes:
    """Return an OTLP metric of type gauge with these data points."""
    return field(1, name) + field(5, b"".join(field(1, each) for each in points))


def sum_of(name: str, *points: bytes, is_delta: bool = True, is_monotonic: bool = True) -> bytes:
    """Return an OTLP metric of type sum with these data points."""
    data = b"".join(field(1, each) for each in points)
    data += number_field(2, 1 if is_delta else 2) + number_field(3, is_monotonic)
    return field(1, name) + field(7, data)


def metrics_data(*metrics: bytes, **resource: str) -> bytes:
    """MetricsData of one resource and one scope."""
    attributes = b"".join(field(1, attribute(key, value)) for key, value in resource.items())
    scope = field(1, field(1, "scope")) + b"".join(field(2, metric) for metric in metrics)
    return field(1, field(1, attributes) + field(2, scope))
