"""Envelope (58), v0: a client's request that another broker forwards to this broker, the controller (KIP-590).

Only brokers may send an Envelope. The inner request is handled as if the client had sent it to this broker, without
checks of ACLs and quotas: the forwarding broker has made these checks (`server/request/forwarding.py`). The inner
request is never forwarded again. Later requests of the same connection do not wait for the inner request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.dispatch.routes import handler_of
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.net.limits import MAX_REQUEST_ELEMENTS
from oncelog_broker.server.request.context import UNCOUNTED, AnyContext
from oncelog_broker.server.request.forwarding import FORWARDED
from oncelog_broker.server.served import SERVED
from oncelog_protocol.acls import CLUSTER_NAME
from oncelog_protocol.api import ApiKey, request_header_version, request_type, response_header_version, response_type
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode, MalformedMessage
from oncelog_protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.wire_writers import Buffer

logger = logging.getLogger(__name__)


class PassedOnContext(AnyContext):
    """The context of a request inside an Envelope: the broker that forwarded the request has already checked ACLs and
    quotas.
    """

    __slots__ = ()

    is_passed_on = True

    def may(self, rule: Rule, name: str | None = CLUSTER_NAME) -> bool:
        return True

    def mutations(self, partitions: int) -> AbstractContextManager[None]:
        return UNCOUNTED


def handle(request: EnvelopeRequest, context: AnyContext) -> Answer[EnvelopeResponse]:
    if not context.may_as_broker(rules.ENVELOPE):
        return EnvelopeResponse(error_code=rules.ENVELOPE.refused)
    if len(request.request_data) < PREFIX.size:
        raise MalformedMessage("an Envelope without a request")
    key, version, correlation_id = PREFIX.unpack_from(request.request_data)
    if key not in FORWARDED:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if version not in SERVED[key].versions:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    context.effects_are_done()
    api_key = ApiKey(key)
    logger.debug(
        "a forwarded request was received",
        extra={
            "api": api_key.name,
            "by": context.client_id,
            "principal": (request.request_principal or b"").decode(errors="replace"),
            "host": request.client_host_address.decode(errors="replace"),
        },
    )
    return context.answered_in_slices(_serve(api_key, version, correlation_id, request.request_data, context))


def _serve(
    api_key: ApiKey, version: int, correlation_id: int, data: bytes, context: AnyContext
) -> Steps[Answer[EnvelopeResponse]]:
    header, position = codec(RequestHeader, request_header_version(api_key, version)).decode_from(data)
    yield None
    handler = handler_of(SERVED[api_key])
    yield None
    body = yield from codec(request_type(api_key), version).decode_steps(
        data, position, max_elements=MAX_REQUEST_ELEMENTS
    )
    yield None
    inner = PassedOnContext(context.services, context.connection, api_key, version, correlation_id, header.client_id)
    return then(handler(body, inner), lambda response: context.in_slices(_answer(response, inner)))


def _answer(response: Any, inner: AnyContext) -> Steps[EnvelopeResponse]:
    key = ApiKey(inner.api_key)
    header = ResponseHeader(correlation_id=inner.correlation_id)
    parts: list[Buffer] = [codec(ResponseHeader, response_header_version(key, inner.version)).encode(header)]
    steps: Iterator[None] = codec(response_type(key), inner.version).encode_steps(response, parts)
    yield from steps
    return EnvelopeResponse(response_data=b"".join(parts), error_code=ErrorCode.NONE)
