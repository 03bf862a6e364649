"""The HTTP service of a broker, from the broker's start to its stop. The modules of the service are imported only if a
listener is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog_broker.runtime.host import Host
from oncelog_broker.web.health import Readiness

if TYPE_CHECKING:
    from oncelog_broker.metrics.source import Observed, Parts
    from oncelog_broker.observability.request_times import RequestTimes
    from oncelog_broker.server.dispatch.dispatcher import Dispatcher
    from oncelog_broker.server.net.connections import Connections
    from oncelog_broker.web.http_listener import HttpListener


class HttpService:
    """The HTTP service of one broker."""

    def __init__(self) -> None:
        self.listener: HttpListener | None = None
        """The HTTP listener; None if no listener is configured."""
        self.times: RequestTimes | None = None
        """The durations of the broker's requests; None if no HTTP listener is configured."""
        self._readiness = Readiness()
        self._parts: Parts | None = None
        """The source of the metrics, while the broker serves."""

    async def listen(self, address: str, node_id: int, host: Host) -> None:
        """Start listening. Raises InvalidConfig, OSError."""
        from oncelog_broker.observability.request_times import RequestTimes
        from oncelog_broker.web.serving import serve_http

        self.times = RequestTimes()
        self.listener = await serve_http(address, node_id, self._readiness, lambda: self._parts, host)

    def report_doing(self, what: str) -> None:
        """Set the present start-up or shutdown step, for readiness checks."""
        self._readiness.doing = what

    def begin(self, services: Observed, connections: Connections, dispatcher: Dispatcher) -> None:
        """Serve metrics, and from now on report the broker as ready unless a readiness condition fails."""
        if self.times is not None:
            from oncelog_broker.web.serving import start_metrics

            self._parts = start_metrics(self._readiness, services, connections, dispatcher, self.times)
        self._readiness.doing = None

    def stop(self) -> None:
        """Stop serving metrics; health checks are still served."""
        self.report_doing("the broker stops")
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.loop.stop()

    async def close(self) -> None:
        if self.listener is not None:
            await self.listener.close()
