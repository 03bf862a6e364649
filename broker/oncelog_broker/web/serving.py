"""Assembles the pages for metrics and health of one broker."""

from __future__ import annotations

from collections.abc import Callable

from oncelog_broker.config.http_keys import http_address
from oncelog_broker.metrics.scraping import Scraper
from oncelog_broker.metrics.source import Observed, Parts
from oncelog_broker.observability.loop_watch import LoopWatch
from oncelog_broker.observability.request_times import RequestTimes
from oncelog_broker.runtime.addresses import is_loopback
from oncelog_broker.runtime.host import Host
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.web.health import Condition, Readiness
from oncelog_broker.web.http_listener import HttpListener
from oncelog_broker.web.pages import Pages


async def serve_http(
    address: str,
    node_id: int,
    readiness: Readiness,
    parts: Callable[[], Parts | None],
    host: Host,
) -> HttpListener:
    """Start to listen for HTTP at `address`. Raises InvalidConfig, OSError."""
    where = http_address(address)
    scraper = Scraper(parts, host.slices, host.clock)
    pages = Pages(node_id, readiness, scraper, host.clock.now_ms, is_on_loopback=is_loopback(where.host))
    return await HttpListener.open(where, pages, host.network)


def start_metrics(
    readiness: Readiness, services: Observed, connections: Connections, dispatcher: Dispatcher, times: RequestTimes
) -> Parts:
    """Add the readiness conditions, start watching the event loop, and return the source of the metrics."""
    readiness.conditions += conditions(services)
    watch = LoopWatch()
    watch.start()
    return Parts(services, connections, dispatcher, times, watch)


def conditions(services: Observed) -> list[Condition]:
    """Return the conditions under which a serving broker is ready."""
    replicas = services.replicas

    def session() -> str | None:
        if replicas.may_lead is None or replicas.may_lead():
            return None
        return "the ZooKeeper session may have expired: this broker leads no partition until it is renewed"

    def logs() -> str | None:
        return "logs are loaded" if replicas.is_opening else None

    def coordinators() -> str | None:
        return None if services.loading is None else f"partitions of {services.loading} are loaded"

    return [session, logs, coordinators]
