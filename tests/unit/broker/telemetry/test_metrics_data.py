"""Pushed metrics are decoded as OpenTelemetry defines them, and no input makes the decoder keep more than its limits
allow.
"""

from __future__ import annotations

import pytest
from tests.support.otlp import attribute, field, gauge_of, metrics_data, number_field, point, sum_of, varint

from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.telemetry import metrics_data as module
from oncelog_broker.telemetry.metrics_data import Decoded, MalformedMetrics, MetricsDecoder, Point


def decoded(data: bytes) -> Decoded:
    return run_steps(MetricsDecoder(data).decoded())


def test_gauges_and_sums_are_decoded_with_the_attributes_of_their_resource() -> None:
    data = metrics_data(
        gauge_of("lag", point(2.5, topic="orders", partition=3), point(-7)),
        sum_of("bytes", point(10), is_delta=True),
        sum_of("size", point(4), is_delta=False, is_monotonic=False),
        group_id="billing",
    )
    group = (("group_id", "billing"),)
    assert decoded(data) == Decoded(
        [
            Point("lag", (*group, ("topic", "orders"), ("partition", "3")), 2.5, False, False),
            Point("lag", group, -7.0, False, False),
            Point("bytes", group, 10.0, True, True),
            Point("size", group, 4.0, False, False),
        ],
        left_out=0,
    )


def test_attributes_have_text_truth_and_numbers_as_text() -> None:
    data = metrics_data(gauge_of("g", point(1, a="x", b=True, c=-2, d=0.5)))
    assert decoded(data).points[0].attributes == (("a", "x"), ("b", "true"), ("c", "-2"), ("d", "0.5"))


def test_fields_of_later_versions_are_skipped() -> None:
    metric = field(2, "what it is") + gauge_of("g", point(1) + number_field(8, 1) + varint(99 << 3 | 5) + b"abcd")
    assert [each.value for each in decoded(metrics_data(metric)).points] == [1.0]


def test_histograms_and_values_beyond_the_limits_are_counted_as_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POINTS", 2)
    histogram = field(1, "h") + field(9, b"")
    long_name = gauge_of("n" * (module.MAX_NAME_CHARS + 1), point(1))
    data = metrics_data(histogram, long_name, gauge_of("g", point(1), point(2), point(3)), gauge_of("empty", b""))
    found = decoded(data)
    assert [each.value for each in found.points] == [1.0, 2.0]
    assert found.left_out == 4


def test_attributes_are_limited_in_number_and_length() -> None:
    many = {f"a{number}": "v" for number in range(module.MAX_ATTRIBUTES + 5)}
    long = {"k": "ü" * 1000, "k" * (module.MAX_NAME_CHARS + 1): "v"}
    attributes = decoded(metrics_data(gauge_of("g", point(1, **many)), gauge_of("g", point(1, **long)))).points
    assert len(attributes[0].attributes) == module.MAX_ATTRIBUTES
    assert attributes[1].attributes == (("k", "ü" * module.MAX_VALUE_CHARS),)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",  # fewer bytes than the length says
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of eleven bytes
        b"\x0b",  # wire type "group", which metrics never use
        b"\x02\x00",  # field number 0
        metrics_data(gauge_of("g", point(1)))[:-1],
        field(1, field(2, field(2, field(1, "g") + field(5, field(1, b"\x21abc"))))),  # a double of three bytes
    ],
)
def test_other_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMetrics):
        decoded(data)


def test_a_push_of_very_many_fields_is_refused() -> None:
    data = field(1, field(2, field(2, b"\x08\x00" * (module.MAX_FIELDS + 1))))
    with pytest.raises(MalformedMetrics, match="fields"):
        decoded(data)


def test_decoding_pauses_after_many_fields() -> None:
    points = [point(number, topic="t") for number in range(1000)]
    steps = MetricsDecoder(metrics_data(gauge_of("g", *points))).decoded()
    assert sum(1 for _ in steps) >= 5 * 1000 // module.FIELDS_PER_STEP


def test_an_attribute_without_key_or_with_a_list_is_left_out() -> None:
    a_list = field(1, "l") + field(2, field(5, b""))
    data = metrics_data(gauge_of("g", point(1) + field(7, attribute("", "v")) + field(7, a_list)))
    assert decoded(data).points[0].attributes == ()
