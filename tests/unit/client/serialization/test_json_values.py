import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from oncelog.serialization.json_values import DEEPER, bytes_of, json_value, text_of


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        ({"a": [1, 1.5, True, "x"]}, {"a": [1, 1.5, True, "x"]}),
        (b"text", "text"),
        (b"\xff", "base64:/w=="),
        (b"\x1b[2J", "base64:G1sySg=="),
        (b"base64:x", "base64:YmFzZTY0Ong="),
        (float("nan"), "nan"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00+00:00"),
        (date(2026, 1, 31), "2026-01-31"),
        (timedelta(seconds=1.5), 1.5),
        ({1: 2, b"k": 3}, {"1": 2, "k": 3}),
        ((1, {2}), [1, [2]]),
    ],
)
def test_any_value_has_a_form_in_json(value: Any, shown: Any) -> None:
    assert json_value(value) == shown
    json.dumps(json_value(value), allow_nan=False)


def test_a_value_that_nests_too_deeply_is_cut_off() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert DEEPER in json.dumps(json_value(value))


@pytest.mark.parametrize("data", [b"", b"a\nb", b"\0", b"\xff\xfe", b"base64:", "ü".encode()])
def test_bytes_are_read_back_as_they_are_shown(data: bytes) -> None:
    assert bytes_of(text_of(data)) == data
