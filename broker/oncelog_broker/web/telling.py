"""What a broker tells over HTTP from its start to its stop; nothing of it is loaded where nobody has asked for it."""

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


class Telling:
    """Of one broker."""

    def __init__(self) -> None:
        self.listener: HttpListener | None = None
        """None: nobody listens."""
        self.times: RequestTimes | None = None
        """Where it is noted how long requests take."""
        self._readiness = Readiness()
        self._parts: Parts | None = None
        """What metrics are read from, while the broker serves."""

    async def listen(self, address: str, node_id: int, host: Host) -> None:
        """Answer from now on. Raises InvalidConfig, OSError."""
        from oncelog_broker.observability.request_times import RequestTimes
        from oncelog_broker.web.serving import serve_http

        self.times = RequestTimes()
        self.listener = await serve_http(address, node_id, self._readiness, lambda: self._parts, host)

    def does(self, what: str) -> None:
        """What the broker does instead of serving."""
        self._readiness.doing = what

    def begin(self, services: Observed, connections: Connections, dispatcher: Dispatcher) -> None:
        """The broker serves: it is ready, unless something of what it has is not."""
        if self.times is not None:
            from oncelog_broker.web.serving import begin_to_tell

            self._parts = begin_to_tell(self._readiness, services, connections, dispatcher, self.times)
        self._readiness.doing = None

    def stop(self) -> None:
        """Stop serving metrics, as the broker stops; health is still served."""
        self.does("the broker stops")
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.loop.stop()

    async def close(self) -> None:
        if self.listener is not None:
            await self.listener.close()
