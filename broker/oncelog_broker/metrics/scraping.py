"""Formats the metrics for Prometheus in slices, so that a scrape of very many partitions delays no request.

prometheus_client writes the format one metric family at a time; a family of ten thousand samples would take a tenth of
a second. Each family is therefore passed in pieces, and the header is removed from all pieces except the first.

An HTTP request that arrives during a scrape, or soon after a scrape, gets the text of that scrape. So the broker spends
at most a fixed share of its time on scrapes, however often they are requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from oncelog.cancelling import is_being_cancelled
from oncelog_broker.metrics.families import FAMILIES
from oncelog_broker.metrics.family import Family, Samples
from oncelog_broker.metrics.source import Parts, Source
from oncelog_broker.runtime.answers import then
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.steps import Steps

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
SAMPLES_PER_STEP: Final = 50
"""The number of metric samples that are formatted in one slice; formatting this many takes half a millisecond."""
LARGEST_SHARE: Final = 0.1
"""The maximum share of time that scrapes may take; a text older than OLDEST_SECONDS is replaced even if scrapes exceed
this share.
"""
OLDEST_SECONDS: Final = 5.0
"""The maximum age of a reused text in seconds: Prometheus scrapes about every 15 seconds, and needs a new text each
time to compute rates.
"""
PIECE_BYTES: Final = 64 * 1024
"""The approximate size in bytes of the pieces of the text."""


class _Piece(Collector):
    """A metric registry (of prometheus_client) that contains a single metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def text_of(family: Family, samples: Samples) -> Steps[list[bytes]]:
    """Return the lines of one family with these `samples`, in pieces; the first piece has the header."""
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    pieces: list[bytes] = []
    is_complete = False
    while not is_complete:
        metric = Metric(name, family.help, family.kind)
        is_complete = True
        for sample in samples:
            if sample is not None:
                metric.add_sample(family.name + sample.suffix, dict(sample.labels), float(sample.value))
            if sample is None or len(metric.samples) == SAMPLES_PER_STEP:
                is_complete = False
                break
        if metric.samples or not pieces:
            piece = generate_latest(_Piece(metric))
            pieces.append(piece.split(b"\n", 2)[2] if pieces else piece)
        yield None
    return pieces


def scrape(parts: Parts, families: Iterable[Family] = FAMILIES) -> Steps[list[bytes]]:
    """Return the text of all metrics, in pieces of about PIECE_BYTES."""
    source = Source(parts)
    yield from source.look()
    pieces: list[bytes] = []
    open_pieces: list[bytes] = []
    size = 0
    for family in families:
        for piece in (yield from text_of(family, family.read(source))):
            open_pieces.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                pieces.append(b"".join(open_pieces))
                open_pieces, size = [], 0
        yield None
    pieces.append(b"".join(open_pieces))
    return pieces


class Scraper:
    """Serves the scrapes of one broker."""

    def __init__(self, parts: Callable[[], Parts | None], slices: Slices, clock: Clock) -> None:
        """`parts` is a function that returns the parts of the broker; it returns None while the broker starts."""
        self._parts = parts
        self._slices = slices
        self._clock = clock
        self._under_way: asyncio.Future[list[bytes]] | None = None
        self._latest: list[bytes] = []
        self._good_until = float("-inf")

    async def text(self) -> list[bytes] | None:
        """Return the text of all metrics in pieces; None while the broker starts or stops."""
        parts = self._parts()
        if parts is None:
            return None
        if self._under_way is None:
            if self._clock.monotonic() < self._good_until:
                return self._latest
            began = self._clock.monotonic()
            made = then(self._slices.run(scrape(parts)), partial(self._keep, began))
            if not isinstance(made, asyncio.Future):
                return made
            self._under_way = made
            made.add_done_callback(self._done)
        under_way = self._under_way
        try:
            return await asyncio.shield(under_way)  # a cancelled caller must not cancel the scrape
        except asyncio.CancelledError:
            if under_way.cancelled() and not is_being_cancelled():
                return None
            raise

    def _keep(self, began: float, text: list[bytes]) -> list[bytes]:
        ended = self._clock.monotonic()
        self._latest = text
        self._good_until = ended + min(OLDEST_SECONDS, (ended - began) * (1 / LARGEST_SHARE - 1))
        return text

    def _done(self, _: asyncio.Future[list[bytes]]) -> None:
        self._under_way = None
