"""The guide to the metrics of queries names exactly the metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

from oncelog_pipeline.metrics.query_metrics import QueryMetrics

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "watching-queries.md"
SUFFIX = re.compile("_total$")


def test_the_guide_names_each_metric() -> None:
    documented = {SUFFIX.sub("", name) for name in re.findall(r"`(oncelog_query_\w+)`", GUIDE.read_text())}
    assert documented == {metric.name for metric in QueryMetrics().collect()}
