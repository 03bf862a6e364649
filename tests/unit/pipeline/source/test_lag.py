"""The lag of a query is computed from Spark's reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncelog_pipeline.source.lag import offsets_behind_latest


def test_the_lag_metrics_equal_those_of_sparks_own_connector() -> None:
    source = {
        "endOffset": json.dumps({"a": {"0": 5, "1": 7}, "_ids": {"a": "x"}}),
        "latestOffset": json.dumps({"a": {"0": 5, "1": 10}, "b": {"0": 6}}),
    }
    assert offsets_behind_latest(source) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "6",
        "avgOffsetsBehindLatest": "3.0",
    }


@pytest.mark.parametrize(
    "source", [{}, {"endOffset": None, "latestOffset": "5"}, {"endOffset": "{}", "latestOffset": "{}"}]
)
def test_a_source_without_offsets_has_no_lag_metrics(source: Any) -> None:
    assert offsets_behind_latest(source) == {}
