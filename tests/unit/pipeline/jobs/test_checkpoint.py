"""The checkpoint of another query is refused, because otherwise the job would skip records."""

from __future__ import annotations

import pytest

from oncelog_pipeline.jobs.checkpoint import check_checkpoint
from oncelog_pipeline.jobs.job import Input
from oncelog_pipeline.jobs.keys import JobError

ORDERS = Input("orders", {"subscribe": "orders, refunds"})
RATES = Input("rates", {"subscribePattern": "rate-.*"})
HEAD = 'v1\n{"batchWatermarkMs":0}\n'


@pytest.mark.parametrize(
    ("lines", "inputs"),
    [
        ('{"orders":{"0":5},"_from":{"orders":{"0":0}}}', [ORDERS]),
        ('{"orders":{"0":5},"_ids":{"orders":"abc"}}', [ORDERS]),
        ('{"orders":{"0":5},"refunds":{"0":1}}\n{"rate-eur":{"0":5}}', [ORDERS, RATES]),
        ('-\n{"rate-eur":{"0":5}}', [ORDERS, RATES]),
        ("no JSON", [ORDERS]),  # Spark itself reports this error
    ],
)
def test_a_checkpoint_of_the_same_query_is_accepted(lines: str, inputs: list[Input]) -> None:
    check_checkpoint("x", HEAD + lines, inputs)


@pytest.mark.parametrize(
    ("lines", "inputs", "says"),
    [
        ('{"bills":{"0":5}}', [ORDERS], "it has read bills, which this job does not"),
        ('{"xrate-eur":{"0":5}}', [RATES], "it has read xrate-eur"),
        ('{"orders":{"0":5}}', [ORDERS, RATES], "it has 1 inputs, this job has 2"),
    ],
)
def test_a_checkpoint_of_another_query_is_refused(lines: str, inputs: list[Input], says: str) -> None:
    with pytest.raises(JobError, match=f"x is the checkpoint of another query: {says}"):
        check_checkpoint("x", HEAD + lines, inputs)
