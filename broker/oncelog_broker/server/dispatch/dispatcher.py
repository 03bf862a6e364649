"""Pass each request from its frame to its handler, and encode the handler's response.

Handlers see the same message classes for all versions. A handler returns its response, or a future of the response
(`runtime/answers.py`); None means no response (acks=0). `connection.py` lists the reasons that delay the next request
of a connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, Final

from oncelog.fail_points import point
from oncelog.fail_points.point import FailPoint, fail_point
from oncelog_broker.config.broker_keys import GROUP_METADATA_MAX_BYTES, TRANSACTION_TWO_PHASE_COMMIT_ENABLE
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.observability.request_times import RequestTimes
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.steps import Steps, run_steps
from oncelog_broker.security.quotas.observed import Observed
from oncelog_broker.server.cluster.api_versions import unsupported_version
from oncelog_broker.server.dispatch.metered import MeteredContext
from oncelog_broker.server.dispatch.routes import TIMED_MASK, NewRoute, Route
from oncelog_broker.server.dispatch.throttling import Throttling
from oncelog_broker.server.net.answer_queue import Slot, size_of
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.frame_reader import SIZE
from oncelog_broker.server.net.header_cache import PREFIX, CachedHeader
from oncelog_broker.server.net.limits import BYTES_BESIDE_METADATA, ELEMENTS_AT_ONCE, MAX_REQUEST_ELEMENTS
from oncelog_broker.server.request.context import AnyContext, CommonServices, RequestContext
from oncelog_broker.server.served import SERVED, highest_version
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import MalformedMessage, TooManyElements
from oncelog_protocol.wire_writers import Buffer

logger = logging.getLogger(__name__)

RESPONSE_PREFIX: Final = Struct(">ii")
"""The start of a response: the number of bytes that follow, and the correlation id."""
JOINED_BYTES: Final = 256 * 1024
"""A response of up to this many bytes is joined into one byte string. A larger response is encoded in slices, and the
bytes of each slice are written separately.
"""
HIGHEST_API_VERSIONS: Final = SERVED[ApiKey.API_VERSIONS].versions.high
WARNED_HOSTS: Final = 100
"""The broker logs a warning when a request exceeds a limit, because the client does not learn why its connection was
closed. The warning is logged once per host, and for at most this many hosts.
"""
LANES_PER_API: Final = 3
"""The maximum number of lanes of a connection for the versions of one API. A client uses one version of each API; this
limit bounds the memory of a connection that uses all versions.
"""
ANSWER_POINTS: Final[Mapping[int, FailPoint]] = {ApiKey.PRODUCE: "acknowledge", ApiKey.END_TXN: "reply-sent"}


class Dispatcher:
    """Serves the requests of all connections of one broker."""

    def __init__(self, services: CommonServices, times: RequestTimes | None = None) -> None:
        """`times`: records the durations of requests; None means that they are not measured."""
        self._services = services
        self.throttling: Throttling | None = None
        """Enforces the clients' quotas; None while no client has a quota."""
        self.observed: Observed | None = None
        """Records quota usage for the metrics; None if metrics are off."""
        self._times = times
        self._monotonic = services.clock.monotonic
        self._faults = None if point.ACTIVE_FAULTS is None else point.ACTIVE_FAULTS.controlled
        """The faults that a test sets for requests and responses; `faulty` applies them before and after a handler is
        called."""
        self._routes: dict[int, Route] = {}
        self._warned_hosts: set[str] = set()
        self._two_phase_commit = services.config[TRANSACTION_TWO_PHASE_COMMIT_ENABLE]
        self._max_copied = services.config[GROUP_METADATA_MAX_BYTES] + BYTES_BESIDE_METADATA

    def handle(self, connection: BrokerConnection, frame: memoryview) -> None:
        """Serve one request of a connection. Raises MalformedMessage for a frame that cannot get a response; the caller
        then closes the connection.
        """
        gate = connection.gate
        if gate is not None and not gate.lets_in(connection, frame):
            return
        api_key, version, correlation_id = PREFIX.unpack_from(frame)
        key = api_key << 16 | version
        lane, may_learn = connection.lanes.get(key), True
        if lane is not None:
            may_learn = self._faults is None or not self._faults.are_set  # `learn` uses what `serve` found out
            if may_learn and lane.serve(connection, frame, correlation_id):
                return
        route = self._routes.get(key)
        if route is None:
            if api_key == ApiKey.API_VERSIONS and not 0 <= version <= HIGHEST_API_VERSIONS:
                # The request has an ApiVersions version that this broker does not know (T2).
                self._refuse_api_versions(connection, correlation_id)
                return
            route = self._route(api_key, version)
        if len(frame) > self._max_copied and not route.reads_frame:
            reason = f"api key {api_key}: {len(frame)} bytes, and no records among them: at most {self._max_copied}"
            self._warn_of_limit(connection.client_host, reason)
            raise MalformedMessage(reason)
        known = connection.cached_header
        position, client_id = PREFIX.size + len(known.tail), known.client_id
        if known.route_header is not route.header or frame[PREFIX.size : position] != known.tail:
            connection.cached_header, position, client_id = CachedHeader.read(route.header, frame)
        services, throttling = self._services, self.throttling
        if throttling is None:
            context = RequestContext(services, connection, api_key, version, correlation_id, client_id)
        else:
            context = throttling.context(
                services, connection, api_key, version, correlation_id, client_id, len(frame) + SIZE.size
            )
        route.requests += 1
        request: Any = None
        started = 0.0
        if route.times is not None and route.requests & TIMED_MASK == 1:
            started = self._monotonic()
        try:
            request = route.decode(frame, position, max_elements=ELEMENTS_AT_ONCE)
        except NewRoute:
            answer = _serve_in_slices(_decode_first(route, frame, position), route, throttling, context)
        except TooManyElements:
            steps = route.decode_steps(frame, position, max_elements=MAX_REQUEST_ELEMENTS)
            answer = _serve_in_slices(steps, route, throttling, context)
        else:
            handler = route.handler
            answer = handler(request, context) if throttling is None else throttling.serve(handler, request, context)
        is_late = isinstance(answer, asyncio.Future)
        if is_late:
            self.wait(answer, route, context, started)
        elif answer is not None:
            self.respond(answer, route, context)
        if may_learn and route.make_lane is not None and request is not None and answer is not None:
            if lane is None:
                _forget_oldest_lane(connection, api_key)
                lane = connection.lanes[key] = route.make_lane(route, version, services, self, self._monotonic)
            lane.learn(frame, request, None if is_late else answer, context)
        if throttling is not None and isinstance(context, MeteredContext):
            context.handled()
        if started and route.times is not None and not is_late:
            route.times.total.append(self._monotonic() - started)

    def requests(self) -> Iterable[tuple[ApiKey, int, int]]:
        """Return the number of requests so far, by API and version."""
        for key, route in self._routes.items():
            yield ApiKey(key >> 16), key & 0xFFFF, route.requests

    def _route(self, api_key: int, version: int) -> Route:
        """Return the route of an API and version; the route is created on first use."""
        key = api_key << 16 | version
        route = self._routes.get(key)
        if route is None:
            served = SERVED.get(api_key)
            if served is not None and version > highest_version(served, two_phase_commit=self._two_phase_commit):
                raise MalformedMessage(f"api key {api_key} version {version} is not served")
            route = self._routes[key] = Route(api_key, version)
            route.times = None if self._times is None else self._times.of(api_key)
        return route

    def _warn_of_limit(self, host: str, reason: str) -> None:
        if host not in self._warned_hosts and len(self._warned_hosts) < WARNED_HOSTS:
            self._warned_hosts.add(host)
            logger.warning(
                "connection closed: a request has more elements than this broker accepts; split the request",
                extra={"client": host, "reason": reason, "elements_at_most": MAX_REQUEST_ELEMENTS},
            )

    def _refuse_api_versions(self, connection: BrokerConnection, correlation_id: int) -> None:
        route = self._route(ApiKey.API_VERSIONS, 0)
        context = RequestContext(self._services, connection, ApiKey.API_VERSIONS, 0, correlation_id, None)
        run_steps(route.make())  # this is fast, because the handler's module is already imported
        self.respond(unsupported_version(), route, context)

    def wait(
        self,
        answer: asyncio.Future[Any],
        route: Route,
        context: AnyContext,
        started: float,
        slot: Slot | None = None,
        waiting: float = 0.0,
    ) -> None:
        """Send the result of the future `answer` when it is done. `UsualWay.wait` (`net/lane.py`) describes the
        arguments."""
        connection, times, answered = context.connection, route.times, 0.0
        if slot is not None:
            slot.waits_for = answer
        else:
            if times is not None:
                times.waited += 1
                waiting = self._monotonic()
            slot = context.wait_for(answer, reads_frame=route.reads_frame)

        def came(done: asyncio.Future[Any]) -> None:
            nonlocal answered
            if done.cancelled() or done.exception() is not None:
                responded(done)
            elif slot.waits_for is not None:  # if the connection has ended, no response is sent
                if started:
                    answered = self._monotonic()
                try:
                    late = None if done.result() is None else self.respond(done.result(), route, context, slot)
                except Exception as error:
                    self.failed(error, context)
                    return
                if isinstance(late, asyncio.Future):
                    slot.waits_for = late  # a disconnect must cancel the encoding, too
                    late.add_done_callback(responded)
                else:
                    finish()

        def responded(done: asyncio.Future[Any]) -> None:
            if done.cancelled():
                connection.cancelled(slot)
            elif (error := done.exception()) is not None:
                self.failed(error, context)
            else:
                finish()

        def finish() -> None:
            connection.finish(slot)
            if times is not None and started:
                times.note_waited(started, waiting, answered, self._monotonic())

        answer.add_done_callback(came)

    def failed(self, error: BaseException, context: AnyContext) -> None:
        """Log an unexpected error of a handler, and close the connection of the request. A malformed request also
        closes the connection, but is not logged as an error of the broker.
        """
        connection, name = context.connection, ApiKey(context.api_key).name
        if isinstance(error, MalformedMessage):
            if isinstance(error, TooManyElements):
                self._warn_of_limit(connection.client_host, f"{name}: {error}")
            connection.close(f"malformed request: {error}")
        else:
            # Close the connection also if the response cannot be encoded, because otherwise the client would wait
            # forever.
            logger.error("request failed", exc_info=error, extra={"api": name})
            connection.close("internal error")

    @fail_point(
        *ANSWER_POINTS.values(),
        which=lambda _self, _response, _route, context, *_: ANSWER_POINTS.get(context.api_key),
        dropped=lambda: None,
    )
    def respond(self, response: Any, route: Route, context: AnyContext, slot: Slot | None = None) -> Answer[None]:
        """Encode and send the response to a request. Without a `slot`, the handler has just returned the response, so
        the response was built within one slice of work, and its encoding is shorter than one slice. A response in a
        `slot` came later, and may have any number of elements, so it is encoded in slices.
        """
        body: list[Buffer] = [b"", b"\0"] if route.flexible_response else [b""]
        if slot is None:
            route.encode(response, body)
            _send(body, route, context, None)
            return None
        return then(
            context.in_slices(route.encode_steps(response, body)),
            lambda _: _send(body, route, context, slot),
        )


