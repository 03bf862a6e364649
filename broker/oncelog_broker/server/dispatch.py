"""From a frame to its handler, from the handler's answer to the bytes of the response.

Handlers see one message shape whatever the version (architecture, law 6). A handler returns its response, or None where
there is none (acks=0), or something to await: a coroutine, which becomes a task, or a future. Then the connection is
muted until the answer is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from struct import Struct
from typing import Any, Final

from oncelog.fail_points.point import FailPoint, fail_point
from oncelog_broker.config.broker_keys import QUEUED_MAX_REQUESTS
from oncelog_broker.server.connection import BrokerConnection
from oncelog_broker.server.context import RequestContext, Services
from oncelog_broker.server.handlers.api_versions import unsupported_version
from oncelog_broker.server.known_header import PREFIX, KnownHeader
from oncelog_broker.server.limits import MAX_REQUEST_ELEMENTS
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey, request_header_version, request_type, response_header_version, response_type
from oncelog_protocol.codec import MessageCodec, codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.headers import RequestHeader
from oncelog_protocol.wire_writers import Buffer

logger = logging.getLogger(__name__)

RESPONSE_PREFIX: Final = Struct(">ii")
"""Size of what follows, correlation id."""
HIGHEST_API_VERSIONS: Final = SERVED[ApiKey.API_VERSIONS].versions.high
ANSWER_POINTS: Final[Mapping[int, FailPoint]] = {ApiKey.PRODUCE: "acknowledge", ApiKey.END_TXN: "reply-sent"}


class Route:
    """One API at one version, ready to serve."""

    __slots__ = ("decode", "encode", "flexible_response", "handler", "has_records", "header")

    def __init__(self, api_key: int, version: int) -> None:
        served = SERVED.get(api_key)
        if served is None or version not in served.versions:
            raise MalformedMessage(f"api key {api_key} version {version} is not served")
        self.handler: Callable[..., Any] = served.load()
        self.header: MessageCodec[RequestHeader] = codec(RequestHeader, request_header_version(served.key, version))
        request_codec: MessageCodec[Any] = codec(request_type(served.key), version)
        response_codec: MessageCodec[Any] = codec(response_type(served.key), version)
        self.decode = request_codec.decode
        self.encode = response_codec.encode_parts
        self.has_records = api_key == ApiKey.FETCH
        self.flexible_response = response_header_version(served.key, version) == 1


class Dispatcher:
    """Serves the requests of all connections of one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._routes: dict[int, Route] = {}
        self._at_work = asyncio.Semaphore(services.config[QUEUED_MAX_REQUESTS])

    def handle(self, connection: BrokerConnection, frame: memoryview) -> None:
        """Serve one request. Raises MalformedMessage for a frame that cannot be answered: the connection is closed."""
        api_key, version, correlation_id = PREFIX.unpack_from(frame)
        route = self._routes.get(api_key << 16 | version) or self._route(api_key, version)
        if route is None:
            self._refuse_api_versions(connection, correlation_id)
            return
        known = connection.known_header
        position = PREFIX.size + len(known.tail)
        if known.route_header is not route.header or frame[PREFIX.size : position] != known.tail:
            known = connection.known_header = KnownHeader.read(route.header, frame)
            position = PREFIX.size + len(known.tail)
        request = route.decode(frame, position, max_elements=MAX_REQUEST_ELEMENTS)
        context = RequestContext(self._services, connection, api_key, version, correlation_id, known.client_id)
        answer = route.handler(request, context)
        if answer is None:
            return
        if asyncio.isfuture(answer):
            connection.mute(answer)
            self._wait(answer, route, context)
        elif asyncio.iscoroutine(answer):
            name = f"{ApiKey(api_key).name} of {known.client_id}"
            connection.mute()  # a change that has begun is finished, whether the client stays or goes
            self._wait(self._services.tasks.spawn(name, self._in_turn(answer)), route, context)
        else:
            self._respond(answer, route, context)

    async def _in_turn(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """Run a handler that takes several steps when fewer than queued.max.requests of them are at work."""
        async with self._at_work:
            return await answer

    def _route(self, api_key: int, version: int) -> Route | None:
        """The route of a key and version met for the first time; None for an ApiVersions from the future (T2)."""
        if api_key == ApiKey.API_VERSIONS and not 0 <= version <= HIGHEST_API_VERSIONS:
            return None
        route = Route(api_key, version)
        self._routes[api_key << 16 | version] = route
        return route

    def _refuse_api_versions(self, connection: BrokerConnection, correlation_id: int) -> None:
        route = self._routes.get(ApiKey.API_VERSIONS << 16) or self._route(ApiKey.API_VERSIONS, 0)
        assert route is not None
        context = RequestContext(self._services, connection, ApiKey.API_VERSIONS, 0, correlation_id, None)
        self._respond(unsupported_version(), route, context)

    def _wait(self, future: asyncio.Future[Any], route: Route, context: RequestContext) -> None:
        connection = context.connection

        def answered(done: asyncio.Future[Any]) -> None:
            if done.cancelled():
                connection.close("the broker stops")
                return
            try:
                response = done.result()
                if response is not None:
                    self._respond(response, route, context)
            except Exception:
                # Also a response that cannot be encoded: nobody else would ever let the connection go on.
                logger.exception("request failed", extra={"api": ApiKey(context.api_key).name})
                connection.close("internal error")
                return
            connection.unmute()

        future.add_done_callback(answered)

    @fail_point(
        *ANSWER_POINTS.values(),
        which=lambda _self, _response, _route, context: ANSWER_POINTS.get(context.api_key),
        dropped=lambda: None,
    )
    def _respond(self, response: Any, route: Route, context: RequestContext) -> None:
        body: list[Buffer] = [b"", b"\0"] if route.flexible_response else [b""]
        route.encode(response, body)
        if not route.has_records:
            joined = b"".join(body)
            context.connection.respond([RESPONSE_PREFIX.pack(4 + len(joined), context.correlation_id), joined])
            return
        body[0] = RESPONSE_PREFIX.pack(4 + sum(map(len, body)), context.correlation_id)
        context.connection.respond(body)
