"""The way of requests of one API at one version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncelog_broker.observability.request_times import ApiTimes
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.answer_queue import SCATTER_BYTES, coalesce
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey, request_header_version, request_type, response_header_version, response_type
from oncelog_protocol.codec import MessageCodec, codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.headers import RequestHeader
from oncelog_protocol.wire_writers import Buffer

PARTS_PER_JOIN: Final = 1000
"""Parts of a large answer that are joined at a time."""


class Route:
    """One API at one version, ready to serve. To make one takes some milliseconds, at worst some tens: the handler is
    imported and both codecs are compiled."""

    __slots__ = (
        "_encode_steps",
        "decode",
        "decode_steps",
        "encode",
        "flexible_response",
        "handler",
        "has_records",
        "header",
        "reads_frame",
        "requests",
        "times",
    )  # fmt: skip

    def __init__(self, api_key: int, version: int) -> None:
        """Raises MalformedMessage where it is not served."""
        served = SERVED.get(api_key)
        if served is None or version not in served.versions:
            raise MalformedMessage(f"api key {api_key} version {version} is not served")
        self.handler: Callable[..., Any] = served.load()
        self.header: MessageCodec[RequestHeader] = codec(RequestHeader, request_header_version(served.key, version))
        request_codec: MessageCodec[Any] = codec(request_type(served.key), version)
        response_codec: MessageCodec[Any] = codec(response_type(served.key), version)
        self.decode = request_codec.decode
        self.decode_steps = request_codec.decode_steps
        self.encode = response_codec.encode_parts
        self._encode_steps = response_codec.encode_steps
        self.has_records = api_key == ApiKey.FETCH
        self.reads_frame = api_key == ApiKey.PRODUCE
        """Whether the decoded request holds slices of its frame, so that the frame must stay while it is worked on."""
        self.flexible_response = response_header_version(served.key, version) == 1
        self.requests = 0
        """How many have come, since the start."""
        self.times: ApiTimes | None = None
        """Of this API in all versions; None where nobody wants to know."""

    def encode_steps(self, response: Any, parts: list[Buffer]) -> Steps[None]:
        """As `encode`, for an answer of many elements, whose small parts are joined on the way."""
        joined = len(parts)
        for _ in self._encode_steps(response, parts):
            if len(parts) - joined >= PARTS_PER_JOIN:
                parts[joined:] = coalesce(parts[joined:])
                joined = len(parts) if len(parts[-1]) >= SCATTER_BYTES else len(parts) - 1
            yield None