def _forget_oldest_lane(connection: BrokerConnection, api_key: int) -> None:
    """Make room for a new lane of this API on the connection."""
    keys = [key for key in connection.lanes if key >> 16 == api_key]
    if len(keys) == LANES_PER_API:
        del connection.lanes[keys[0]]


def _serve_in_slices(
    decoding: Steps[Any], route: Route, throttling: Throttling | None, context: AnyContext
) -> Answer[Any]:
    """Serve a request whose decoding takes several slices: a request of very many elements, or the first request of its
    API and version.
    """
    request = context.in_slices(decoding)
    context.is_unread = isinstance(request, asyncio.Future)

    def serve(request: Any) -> Answer[Any]:
        context.begins()
        answer: Answer[Any] = (
            route.handler(request, context) if throttling is None else throttling.serve(route.handler, request, context)
        )
        return answer

    return then(request, serve)


def _decode_first(route: Route, frame: memoryview, position: int) -> Steps[Any]:
    yield from route.make()
    try:
        return route.decode(frame, position, max_elements=ELEMENTS_AT_ONCE)
    except TooManyElements:
        pass
    return (yield from route.decode_steps(frame, position, max_elements=MAX_REQUEST_ELEMENTS))


def _send(body: list[Buffer], route: Route, context: AnyContext, slot: Slot | None) -> None:
    size = size_of(body)
    body[0] = RESPONSE_PREFIX.pack(4 + size, context.correlation_id)
    context.connection.respond([b"".join(body)] if size <= JOINED_BYTES and not route.has_records else body, slot)


def follow_quotas(
    metadata: MetadataCache, throttling: Throttling, dispatcher: Dispatcher, connections: Connections
) -> None:
    """Enforce the quotas of the current cluster image, and of each later cluster image, on requests and connections."""

    def on_image(_: ClusterImage, image: ClusterImage) -> None:
        dispatcher.throttling = throttling.on_image(image)
        if connections.rates is not None:
            connections.rates.on_image(image)

    dispatcher.observed = throttling.observed
    metadata.subscribe(on_image)
    on_image(metadata.image, metadata.image)
