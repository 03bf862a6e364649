"""Samples the metrics of Spark's streaming queries every few seconds. The samples are kept in memory, with limits.

`serve_query_metrics` and `oncelog pipeline run --metrics` serve these metrics; the console's options have the
addresses.
"""

from __future__ import annotations

import asyncio
import logging
import math
import urllib.request
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from oncelog.clock import now_ms
from oncelog_console.limits import (
    MAX_METRICS_BYTES,
    MAX_SAMPLED_QUERIES,
    METRICS_SECONDS,
    SAMPLE_SECONDS,
    SAMPLES,
)

PREFIX: Final = "oncelog_query_"

logger = logging.getLogger(__name__)


class QueryPoint(NamedTuple):
    """One sample of a query; a metric of None means that the query does not have it. `at_ms`: ms since the epoch.
    `batch_ms`: the duration of the last batch in ms.
    """

    at_ms: int
    lag: int | None
    rows_per_second: int | None
    batch_ms: int | None


@dataclass(slots=True)
class QueryHistory:
    """The history of one query. `values`: the query's metrics that have a single value, from the last sample; the key
    is the metric's name without the prefix.
    """

    query_id: str
    name: str
    values: Mapping[str, float] = field(default_factory=dict)
    points: deque[QueryPoint] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    @property
    def state(self) -> str:
        if self.values.get("running"):
            return "running"
        return "failed" if self.values.get("failed") else "ended"

    def number(self, name: str) -> int | None:
        """Return a metric as an integer; None if the query does not have it."""
        value = self.values.get(name)
        return None if value is None else round(value)


class BadMetrics(Exception):
    """Raised if the response of an address cannot be parsed as metrics. The message gives the reason."""


class QueryHistories:
    """The histories of all queries. `queries`: the histories by query id. `problems`: for each address, why its last
    sample failed. `left_out`: the number of queries that are not sampled, because there are more than
    MAX_SAMPLED_QUERIES.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self.queries: dict[str, QueryHistory] = {}
        self.problems: dict[str, str] = {}
        self.left_out = 0
        self.samples = 0

    async def run(self) -> None:
        """Sample until cancelled."""
        while self.addresses:
            await self.sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    async def sample(self) -> None:
        """Read the metrics of every address once. The queries of an address that does not respond keep their last
        values.
        """
        answers = await asyncio.gather(*(asyncio.to_thread(_ask, each) for each in self.addresses))
        at_ms = now_ms()
        found: dict[tuple[str, str], dict[str, float]] = {}
        self.problems = {}
        for address, answer in zip(self.addresses, answers, strict=True):
            if isinstance(answer, BadMetrics):
                self.problems[address] = str(answer)
            else:
                found |= answer
        self.left_out = max(0, len(found) - MAX_SAMPLED_QUERIES)
        for (query_id, name), values in list(found.items())[:MAX_SAMPLED_QUERIES]:
            self._note(query_id, name, values, at_ms)
        self.samples += 1

    def _note(self, query_id: str, name: str, values: Mapping[str, float], at_ms: int) -> None:
        history = self.queries.pop(query_id, None) or QueryHistory(query_id, name)
        history.name, history.values = name, values
        seconds = values.get("last_batch_seconds")
        batch_ms = None if seconds is None else round(seconds * 1000)
        point = QueryPoint(at_ms, history.number("lag_offsets"), history.number("rows_per_second"), batch_ms)
        history.points.append(point)
        # Move the query to the end, because at the limit the first query, which was sampled longest ago, is dropped.
        self.queries[query_id] = history
        while len(self.queries) > MAX_SAMPLED_QUERIES:
            del self.queries[next(iter(self.queries))]


def _ask(address: str) -> dict[tuple[str, str], dict[str, float]] | BadMetrics:
    """Return the metrics of each query, by (query id, name). The call blocks on the network, so it must run in a
    thread.
    """
    try:
        with urllib.request.urlopen(address, timeout=METRICS_SECONDS) as answer:  # noqa: S310 - http only, see the command
            text = answer.read(MAX_METRICS_BYTES + 1)
        if len(text) > MAX_METRICS_BYTES:
            return BadMetrics(f"its metrics have more than {MAX_METRICS_BYTES} bytes")
        return read_metrics(text.decode())
    except OSError as error:  # the address did not respond, or responded with an HTTP error
        return BadMetrics(f"it does not answer: {error}")
    except Exception as error:
        logger.debug("metrics of queries cannot be read from %s", address, exc_info=True)
        return BadMetrics(f"these are not metrics: {error}")


def read_metrics(text: str) -> dict[tuple[str, str], dict[str, float]]:
    """Return the single-valued metrics by (query id, name), without their prefix; NaN is skipped. Raises ValueError for
    text that is not metrics."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for sample in _samples(text):
        if sample.labels.keys() == {"query", "query_id"} and math.isfinite(sample.value):
            key = sample.labels["query_id"], sample.labels["query"]
            found.setdefault(key, {})[sample.name.removeprefix(PREFIX)] = sample.value
    return found


def _samples(text: str) -> Iterable[Sample]:
    for family in text_string_to_metric_families(text):
        if family.name.startswith(PREFIX):
            yield from family.samples
