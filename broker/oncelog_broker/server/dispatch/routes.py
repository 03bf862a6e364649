"""A route has the decoder, the handler and the encoder for the requests of one API in one version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from oncelog.fail_points import point
from oncelog_broker.coordinator.later_imports import import_steps
from oncelog_broker.observability.request_times import ApiTimes
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.net.answer_queue import SCATTER_BYTES, coalesce
from oncelog_broker.server.net.lane import MakeLane, are_open
from oncelog_broker.server.served import SERVED, Served
from oncelog_protocol.api import ApiKey, request_header_version, request_type, response_header_version, response_type
from oncelog_protocol.codec import MessageCodec, codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.headers import RequestHeader
from oncelog_protocol.wire_writers import Buffer

TIMED_MASK: Final = 7
"""Every eighth request of an API is timed, starting with the first. Timing every request would slow the broker down."""
PARTS_PER_JOIN: Final = 1000
"""The number of small parts of a large response that are joined in one step, before other work may run."""


def handler_of(served: Served) -> Callable[..., Any]:
    """Import the handler of an API. In a process with `oncelog serve --fail-control`, the handler is wrapped so that a
    test can set faults for the API's requests and responses.
    """
    handler = served.load()
    if (faults := point.ACTIVE_FAULTS) is None:
        return handler
    # Imported here, because few processes run with --fail-control.
    from oncelog_broker.server.dispatch.faulty import FaultyHandler

    return FaultyHandler(served.key, handler, faults)


class NewRoute(Exception):
    """Raised for the first request of an API and version; the caller must call `Route.make` before it decodes the
    request.
    """


class Route:
    """Decoder, handler and encoder of one API at one version. The route is completed when the first request arrives:
    its handler is imported and both codecs are compiled, which takes milliseconds to tens of milliseconds. Until the
    route is complete, `decode` raises NewRoute.
    """

    __slots__ = (
        "_encode_steps",
        "_served",
        "_version",
        "decode",
        "decode_steps",
        "encode",
        "flexible_response",
        "handler",
        "has_records",
        "header",
        "make_lane",
        "reads_frame",
        "requests",
        "times",
    )  # fmt: skip

    def __init__(self, api_key: int, version: int) -> None:
        """Create the route without handler and codecs. Raises MalformedMessage if this broker does not serve the API at
        this version.
        """
        served = SERVED.get(api_key)
        if served is None or version not in served.versions:
            raise MalformedMessage(f"api key {api_key} version {version} is not served")
        self._served, self._version = served, version
        self.header: MessageCodec[RequestHeader] = codec(RequestHeader, request_header_version(served.key, version))
        self.handler: Callable[..., Any] = _first
        self.decode: Callable[..., Any] = _first
        self.decode_steps: Callable[..., Steps[Any]] = _first
        self.encode: Callable[[Any, list[Buffer]], list[Buffer]] = _first
        self._encode_steps: Callable[[Any, list[Buffer]], Iterator[None]] = _first
        self.has_records = api_key in (ApiKey.FETCH, ApiKey.SHARE_FETCH)
        self.reads_frame = api_key == ApiKey.PRODUCE
        """Whether the decoded request refers to slices of its frame, so that the frame must not be reused while the
        request is handled."""
        self.flexible_response = response_header_version(served.key, version) == 1
        self.make_lane: MakeLane | None = None
        """The factory of this API's fast lane; None if the API has no lane or lanes are off."""
        self.requests = 0
        """The number of requests on this route since the broker started."""
        self.times: ApiTimes | None = None
        """Durations of this API's requests in all versions; None if they are not measured."""

    def make(self) -> Steps[None]:
        """Prepare this route for serving. Several requests may call this method concurrently."""
        if self._served.needs_coordinators:
            yield from import_steps()
        request = request_type(self._served.key)
        yield None
        handler = handler_of(self._served)
        yield None
        make_lane = self._served.load_lane() if are_open() else None
        yield None
        request_codec: MessageCodec[Any] = codec(request, self._version)
        yield None
        response_codec: MessageCodec[Any] = codec(response_type(self._served.key), self._version)
        self.handler, self.make_lane = handler, make_lane
        self.decode = request_codec.decode
        self.decode_steps = request_codec.decode_steps
        self.encode = response_codec.encode_parts
        self._encode_steps = response_codec.encode_steps

    def encode_steps(self, response: Any, parts: list[Buffer]) -> Steps[None]:
        """Encode a response of many elements in slices of work, and join its small parts in the same slices."""
        joined = len(parts)
        for _ in self._encode_steps(response, parts):
            if len(parts) - joined >= PARTS_PER_JOIN:
                parts[joined:] = coalesce(parts[joined:])
                joined = len(parts) if len(parts[-1]) >= SCATTER_BYTES else len(parts) - 1
            yield None


def _first(*_: Any, **__: Any) -> Any:
    raise NewRoute
