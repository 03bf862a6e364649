"""Reads the HTTP listener of a broker (its release, wall clock and metrics) for `doctor` and `support bundle`.

The address follows from the broker's setting `http.listener`. Each response names the broker that sent it, because a
published port may lead to a different broker.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.clock import now_ms

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.cluster import Broker

TIMEOUT_SECONDS: Final = 5.0
"""Timeout in seconds of reading one page."""
MAX_METRICS_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of metrics that are read; the metrics of a broker with a hundred thousand used partitions have about
this size.
"""
HTTP_LISTENER: Final = "http.listener"
EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

_ADDRESS: Final = re.compile(r"(?:(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^\[\]:]*)):)?(?P<port>\d+)")
_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Unread(Exception):
    """Raised if the HTTP listener could not be read; the message says why, and what to do."""


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class BrokerPages:
    """The content of the HTTP pages of one broker."""

    release: str | None
    """The release of the broker; None if the broker has no page that reports it."""
    clock_offset_ms: float | None
    """The broker's wall clock minus the local clock in milliseconds, accurate to `round_trip_ms / 2`; None if the
    broker does not report its time.
    """
    round_trip_ms: float
    metrics: str
    """The text of the page /metrics; empty if the broker is starting or stopping."""

    def values(self, name: str) -> list[Sample]:
        """Return the samples of one metric."""
        return [sample for sample in samples(self.metrics) if sample.name == name]

    def value(self, name: str) -> float | None:
        """Return the sample of a metric without labels; None if it is missing."""
        return next((sample.value for sample in self.values(name)), None)


def samples(text: str) -> Iterator[Sample]:
    """Yield the samples in Prometheus' text format; other lines are skipped."""
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is None or line.startswith("#"):
            continue
        try:
            yield Sample(match["name"], dict(_LABEL.findall(match["labels"] or "")), float(match["value"]))
        except ValueError:
            continue


def place_of(listener: str | None, host: str) -> tuple[str, int]:
    """Return host and port of the pages of a broker with this `http.listener`; clients reach the broker at `host`.
    Raises Unread."""
    if not listener:
        raise Unread(f"{HTTP_LISTENER} is not set: start brokers with {HTTP_LISTENER}=0.0.0.0:9404 or --http")
    match = _ADDRESS.fullmatch(listener.strip())
    if match is None or match["port"] == "0":
        raise Unread(f"{HTTP_LISTENER}={listener} does not say where it is: set a port")
    own = match["ipv6"] or match["host"] or ("127.0.0.1" if ":" not in listener else "")
    if own in EVERYWHERE:
        return host, int(match["port"])
    if own in LOOPBACK and host not in LOOPBACK:
        raise Unread(f"{HTTP_LISTENER}={listener} serves only its own machine: run the command there")
    return own, int(match["port"])


async def read_pages(admin: Admin, broker: Broker) -> BrokerPages:
    """Read the pages of a broker. Raises Unread."""
    from oncelog.admin import ConfigResource
    from oncelog.errors import KafkaError

    resource = ConfigResource.broker(broker.node_id)
    try:
        configs = await asyncio.wait_for(admin.describe_configs([resource], keys=[HTTP_LISTENER]), TIMEOUT_SECONDS)
    except TimeoutError:
        raise Unread("the broker does not answer") from None
    except KafkaError as error:
        raise Unread(f"its settings cannot be read: {error.message}") from None
    entry = configs[resource].get(HTTP_LISTENER)
    host, port = place_of(None if entry is None else entry.value, broker.host)
    return await asyncio.to_thread(_read, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", broker)


def _read(base: str, broker: Broker) -> BrokerPages:
    """Read the pages at `base`. Raises Unread."""
    try:
        began, asked_ms = time.monotonic(), now_ms()
        said = json.loads(_get(f"{base}/health/live"))
        round_trip_ms = (time.monotonic() - began) * 1000
        if said.get("broker") != broker.node_id:
            raise Unread(
                f"{base} is broker {said.get('broker')}, not {broker.node_id}: run the command where it is reached"
            )
        metrics = _get(f"{base}/metrics").decode(errors="replace")
    except (OSError, ValueError, AttributeError) as error:
        reason = getattr(error, "reason", None) or error
        raise Unread(f"{base} cannot be read from here: {reason}") from None
    time_ms = said.get("time_ms")
    offset = time_ms - (asked_ms + round_trip_ms / 2) if isinstance(time_ms, int) else None
    return BrokerPages(said.get("release"), offset, round_trip_ms, metrics)


def _get(url: str) -> bytes:
    """Return the body of the page; empty if the broker does not serve the page yet. Raises OSError."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(MAX_METRICS_BYTES)
            return body
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 503:  # the broker is starting or stopping
                return b""
            raise
