"""Forwards requests that only the controller can serve, for clients that sent them to another broker (KIP-590).

- The broker that received the request authorizes the client, counts its quotas and writes the audit log. The controller
  trusts the forwarding broker, so Envelopes are served only on the inter-broker listener.
- A request from an Envelope is never forwarded again. If two brokers take each other for the controller, both return
  NOT_CONTROLLER, and the client retries.
- A request is forwarded at most once. If the request may have been sent and no response arrived, the outcome is
  unknown, and the client gets REQUEST_TIMED_OUT. If the request was certainly not sent, the client gets NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from oncelog_broker.config.broker_keys import GROUP_METADATA_MAX_BYTES
from oncelog_broker.controller.elector import Elector
from oncelog_broker.metadata.model.image import NO_CONTROLLER
from oncelog_broker.replication.peers import Peers, PeerUnavailable, Purpose
from oncelog_broker.runtime.slices import with_pauses
from oncelog_broker.server.net.limits import BYTES_BESIDE_METADATA
from oncelog_broker.server.request.context import CommonServices, RequestContext
from oncelog_protocol.api import ApiKey, request_header_version, response_header_version, response_type
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode, KafkaError, MalformedMessage
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.schema import Request
from oncelog_protocol.wire_writers import Buffer

R = TypeVar("R")

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""The APIs whose requests only the controller can serve. Any broker may change configurations, quotas, users and ACLs.
"""
GRACE_SECONDS: Final = 5.0
"""The number of seconds by which this broker waits longer than the client's timeout. The controller then times out
first, and its error response is more helpful than no response.
"""
MAX_WAIT_SECONDS: Final = 600.0
"""The maximum number of seconds that this broker waits for the controller, even if the client's timeout is longer."""
ENVELOPE_BYTES: Final = 64 * 1024
"""The most bytes that an Envelope adds to a request, including its principal and host."""


class ForwardingServices(CommonServices, Protocol):
    """The parts of the broker that a handler needs to forward a request to the controller (KIP-590)."""

    elector: Elector
    """An object that knows whether this broker is the controller, and its controller epoch."""
    peers: Peers


ForwardingContext: TypeAlias = RequestContext[ForwardingServices]


def controller_elsewhere(context: ForwardingContext) -> int | None:
    """Return the broker to which the request must be forwarded; None if this broker is the controller.

    Raises KafkaError NOT_CONTROLLER if no other broker is known to be the controller, or if the request was already
    forwarded.
    """
    services = context.services
    try:
        services.elector.term()
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
    else:
        return None
    controller = services.image.controller_id
    if context.is_passed_on:
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER,
            f"Broker {services.node_id} is no longer the controller: repeat the request in a moment.",
        )
    if controller in (NO_CONTROLLER, services.node_id):
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER,
            "The cluster has no controller until the election ends: repeat the request in a moment.",
        )
    return controller


async def pass_on(request: Request[R], controller: int, context: ForwardingContext, timeout_ms: float) -> R:
    """Forward `request` in the client's version and return the controller's response.

    Raises KafkaError: NOT_CONTROLLER if the request was not sent, REQUEST_TIMED_OUT if its outcome is unknown.
    """
    from oncelog.errors import UnsupportedVersion  # imported here: a broker without a cluster never forwards
    from oncelog_protocol.messages.envelope import EnvelopeRequest

    services, connection = context.services, context.connection
    envelope = EnvelopeRequest(
        request_data=await _encoded(request, context),
        request_principal=str(connection.principal).encode(),
        client_host_address=connection.client_host.encode(),
    )
    if len(envelope.request_data) > services.config[GROUP_METADATA_MAX_BYTES] + BYTES_BESIDE_METADATA - ENVELOPE_BYTES:
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER,
            f"The request is too large to be forwarded: send it to broker {controller} itself.",
        )
    seconds = min(max(timeout_ms, 0.0) / 1000, MAX_WAIT_SECONDS) + GRACE_SECONDS
    try:
        answer = await services.peers.send(controller, envelope, purpose=Purpose.FORWARDING, timeout=seconds)
    except PeerUnavailable as error:
        if isinstance(error.__cause__, UnsupportedVersion):
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER,
                f"Broker {controller} is the controller, and its release accepts no forwarded requests: send "
                "the request to that broker.",
            ) from error
        if not error.may_be_sent:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The controller cannot be reached: {error}") from error
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"It is unknown whether the change was made. The controller did not respond: {error}",
        ) from error
    if answer.response_data is None:
        raise KafkaError(ErrorCode.of(answer.error_code), f"Broker {controller} refused the forwarded request")
    response: R = await _decoded(answer.response_data, context)
    return response


async def _encoded(request: Request[Any], context: ForwardingContext) -> bytes:
    key, version = ApiKey(context.api_key), context.version
    header = RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=context.correlation_id,
        client_id=context.client_id,
    )
    parts: list[Buffer] = [codec(RequestHeader, request_header_version(key, version)).encode(header)]
    steps: Generator[None, None, None] = codec(type(request), version).encode_steps(request, parts)
    await with_pauses(steps, context.services.slices.pauses().here)
    return b"".join(parts)


async def _decoded(data: bytes, context: ForwardingContext) -> Any:
    key, version = ApiKey(context.api_key), context.version
    try:
        _, position = codec(ResponseHeader, response_header_version(key, version)).decode_from(data)
        steps = codec(response_type(key), version).decode_steps(data, position)
        return await with_pauses(steps, context.services.slices.pauses().here)
    except MalformedMessage as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller's response cannot be read: {error}"
        ) from error
