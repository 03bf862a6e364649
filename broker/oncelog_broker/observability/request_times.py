"""How long the requests of each API took, stage by stage: of the latest of them, as Kafka's own quantiles are.

Adding a sample is one append to a ring; sorting is for whoever asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

SAMPLES: Final = 1024
"""Requests of one API whose times are kept: about what Kafka's reservoirs hold."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

LOCAL, REMOTE, SEND, TOTAL = "local", "remote", "send", "total"
STAGES: Final = (LOCAL, REMOTE, SEND, TOTAL)


class ApiTimes:
    """Of one API. Seconds.

    `total` is from the frame to the answer with the transport. Of a request that is answered at once that is all there
    is; one that waits has three stages: `local` until it waits, `remote` while it waits for replicas, for records or
    for long work, `send` to encode the answer and hand it over.
    """

    __slots__ = ("local", "remote", "send", "total", "waited")

    def __init__(self) -> None:
        self.total: deque[float] = deque(maxlen=SAMPLES)
        self.local: deque[float] = deque(maxlen=SAMPLES)
        self.remote: deque[float] = deque(maxlen=SAMPLES)
        self.send: deque[float] = deque(maxlen=SAMPLES)
        self.waited = 0
        """Requests that had to wait, since the start."""

    def note_waited(self, started: float, waiting: float, answered: float, sent: float) -> None:
        """A request that waited is answered: monotonic times of its four moments."""
        self.local.append(waiting - started)
        self.remote.append(answered - waiting)
        self.send.append(sent - answered)
        self.total.append(sent - started)

    def samples(self, stage: str) -> Sequence[float]:
        """A snapshot; one of STAGES."""
        found: deque[float] = getattr(self, stage)
        return list(found)


class RequestTimes:
    """Of all APIs, by API key, and how many requests there were by key and version."""

    def __init__(self) -> None:
        self._apis: dict[int, ApiTimes] = {}

    def of(self, api_key: int) -> ApiTimes:
        return self._apis.setdefault(api_key, ApiTimes())

    @property
    def apis(self) -> Mapping[int, ApiTimes]:
        """Those that have been asked for."""
        return self._apis


def quantiles(samples: Sequence[float]) -> list[float]:
    """The values at QUANTILES, nearest rank; empty without samples."""
    if not samples:
        return []
    ordered = sorted(samples)
    return [ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] for quantile in QUANTILES]
