"""The expressions that --from and --to accept."""

import pytest

from oncelog.cli.offsets import (
    AtOffset,
    AtTime,
    BeforeEnd,
    Earliest,
    Latest,
    format_timestamp,
    out_of_range,
    parse_position,
    resolve,
)

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        (" latest ", Latest()),
        ("0", AtOffset(0)),
        ("1767225600000", AtOffset(1_767_225_600_000)),
        ("9223372036854775807", AtOffset(2**63 - 1)),
        ("-5", BeforeEnd(5)),
        ("-0", BeforeEnd(0)),
        ("@1767225600000", AtTime(NOW)),
        ("5m", AtTime(NOW - 300_000)),
        ("250ms", AtTime(NOW - 250)),
        ("2w", AtTime(NOW - 14 * 86_400_000)),
        ("999999999999w", AtTime(0)),
        ("2026-01-01", AtTime(NOW)),
        ("2026-01-01T00:00:00.001Z", AtTime(NOW + 1)),
        ("2026-01-01T01:00+01:00", AtTime(NOW)),
        ("1969-12-31T23:59:59", AtTime(-1000)),
    ],
)
def test_offset_expressions_are_parsed(text, position):
    assert parse_position(text, NOW) == position


@pytest.mark.parametrize(
    "text", ["", "soon", "5y", "+5", "--5", "1.5", "2" * 20, "9223372036854775808", "٣", "2026-13-01", "-5m"]
)
def test_other_offset_expressions_are_refused_with_a_message(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_position(text, NOW)


@pytest.mark.parametrize(
    ("position", "found", "offset"),
    [
        (Earliest(), None, 10),
        (Latest(), None, 20),
        (AtOffset(15), None, 15),
        (AtOffset(3), None, 10),
        (AtOffset(99), None, 20),
        (BeforeEnd(4), None, 16),
        (BeforeEnd(0), None, 20),
        (BeforeEnd(400), None, 10),
        (AtTime(NOW), 12, 12),
        (AtTime(NOW), None, 20),
        (AtTime(NOW), 25, 20),
    ],
)
def test_resolve_stays_in_the_partition(position, found, offset):
    assert resolve(position, beginning=10, end=20, found=found) == offset


def test_only_an_offset_outside_is_worth_a_warning():
    assert out_of_range(AtOffset(10), beginning=10, end=20) is None
    assert out_of_range(AtOffset(20), beginning=10, end=20) is None
    assert out_of_range(BeforeEnd(400), beginning=10, end=20) is None
    assert out_of_range(AtOffset(9), beginning=10, end=20) == "offset 9 is deleted, the first offset is 10"
    assert "after the end, 20" in (out_of_range(AtOffset(21), beginning=10, end=20) or "")


def test_timestamps_are_shown_in_utc_or_as_numbers():
    assert format_timestamp(NOW + 7) == "2026-01-01T00:00:00.007Z"
    assert format_timestamp(-1) == "-1"
    assert format_timestamp(2**63 - 1) == str(2**63 - 1)
