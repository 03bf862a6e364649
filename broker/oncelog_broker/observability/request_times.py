"""Keeps the durations of the latest requests of each API, separately for each stage, so that quantiles can be computed
as in Kafka.

Adding a sample is a single append to a ring buffer; samples are sorted only when they are scraped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

SAMPLES: Final = 1024
"""The number of requests whose durations are kept for each API; about the size of the reservoirs of Kafka's histograms.
"""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

LOCAL, REMOTE, SEND, TOTAL = "local", "remote", "send", "total"
STAGES: Final = (LOCAL, REMOTE, SEND, TOTAL)


class ApiTimes:
    """The durations of the requests of one API, in seconds.

    `total` is the time from the arrival of the complete request to the moment at which the response is passed to the
    transport. For a request that does not wait, only `total` is recorded. A request that waits has three stages:
    `local` until it waits; `remote` while it waits for replicas, records or long work; `send` from the end of the wait
    until the response is encoded and passed to the transport.
    """

    __slots__ = ("local", "remote", "send", "total", "waited")

    def __init__(self) -> None:
        self.total: deque[float] = deque(maxlen=SAMPLES)
        self.local: deque[float] = deque(maxlen=SAMPLES)
        self.remote: deque[float] = deque(maxlen=SAMPLES)
        self.send: deque[float] = deque(maxlen=SAMPLES)
        self.waited = 0
        """The number of requests that had to wait, since startup."""

    def note_waited(self, started: float, waiting: float, answered: float, sent: float) -> None:
        """Record a request that waited; the arguments are monotonic times: the start of each of the three stages, and
        the end of the last stage.
        """
        self.local.append(waiting - started)
        self.remote.append(answered - waiting)
        self.send.append(sent - answered)
        self.total.append(sent - started)

    def samples(self, stage: str) -> Sequence[float]:
        """Return a copy of the samples of one of STAGES."""
        found: deque[float] = getattr(self, stage)
        return list(found)


class RequestTimes:
    """Durations by API key, and request counts by API key and version."""

    def __init__(self) -> None:
        self._apis: dict[int, ApiTimes] = {}

    def of(self, api_key: int) -> ApiTimes:
        return self._apis.setdefault(api_key, ApiTimes())

    @property
    def apis(self) -> Mapping[int, ApiTimes]:
        """The durations by API key, for the APIs that were requested."""
        return self._apis


def quantiles(samples: Sequence[float]) -> list[float]:
    """Return the values at QUANTILES, by nearest rank; the list is empty if there are no samples."""
    if not samples:
        return []
    ordered = sorted(samples)
    return [ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] for quantile in QUANTILES]
