"""SaslHandshake (17), v0-1: choose a SASL mechanism (T22).

On a listener without SASL, or after authentication, the error is ILLEGAL_SASL_STATE, as in Kafka. Versions: after a v0
handshake, the client sends raw SASL tokens without a request header; after a v1 handshake, the client sends its tokens
in SaslAuthenticate requests.
"""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.sasl.exchange import Phase
from oncelog_broker.server.request.context import AnyContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(request: SaslHandshakeRequest, context: AnyContext) -> Answer[SaslHandshakeResponse]:
    gate = context.connection.gate
    if gate is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    exchange = gate.exchange
    try:
        gate.handshake(request.mechanism, context.version)
    except KafkaError as error:
        response = SaslHandshakeResponse(error_code=error.code, mechanisms=exchange.mechanisms)
        return gate.refusal(context.connection, response) if exchange.phase is Phase.FAILED else response
    return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=exchange.mechanisms)
